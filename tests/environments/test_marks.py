"""Marks: what tests compare is told as it is, places keep their lines, and equal values of two programs are equal."""

from __future__ import annotations

import collections
import enum
from typing import Any

import pytest

from composer_hub.environments import rewrites
from composer_hub.environments.calls import Marks, same
from composer_hub.environments.marks import agree, marked, read_marks


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("assert f(x) == 3", "assert M(0, f(x)) == 3"),
        (
            "def t():\n    assert (\n        f(1,\n 2)\n    ) == g()",
            "def t():\n    assert (\n        M(0, f(1,\n 2))\n    ) == M(1, g())",
        ),
        (
            "self.assertEqual(f('ä'), 'ö'); assert 1 == f('ä')",
            "self.assertEqual(M(0, f('ä')), 'ö'); assert 1 == M(1, f('ä'))",
        ),
        ("assert f() is None", "assert M(0, f()) is None"),
        ("assert (n := f()) == 1", "assert (n := f()) == 1"),
        ("assert f() == approx(1)", "assert f() == approx(1)"),
        ("self.assertAlmostEqual(f(), 1)", "self.assertAlmostEqual(f(), 1)"),
        ("assert f() != 1", "assert f() != 1"),
        ("not python", "not python"),
    ],
)
def test_both_sides_of_equalities_are_marked(source: str, wanted: str) -> None:
    assert marked(source.encode(), "M").decode() == wanted


class Text(str):
    """A text that says that it equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Color(enum.IntEnum):
    RED = 3


Point = collections.namedtuple("Point", "x y")


def told(value: Any) -> Any:
    lines: list[Any] = []
    marks = Marks(lines.append)
    marks.test = "t"
    assert marks(0, value) is value
    return lines[0][2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (True, 1),
        (Color.RED, 3),
        (Point(1, 2), (1, 2)),
        (collections.OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        ({1, 2}, frozenset((2, 1))),
        ([1, [2.0]], [1.0, [2]]),
        (b"x", b"x"),
        (float("inf"), float("inf")),
    ],
)
def test_values_that_python_calls_equal_are_the_same(one: Any, other: Any) -> None:
    assert one == other
    assert same(told(one), told(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Text("no"), "yes"),
        (1, "1"),
        ((1, 2), [1, 2]),
        ({"a": 1}, {"a": 2}),
        (None, False),
        ([1], [1, 1]),
        (object(), 1),
    ],
)
def test_a_class_cannot_say_what_its_value_is(one: Any, other: Any) -> None:
    assert not same(told(one), told(other))


def test_lines_that_say_nothing_are_left_out() -> None:
    values, ends = read_marks(['["t", 1, 5]', "noise", '["t", "x", 5]', '{"passed": {"t": true}}', "[]", '["t", 1, 6]'])
    assert (values, ends) == ({"t": {1: [5, 6]}}, [{"passed": {"t": True}}])
    assert agree(values["t"], {1: [5.0, 6]} | {})
    assert not agree({}, {1: [5]})
    assert not agree(values["t"], {1: [5]})


CODE = '''
import re
def f(text, n=2):
    """Doc."""
    found = [one for one in re.findall(r"\\d+", text)]
    total = 0
    for one in found:
        total += int(one)
    if total == n:
        answer = "same"
    else:
        answer = "other" if total else {one for one in found}
    return answer, total
'''


@pytest.mark.parametrize("number", range(3))
def test_a_rewrite_is_another_text_of_the_same_function(number: int) -> None:
    new = rewrites.rewrites("_x")[number](CODE)
    assert new.strip() != CODE.strip()
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    exec(CODE, first)
    exec(new, second)
    for text in ("1 1", "", "a12", "7"):
        assert first["f"](text) == second["f"](text)
    assert first["f"].__code__.co_varnames != second["f"].__code__.co_varnames or number
