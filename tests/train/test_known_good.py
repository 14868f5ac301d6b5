"""Known-good turns: which are kept, and how far a policy is from them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.known_good import KnownGood, good_turns
from tests.train.test_rollouts import END, RIGHT, WRONG, rollout

ROWS = [((1, 2), (3, 4)), ((1, 2), (5,)), ((7,), (8,)), ((9,), (9,))]


def test_the_first_turns_are_kept_one_a_prefix_until_there_are_enough() -> None:
    kept = KnownGood(size=2)
    kept.add(ROWS)
    assert [turn.row for turn in kept.turns] == [ROWS[0], ROWS[2]]
    assert kept.is_full
    assert KnownGood(size=0).is_full


def test_the_drift_is_the_change_of_log_p_per_token_divided_over_the_ranks() -> None:
    kept = KnownGood([ROWS[0], ROWS[2]])
    assert kept.drifts(lambda rows: [0.0] * len(rows)) == []  # nothing to compare with yet
    kept.measure(lambda rows: [-1.0, -2.0])
    kept.measure(lambda rows: 1 / 0)  # only once
    now = {ROWS[0]: -3.0, ROWS[2]: -1.5}
    assert kept.drifts(lambda rows: [now[row] for row in rows]) == [-1.0, 0.5]
    shares = [kept.drifts(lambda rows: [now[row] for row in rows], rank=rank, num_ranks=3) for rank in range(3)]
    assert shares == [[-1.0], [0.5], []]


def test_a_checkpoint_keeps_the_turns_and_their_log_probs() -> None:
    kept, again = KnownGood(size=2), KnownGood(size=2)
    kept.add(ROWS)
    kept.measure(lambda rows: [-1.0] * len(rows))
    again.restore(kept.state())
    assert again.turns == kept.turns


def test_a_turn_that_failed_is_not_known_to_be_good() -> None:
    given = rollout(*WRONG, *RIGHT, END)
    turns = good_turns(given)
    assert iter(turns) is turns  # one at a time: each prefix of a long rollout is a copy
    found = list(turns)
    assert len(found) == 2
    assert all(before[:2] == (1, 2) for before, _ in found)
    assert [action[0] for _, action in found] == [12, 14]
