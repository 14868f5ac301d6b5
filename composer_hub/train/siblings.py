"""Groups of rollouts of one prompt, over all ranks: the best sibling of each, and which have nothing to teach.

In: the rewards of all ranks, in TRL's order (a group is `size` rollouts in a row, and may begin on one rank and end on
the next), and this rank's rollouts. Out: one sibling or flag for each of this rank's rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")
_CLOSE = 1e-6  # sums of weighted rewards are not exact


def total_rewards(by_function: Tensor, weights: Tensor, *, unscored: float) -> Tensor:  # (rollouts, functions)
    """Return the weighted reward of each rollout, or `unscored` if no function scored it."""
    totals = (by_function * weights.to(by_function.device)).nansum(dim=1)
    return totals.masked_fill(by_function.isnan().all(dim=1), unscored)


def best_of_groups(rewards: Sequence[float], size: int) -> list[int]:
    """Return, for each rollout, the place of the best one of its group; of equals the first."""
    found = []
    for place in range(len(rewards)):
        first = place - place % size
        group = range(first, min(first + size, len(rewards)))
        found.append(max(group, key=lambda one: (rewards[one], -one)))
    return found


def siblings(
    rollouts: Sequence[T],
    rewards: Sequence[float],  # of all ranks
    size: int,
    *,
    rank: int = 0,
    num_ranks: int = 1,
    exchange: Callable[[list[Any]], list[Any]] = list,
) -> list[T | None]:
    """Return, for each rollout of this rank, the best one of its group if that is better.

    Every rank must come here, even with nothing: where groups span ranks, `exchange` gives each the lists of all.
    """
    each = len(rewards) // num_ranks
    start, best = rank * each, best_of_groups(rewards, size)
    known = {start + row: rollout for row, rollout in enumerate(rollouts)}
    if num_ranks > 1 and each % size:
        # Only what another rank may need travels: the best rollout of each group that this rank has a part of.
        known |= dict(exchange([(place, known[place]) for place in sorted(set(best)) if place in known]))
    return [
        known.get(best[place]) if rewards[best[place]] > rewards[place] else None
        for place in range(start, start + len(rollouts))
    ]


def reached(reward: Any, least: float) -> Any:
    """Return whether a reward, or each of a tensor, is at least `least`."""
    return reward >= least - _CLOSE


def stuck(rewards: Sequence[float], size: int, least: float) -> list[bool]:
    """Return which rollouts have not succeeded and have the reward of their whole group, so that nothing is learned."""
    found = []
    for first in range(0, len(rewards), size):
        group = rewards[first : first + size]
        is_level = max(group) - min(group) < _CLOSE if math.isfinite(min(group)) else max(group) == min(group)
        found += [is_level and not reached(reward, least) for reward in group]
    return found
