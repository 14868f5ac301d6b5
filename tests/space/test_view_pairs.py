"""What a row of the list says of a pair, what a blind reader sees of it, and the controls of the filters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from inspector.heavy import Context
from inspector.page import SEARCHES, Frame, page
from inspector.pair_index import _COLUMNS, FILTERS, Page
from inspector.view_hints import FILTERS as HINT_FILTERS
from inspector.view_hints import hint_filters
from inspector.view_pairs import PairReader, filter_bar, pair_detail, pair_list, vote_matrix, without_shared_beginning

from composer_hub.records import Message, Pair, ToolCall, Vote, to_row

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
    name: {"''": ("", "one", "two"), "'new'": ("new", "accepted", "swapped")}.get(
        default, (0, 3, 4) if default[0].isdigit() else (None, True, False)
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
    assert len(pages) == 1 or column in LISTED, (
        f"The list shows {column} to a reader who must not know whose action is whose. Hide it if reader.blind in "
        "_list_row of view_pairs.py; if it names no side and no teacher, add it to LISTED."
    )


@pytest.mark.parametrize("column", PAIRS[0])
@pytest.mark.parametrize("base", [0, 1])
def test_the_blind_page_shows_only_columns_that_are_allowed(column: str, base: int) -> None:
    pages = {_detail(PAIRS[base] | {column: pair[column]}) for pair in PAIRS}
    assert len(pages) == 1 or column in DETAILED, (
        f"The page of a pair shows {column} to a reader who must not know whose action is whose. Show it in "
        "view_pairs.py only if not hidden; if it names no side and no teacher, add it to DETAILED."
    )


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


@pytest.mark.parametrize(
    ("view", "bar", "filters"),
    [("pairs", filter_bar({}, {}, PairReader()), FILTERS), ("hints", hint_filters([], {}), HINT_FILTERS)],
)
def test_every_filter_has_a_control_and_the_page_counts_it(view: str, bar: str, filters: Mapping[str, Any]) -> None:
    controls = set(re.findall(r'name="(\w+)"', bar))
    without = filters.keys() - controls - {SEARCHES[view][0]}
    assert not without, f"Add a control for {without} to _FLAGS or _CHOICES of view_pairs.py."
    assert controls <= filters.keys(), f"Add a clause for {controls - filters.keys()} to FILTERS of pair_index.py."
    place = {"dataset": "me/set", "revision": "main", "view": view}
    counted = re.search(r'data-filters="([^"]*)"', page(place, Frame("", False, "", ""), list_=None, detail=None))
    assert counted is not None
    assert set(counted[1].split()) == controls
