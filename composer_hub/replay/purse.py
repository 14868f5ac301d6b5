"""Which traces a cap pays for: a trace is opened only if all its rounds are likely to fit.

In: the rounds of a trace, the ledger. Out: whether to open it now, later (once open traces have ended), only its first
steps, or not at all. A pair needs several answers about one step, so half of the answers about twice as many traces
would be worth nothing. A trace that the cap cannot finish waits until the cheaper ones are done, because its first
steps could take the money for all of them. This only plans; the ledger alone decides what is paid.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from composer_hub.money import show_usd
from composer_hub.replay.ledger import CapReached, Ledger

if TYPE_CHECKING:
    from composer_hub.replay.cascade import TraceRounds

MAX_MISSES = 50  # traces in a row that do not fit; later ones are not estimated
MAX_KEPT_BACK = 8  # traces that wait in memory for what the others leave


@dataclass(frozen=True, slots=True)
class Estimate:
    """The expected cost of a trace's rounds, and the reservation that its last call needs; in nano-dollars."""

    cost: int
    headroom: int
    model: int = 0  # the cost before it was corrected by earlier traces


@dataclass(slots=True)
class _Promise:
    cost: int  # expected, less what was paid before
    model: int  # the same, before it was corrected by earlier traces
    num_steps: int | None  # None: all
    spent: int = 0


class Purse:
    """The money that open traces are expected to need."""

    def __init__(self, ledger: Ledger, estimate: Callable[[TraceRounds, int | None], Estimate]) -> None:
        self._ledger, self._estimate = ledger, estimate
        self._paid = ledger.by_trace()
        self._open: dict[int, _Promise] = {}
        self._expected = self._actual = 0  # of finished traces
        self._misses = 0
        self._kept_back: deque[TraceRounds] = deque()
        self.refused: CapReached | None = None  # of the first trace with steps that the cap does not pay for

    @property
    def keeps_traces_back(self) -> bool:
        return bool(self._kept_back)

    def decide(self, rounds: TraceRounds) -> bool | None:
        """Return True to open a trace, None to wait, False to skip it; `last` may open it at the end."""
        if self._misses >= MAX_MISSES:
            return False
        if self._fits(rounds, None, self._left()):
            return self._admit(rounds, None)
        if self._open:
            return None
        self._misses += 1
        if len(self._kept_back) < MAX_KEPT_BACK:
            self._kept_back.append(rounds)
        else:
            self._refuse(rounds)
        return False

    def last(self) -> TraceRounds | None:
        """Open a trace that was kept back, or its first steps that fit; None if none fits or others are open."""
        while self._kept_back and not self._open:
            rounds = self._kept_back.popleft()
            if num_steps := self._most(rounds, 0, self._left()):
                self._admit(rounds, num_steps)
                return rounds
            self._refuse(rounds)
        return None

    def spend(self, rounds: TraceRounds, cost: int) -> None:
        """Take an answer's cost off the money promised to its trace."""
        if promise := self._open.get(id(rounds)):
            promise.spent += cost

    def close(self, rounds: TraceRounds, *, finished: bool) -> bool:
        """Give back what a trace did not need and learn from it; return whether further steps follow."""
        promise = self._open.pop(id(rounds), None)
        if promise is None:
            return False
        trace_id = rounds.trace.trace_id
        if finished and promise.spent:
            self._expected += promise.model
            self._actual += promise.spent
        self._paid[trace_id] = self._paid.get(trace_id, 0) + promise.spent
        if promise.num_steps is None or promise.num_steps >= len(rounds.ranks()):
            return False
        if finished and not self._open:
            num_steps = self._most(rounds, promise.num_steps, self._left())
            if num_steps > promise.num_steps:
                return self._admit(rounds, num_steps)
        self._refuse(rounds)
        return False

    def _refuse(self, rounds: TraceRounds) -> None:
        if self.refused:
            return
        cost, left = self._needed(rounds, None).cost, max(self._left(), 0)
        self.refused = CapReached(
            f"A trace needs about {show_usd(cost)} more and {show_usd(left)} is left ({self._ledger.budget()}). "
            "To continue, run the same command with a higher --max-usd and --change-cap. Paid answers are kept.",
            later=False,
        )

    def _admit(self, rounds: TraceRounds, num_steps: int | None) -> bool:
        self._misses = 0
        needed = self._needed(rounds, num_steps)
        self._open[id(rounds)] = _Promise(needed.cost, needed.model, num_steps)
        rounds.keep_first(num_steps)
        return True

    def _most(self, rounds: TraceRounds, low: int, left: int) -> int:
        """Return how many of a trace's first steps fit, at least `low`."""
        high = len(rounds.ranks())
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(rounds, middle, left) else (low, middle - 1)
        return low

    def _fits(self, rounds: TraceRounds, num_steps: int | None, left: int) -> bool:
        needed = self._needed(rounds, num_steps)
        return needed.cost + needed.headroom <= left

    def _needed(self, rounds: TraceRounds, num_steps: int | None) -> Estimate:
        found, paid = self._estimate(rounds, num_steps), self._paid.get(rounds.trace.trace_id, 0)
        # Earlier traces show how far off the expectation is; a few of them do not show it well.
        bias = (self._actual + found.cost) / (self._expected + found.cost) if self._expected + found.cost else 1.0
        cost = max(0, round(found.cost * bias) - paid)
        return Estimate(cost, found.headroom, round(cost / bias) if bias else cost)

    def _left(self) -> int:
        money = self._ledger.budget()
        promised = sum(max(0, promise.cost - promise.spent) for promise in self._open.values())
        # Reserved money is part of a promise already, and mostly comes back.
        return money.cap - money.settled - money.ambiguous - promised
