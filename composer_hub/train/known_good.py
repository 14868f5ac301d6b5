"""Known-good turns, which show what a run forgets.

In: correct turns (of the run's first successful rollouts, or given ones) and a model. Out: the change of each turn's
log-prob since it was kept, in nats per token. Rewards and error rates show forgetting too late, because they only
measure the tasks of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub.train.rollouts import Rollout
from composer_hub.train.uplift import Row

MAX_TURNS = 8
Score = Callable[[list[Row]], list[float]]  # log p of each action after what stands before it


@dataclass(frozen=True, slots=True)
class GoodTurn:
    """One correct turn, and its log-prob under the policy when it was kept."""

    before: tuple[int, ...]
    action: tuple[int, ...]
    logp: float | None = None  # not measured yet

    @property
    def row(self) -> Row:
        return self.before, self.action


class KnownGood:
    """A few known-good turns, the same on every rank."""

    def __init__(self, given: Iterable[Row] = (), *, size: int = MAX_TURNS) -> None:
        self.turns = [GoodTurn(tuple(before), tuple(action)) for before, action in given]
        self.size = len(self.turns) or size

    @property
    def is_full(self) -> bool:
        return len(self.turns) >= self.size

    def add(self, rows: Iterable[Row]) -> None:
        """Keep turns until there are enough, one per prefix."""
        known = {turn.before for turn in self.turns}
        for before, action in rows:
            if not self.is_full and tuple(before) not in known:
                known.add(tuple(before))
                self.turns.append(GoodTurn(tuple(before), tuple(action)))

    def measure(self, score: Score) -> None:
        """Remember the current log-prob of each new turn."""
        fresh = [turn for turn in self.turns if turn.logp is None]
        logps = iter(score([turn.row for turn in fresh]) if fresh else [])  # the same ones on every rank
        self.turns = [
            turn if turn.logp is not None else GoodTurn(turn.before, turn.action, next(logps)) for turn in self.turns
        ]

    def drifts(self, score: Score, *, rank: int = 0, num_ranks: int = 1) -> list[float]:
        """Return this rank's share of the drifts, in nats per token; negative if a turn became less likely."""
        mine = [turn for turn in self.turns[rank::num_ranks] if turn.logp is not None]
        now = score([turn.row for turn in mine])  # also without any: the ranks may wait for each other there
        return [(value - (turn.logp or 0.0)) / len(turn.action) for turn, value in zip(mine, now, strict=True)]

    def state(self) -> list[Any]:
        """Return the state for a checkpoint."""
        return [[turn.before, turn.action, turn.logp] for turn in self.turns]

    def restore(self, state: Sequence[Any]) -> None:
        """Restore the turns of a checkpoint."""
        self.turns = [GoodTurn(tuple(before), tuple(action), logp) for before, action, logp in state]


def good_turns(rollout: Rollout) -> Iterator[Row]:
    """Yield the turns of a successful rollout that have no error, one at a time: together they could fill memory."""
    for step in rollout.trace.steps:
        if step.prefix_exact and not step.error_sites:
            before, action = rollout.tokens(step)
            yield tuple(before), tuple(action)
