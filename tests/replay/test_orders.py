"""An order asks what its codes require, and every order gives the pairs that all teachers would give."""

from __future__ import annotations

import itertools

import pytest

from composer_hub.pairs.policy import Policy
from composer_hub.replay.orders import Codes, canonical, has_pair, is_late, num_asked, num_next

POLICY = Policy()


@pytest.mark.parametrize(("order", "codes", "num"), [
    ("all", (), 3), ("sequential", (), 2), ("cascade", (), 1), ("auto", (), 1),
    ("sequential", (1, 1), 0), ("sequential", (1, 2), 1), ("sequential", (-1, 1), 1), ("sequential", (0, 0), 0),
    ("cascade", (-1,), 0), ("cascade", (1,), 1), ("cascade", (1, -2), 0), ("cascade", (1, 2), 1),
    ("cascade", (1, 1), 0), ("auto", (-1,), 1), ("auto", (1, 1), 0), ("auto", (-1, -1), 0),
])  # fmt: skip
def test_the_next_teachers_follow_from_the_codes_so_far(order: str, codes: Codes, num: int) -> None:
    assert num_next(order, codes, 3 - len(codes), POLICY) == num


def test_late_in_a_trace_the_cascade_asks_as_many_as_must_agree_and_breaks_no_ties() -> None:
    assert num_next("cascade", (1,), 2, POLICY, late=True) == 1
    assert num_next("cascade", (1, 2), 1, POLICY, late=True) == 0
    assert num_next("sequential", (1, 2), 1, POLICY, late=True) == 1
    assert [is_late(index, 12) for index in range(12)] == [False] * 8 + [True] * 4
    assert not any(is_late(index, 6) for index in range(6))


def test_codes_of_equal_steps_are_equal() -> None:
    assert canonical((7, 0, 9, 7, -3)) == canonical((2, 0, 1, 2, -1)) == (1, 0, 2, 1, -1)


@pytest.mark.parametrize("min_agree", [2, 3])
@pytest.mark.parametrize("num_teachers", [2, 3, 4, 5])
def test_no_order_finds_a_pair_that_all_teachers_would_not_give(num_teachers: int, min_agree: int) -> None:
    policy = Policy(min_agree=min_agree)
    for codes in itertools.product((-1, 0, 1, 2), repeat=num_teachers):
        by_all = has_pair(codes, policy)
        for order, late in itertools.product(("sequential", "cascade", "auto"), (False, True)):

            def next_of(before: Codes, left: int, order: str = order, late: bool = late) -> int:
                return num_next(order, before, left, policy, late=late)

            by_order = has_pair(codes[: num_asked(next_of, codes)], policy)
            assert by_order == by_all or (order == "cascade" and by_all), (order, codes)
