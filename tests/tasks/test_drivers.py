"""Drivers: tests that tell with other arguments, without the values that they expected."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from composer_hub.environments.calls import Marks
from composer_hub.environments.marks import DRIVER
from composer_hub.tasks.drivers import NUM_VARIANTS, drivers

TESTS = '''
"""Tests."""
import pytest
from tinytext import Clock, seconds, words

CASES = [("first 1", 111), ("second 2", 222)]


def helper(clock):
    assert clock.total() == 777


@pytest.mark.parametrize("text, wanted", [("1h", 333), ("2m", 444)])
def test_seconds(text, wanted):
    assert seconds(text) == wanted


class TestClock:
    def test_moves(self):
        clock = Clock(12)
        for name, number in (("a", 555), ("b", 666)):
            assert clock.move(name) == number
        with pytest.raises(ValueError, match="never"):
            clock.move("x")
        assert clock.now is None
        assert 888 == clock.move("y")
        helper(clock)

    def test_other(self):
        assert words("other") == 999


async def test_waits():
    assert await words("later")
'''
ALL = {("test_seconds",), ("TestClock", "test_moves"), ("TestClock", "test_other")}


def texts(names: set[tuple[str, ...]], seed: int = 0) -> list[str]:
    return [one.text for one in drivers("tests/test_it.py", TESTS, names, seed)]


def sites(text: str) -> list[int]:
    calls = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.Call) and DRIVER in ast.unparse(one.func)]
    numbers = [one.args[0].value for one in calls if isinstance(one.args[0], ast.Constant)]
    return sorted(one for one in numbers if isinstance(one, int))


def test_expected_values_of_assertions_are_gone() -> None:
    for text in texts(ALL):
        assert "777" not in text
        assert "888" not in text
        assert "999" not in text
        assert "never" not in text
        assert "assert" not in text.replace("asserts", "")


def test_each_variant_has_other_arguments_and_the_first_has_none() -> None:
    first, *others = texts(ALL)
    assert len(others) == NUM_VARIANTS
    for shown in ("'1h'", "'2m'", "'y'", "'other'"):
        assert shown in first
    assert len({first, *others}) == NUM_VARIANTS + 1
    for text in others:
        assert "words('other')" not in text
        assert "clock.move('y')" not in text


def test_the_same_seed_gives_the_same_text_and_another_one_does_not() -> None:
    assert texts(ALL) == texts(ALL)
    assert texts(ALL) != texts(ALL, seed=1)


def test_a_test_keeps_its_places_and_arguments_when_others_are_left_out() -> None:
    whole, part = texts(ALL), texts({("TestClock", "test_other")})
    for one, other in zip(whole, part, strict=True):
        line = next(line for line in other.splitlines() if "words(" in line)
        assert line in one
        assert set(sites(other)) < set(sites(one))
        assert "test_moves" not in other
        assert "test_seconds" not in other


def test_each_place_has_its_own_number() -> None:
    for text in texts(ALL):
        assert len(set(sites(text))) == len(sites(text)) >= 7


def test_values_that_a_test_takes_from_elsewhere_change_in_every_second_variant() -> None:
    changed = ["_composer_driver.other(" in text for text in texts(ALL)]
    assert changed == [number > 0 and number % 2 == 0 for number in range(NUM_VARIANTS + 1)]


@pytest.mark.parametrize("value", ["text", b"text", 3, 2.5, ["a", 1], ("a",), {"a": {"b": 1}}])
def test_another_value_has_the_same_type_and_is_the_same_everywhere(value: Any) -> None:
    one, other = (Marks(print).other(f"{key}", value) for key in (1, 1))
    assert one == other
    assert type(one) is type(value)
    assert any(Marks(print).other(f"{key}", value) != value for key in range(20))


@pytest.mark.parametrize("value", [None, object, "", [], {}, True])
def test_a_value_that_is_not_plain_or_empty_may_stay(value: Any) -> None:
    assert type(Marks(print).other("1", value)) is type(value)
