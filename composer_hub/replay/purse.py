"""Which traces a cap pays for: a trace is opened only if all its rounds are likely to fit.

In: the rounds of a trace, the ledger. Out: whether to open it now, later (once open traces have ended), only its first
steps, or not at all. A pair needs several answers about one step, so half of the answers about twice as many traces
would be worth nothing. This only plans; the ledger alone decides what is paid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from composer_hub.money import show_usd
from composer_hub.replay.ledger import CapReached, Ledger

if TYPE_CHECKING:
    from composer_hub.replay.cascade import TraceRounds

MAX_MISSES = 50  # traces in a row of which not even the first step fits


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
        self.refused: CapReached | None = None

    def decide(self, rounds: TraceRounds) -> bool | None:
        """Return True to open a trace (perhaps its first steps only), None to wait, False to skip it."""
        if self._misses >= MAX_MISSES:
            return False
        left = self._left()
        if self._fits(rounds, None, left):
            return self._admit(rounds, None)
        if self._open:
            return None
        money = self._ledger.budget()
        self.refused = CapReached(
            f"The next trace needs about {show_usd(self._needed(rounds, None).cost)} and {show_usd(max(left, 0))} is "
            f"left ({money}). To continue, run the same command with a higher --max-usd and --change-cap. Paid answers "
            "are kept.",
            later=False,
        )
        if num_steps := self._most(rounds, 0, left):
            return self._admit(rounds, num_steps)
        self._misses += 1
        return False

    def spend(self, rounds: TraceRounds, cost: int) -> None:
        """Take an answer's cost off the money promised to its trace."""
        if promise := self._open.get(id(rounds)):
            promise.spent += cost

    def close(self, rounds: TraceRounds, *, finished: bool) -> bool:
        """Give back what a trace did not need and learn from it; return True if it goes on with further steps."""
        promise = self._open.pop(id(rounds), None)
        if promise is None:
            return False
        trace_id = rounds.trace.trace_id
        if finished and promise.spent:
            self._expected += promise.model
            self._actual += promise.spent
        self._paid[trace_id] = self._paid.get(trace_id, 0) + promise.spent
        if not finished or promise.num_steps is None or self._open:
            return False
        num_steps = self._most(rounds, promise.num_steps, self._left())
        return num_steps > promise.num_steps and self._admit(rounds, num_steps)

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
        # What is reserved now is promised already, and mostly comes back.
        return money.cap - money.settled - money.ambiguous - promised
