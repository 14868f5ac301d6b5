"""A lane is one teacher's questions about one trace, in order; a pool is one teacher's queue of lanes and its limit."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composer_hub.replay.cascade import Ask, TraceRounds
    from composer_hub.replay.client import Client
    from composer_hub.replay.prompts import Counted
    from composer_hub.replay.teachers import Teacher

FIRST_LIMIT = 4


@dataclass(slots=True, eq=False)
class Lane:
    """One teacher's questions about one trace, in order, and how far they are answered."""

    rounds: TraceRounds
    teacher: Teacher
    asks: list[Ask]
    number: int
    at: int = 0
    tries: int = 0
    waits: int = 0
    warm_until: float = 0.0  # 0: not started
    counted: Counted | None = None
    last_length: int = 0  # chat messages of the last prompt sent

    @property
    def name(self) -> str:
        return f"{self.rounds.trace.trace_id[:40]}.{self.teacher.name[:40]}"

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.asks)

    def next(self) -> None:
        self.at, self.tries, self.waits = self.at + 1, 0, 0


@dataclass(slots=True, eq=False)
class Pool:
    """One teacher's queue and its limit."""

    teacher: Teacher
    client: Client
    limit: float = FIRST_LIMIT
    in_flight: int = 0
    paused_until: float = 0.0
    away_since: float = 0.0  # 0: it answers
    pauses: int = 0  # since it is away
    last_cut: float = float("-inf")
    was_cut: bool = False
    failures: int = 0
    last_failure: float = float("-inf")
    stopped: str = ""
    ready: list[tuple[int, float, int, Lane]] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        return self.in_flight < int(self.limit)

    def push(self, lane: Lane, now: float) -> None:
        rank = 2 if not lane.warm_until else 0 if lane.warm_until > now else 1
        heapq.heappush(self.ready, (rank, lane.warm_until, lane.number, lane))

    def pop(self, now: float) -> Lane | None:
        """Take the warm lane whose cache expires first, else a cold one, else a new one."""
        while self.ready:
            rank, warm_until, _, lane = self.ready[0]
            heapq.heappop(self.ready)
            if rank == 0 and warm_until <= now:
                self.push(lane, now)
                continue
            return lane
        return None

    def grew(self) -> None:
        """Allow one more call: at every answer until the first cut, then once per round."""
        step = 1 / self.limit if self.was_cut else 1.0
        self.limit = min(self.limit + step, float(self.teacher.max_concurrency))

    def failed(self, sent: float, now: float) -> None:
        """Count a failure; calls that were in flight at the last failure belong to the same event."""
        if sent >= self.last_failure:
            self.failures, self.last_failure = self.failures + 1, now

    def cut(self, sent: float, now: float) -> None:
        """Allow a third less; calls that were sent before the last cut are not new evidence."""
        if sent >= self.last_cut:
            self.limit, self.last_cut, self.was_cut = max(1.0, self.limit * 0.67), now, True
