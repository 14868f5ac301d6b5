"""The effort reward compares solutions of one task, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from composer_hub.environments.effort import MOST, cost, effort, penalties, spent

ROLLOUTS = st.lists(st.tuples(st.floats(0, 1e6), st.booleans(), st.sampled_from("ab")), max_size=12)


@given(ROLLOUTS)
def test_no_penalty_is_a_reward_or_above_the_limit_or_for_a_failure(rollouts: list[tuple[float, bool, str]]) -> None:
    efforts, solved, groups = (list(column) for column in zip(*rollouts, strict=True)) if rollouts else ([], [], [])
    found = penalties(efforts, solved, groups)
    assert all(-MOST <= one <= 0 for one in found)
    assert all(one == 0 for one, ok in zip(found, solved, strict=True) if not ok)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_more_effort_never_costs_less(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert cost(low) <= cost(high)
    first, second = penalties([low, high, 0.0], [True] * 3, ["a"] * 3)[:2]
    assert second <= first


def test_a_group_that_rarely_solves_is_left_alone() -> None:
    assert penalties([1, 90, 5, 5], [True, False, False, False], ["a"] * 4) == [0.0] * 4
    assert penalties([1, 90] + [5] * 8, [True, True] + [False] * 8, ["a"] * 10) == [0.0] * 10
    assert penalties([1, 90, 5, 5], [True, True, True, False], ["a"] * 4)[1] < 0
    assert penalties([1, 90], [True, True], ["a", "b"]) == [0.0, 0.0]  # groups are not compared


def test_the_reward_reads_environments_and_messages() -> None:
    class Solved:
        def get_reward(self) -> float:
            return 1.0

    short = [{"role": "assistant", "content": "ok"}]
    long = [{"role": "assistant", "content": "x" * 9000, "tool_calls": [{"function": {"name": "run"}}] * 4}]
    found = effort([short, short, long], [Solved(), Solved(), Solved()], ["t"] * 3)
    assert found[:2] == [0.0, 0.0]
    assert found[2] < 0
    assert spent(long) > spent(short)
