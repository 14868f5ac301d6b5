"""What a row of the list says of a pair, what a blind reader sees of it, and the controls of the filters."""

from __future__ import annotations

import re
from typing import Any

import pytest
from inspector.heavy import Context
from inspector.page import SEARCHES
from inspector.pair_index import _COLUMNS, FILTERS, Page
from inspector.view_pairs import PairReader, filter_bar, pair_detail, pair_list, vote_matrix, without_shared_beginning

from composer_hub.records import Message, Pair, ToolCall, Vote, to_row
from tests.space.conftest import SPACE

ROOT = "cd /home/ada/work/project/packages/app && "


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (
            f"{ROOT}pytest tests/a.py",
            f"{ROOT}ruff check",
            ("cd /home/ada/w…app && pytest tests/a.py", "cd /home/ada/w…app && ruff check"),
        ),
        (f"{ROOT}pytest", f"{ROOT}pytest -x", ("cd /home/ada/w…pytest", "cd /home/ada/w…pytest -x")),
        (f"{ROOT}pytest", f"{ROOT}pytest", (f"{ROOT}pytest", f"{ROOT}pytest")),
        ("pytest -q", "pytest -x", ("pytest -q", "pytest -x")),
        (f"{ROOT}pytest", "", (f"{ROOT}pytest", "")),
        ("x" * 90 + "a", "x" * 90 + "b", ("x" * 90 + "a", "x" * 90 + "b")),
    ],
)
def test_previews_begin_shortly_before_they_part(one: str, other: str, shown: tuple[str, str]) -> None:
    assert without_shared_beginning(one, other) == shown
    assert without_shared_beginning(other, one) == shown[::-1]


def test_only_a_pair_on_which_teachers_agree_names_a_level() -> None:
    assert "the same at level L2" in str(vote_matrix([], {"level": "L2"}))
    assert "level" not in str(vote_matrix([], {"level": ""})), "a reviewer chose it, or it is an own repair"


# ------------------------------------------------------------------------------------------------------ blind readers

BLIND = PairReader("ann", blind=True)
LISTED = {  # columns that the list shows to a blind reader: the actions, and the place of the step
    "id", "trace_id", "repository", "step", "num_steps", "after_error", "scripted", "chosen_tool", "chosen_preview",
    "rejected_tool", "rejected_preview",
}  # fmt: skip
DETAILED = {  # columns of the pair that its page shows to a blind reader
    "pair_id", "repository", "index", "num_steps", "after_error", "prompt", "chosen", "rejected", "chosen_text",
    "rejected_text",
}  # fmt: skip
LIGHT = {  # column: its values in three rows
    name: {"0": (0, 3, 4), "''": ("", "one", "two"), "'new'": ("new", "accepted", "swapped")}.get(
        default, (None, True, False)
    )
    for name, (_, default) in _COLUMNS.items()
}


def _pair(text: str, number: int, flag: bool) -> dict[str, Any]:
    """Return a row whose every column has a value of its type."""
    of_type = {str: text, int: number, float: number / 2, bool: flag, type(None): flag, list: [text] if text else []}
    empty = Pair("", "", "", 0, 0, (), (), (), ())
    action = Message("assistant", text, (ToolCall("Read", {"path": f"{text}.py"}, "abc"),))
    plain = {name: of_type[type(value)] for name, value in to_row(empty).items()}
    return plain | {name: [action.to_chat()] for name in ("chosen", "rejected", "prompt")}


PAIRS = [_pair("", 0, False), _pair("one", 3, True), _pair("two", 4, False)]


def _list(row: dict[str, Any], reader: PairReader = BLIND) -> str:
    return str(pair_list(Page([row], 1, 0), {}, reader))


def _detail(row: dict[str, Any], reader: PairReader = BLIND, light: int = 1, **more: Any) -> str:
    listed = {name: values[light] for name, values in LIGHT.items()}
    return str(pair_detail(row, listed, more.pop("votes", []), more.pop("context", None), {}, reader, **more))


@pytest.mark.parametrize("column", LIGHT)
@pytest.mark.parametrize("base", [0, 1])
def test_the_blind_list_shows_only_columns_that_are_allowed(column: str, base: int) -> None:
    row = {name: values[base] for name, values in LIGHT.items()}
    pages = {_list(row | {column: value}) for value in LIGHT[column]}
    assert len(pages) == 1 or column in LISTED


@pytest.mark.parametrize("column", PAIRS[0])
@pytest.mark.parametrize("base", [0, 1])
def test_the_blind_page_shows_only_columns_that_are_allowed(column: str, base: int) -> None:
    pages = {_detail(PAIRS[base] | {column: pair[column]}) for pair in PAIRS}
    assert len(pages) == 1 or column in DETAILED


def test_the_blind_page_hides_votes_verdicts_hints_and_the_review() -> None:
    context = Context(["out"], [{"kind": "timeout", "blame": "model", "message": "m"}], [{"text": "t", "writer": "w"}])
    votes = [to_row(Vote("v", "t", "s", 0, "teacher", "family", "voted", {"content": "x"}, "x"))]
    verdicts = [{"reviewer": "bob", "verdict": "swap", "note": "n", "reason": "", "blind": True}]
    bare = _detail(PAIRS[1])
    for reader, is_same in ((BLIND, True), (PairReader("ann"), False)):
        assert (_detail(PAIRS[1], reader, context=context) == bare) == is_same
        assert (_detail(PAIRS[1], reader, votes=votes) == bare) == is_same
        assert (_detail(PAIRS[1], reader, verdicts=verdicts) == bare) == is_same


# ------------------------------------------------------------------------------------------------------------- filters


def test_every_filter_has_a_control_that_the_page_sends() -> None:
    controls = set(re.findall(r'name="(\w+)"', str(filter_bar({}, {}, PairReader()))))
    assert controls | {SEARCHES["pairs"][0]} == FILTERS.keys()
    sent = re.search(r"const FILTERS = \[([^\]]+)\]", (SPACE / "static" / "space.js").read_text())
    assert sent is not None
    assert FILTERS.keys() <= set(re.findall(r'"(\w+)"', sent[1]))
