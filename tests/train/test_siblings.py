"""Groups of rollouts over all ranks, on rewards made by hand."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.rollouts import Rollout  # noqa: E402
from composer_hub.train.siblings import best_of_groups, siblings, stuck  # noqa: E402


def rollouts(count: int) -> list[Rollout]:
    return [Rollout([place], [], [], []) for place in range(count)]


def test_the_best_of_a_group_is_the_first_of_the_highest_reward() -> None:
    assert best_of_groups([0.0, 1.0, 1.0, 5.0, 5.0, 6.0], 3) == [1, 1, 1, 5, 5, 5]
    assert best_of_groups([], 4) == []


def test_a_sibling_is_a_better_rollout_of_the_same_group_and_none_for_the_best() -> None:
    given = rollouts(4)
    assert siblings(given, [0.0, 1.0, 0.5, 0.5], 2) == [given[1], None, None, None]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 6])
def test_a_sibling_is_found_on_whatever_rank_it_is(num_ranks: int) -> None:
    given, rewards = rollouts(6), [0.0, 0.2, 0.1, 0.9, 0.5, 0.5]
    each, sent = len(given) // num_ranks, []

    def exchange(mine: list[Any]) -> list[Any]:
        sent.extend(place for place, _ in mine)
        return [(place, given[place]) for place in (1, 3)]

    found = []
    for rank in range(num_ranks):
        mine = given[rank * each : (rank + 1) * each]
        found += siblings(mine, rewards, 3, rank=rank, num_ranks=num_ranks, exchange=exchange)
    assert found == [given[1], None, given[1], None, given[3], given[3]]
    # Only the best of groups that span ranks travel.
    assert sent == ([] if num_ranks in (1, 2) else [1, 3])


def test_a_rank_without_rollouts_still_takes_part_in_the_exchange() -> None:
    given, sent = rollouts(2), []
    assert (
        siblings([], [0.0, 1.0, 0.0, 0.0], 4, rank=1, num_ranks=2, exchange=lambda mine: sent.append(mine) or []) == []
    )
    assert sent == [[]]
    alone = siblings(given, [0.0, 0.5, 9.0, 0.0], 4, rank=0, num_ranks=2, exchange=list)
    assert alone == [None, None]  # the best one is on a rank that has none to give


def test_rollouts_are_stuck_if_their_group_is_level_below_success() -> None:
    rewards = [0.0, 0.0, 1.0, 1.0, 0.5, 0.0, 0.3, 0.3 + 1e-9, -float("inf"), -float("inf")]
    assert stuck(rewards, 2, 1.0) == [True, True, False, False, False, False, True, True, True, True]
