"""Parallel calls: reads have no order, whatever writes keeps its place."""

from __future__ import annotations

import pytest

from composer_hub.actions.forms import ActionContext, NormalForm, is_part_of, normalize, same
from composer_hub.records import Message, ToolCall

READ = ToolCall("Read", {"file_path": "a.py"})
SEARCH = ToolCall("Grep", {"pattern": "x", "path": "src"})
FIND = ToolCall("Bash", {"command": "find . -name '*.py'"})
EDIT = ToolCall("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"})
MAKE = ToolCall("Bash", {"command": "make"})
MOVE = ToolCall("Bash", {"command": "cd src"})


def form(*calls: ToolCall) -> NormalForm:
    return normalize(Message("assistant", "", calls), ActionContext(cwd="/repo", shell_cwd="/repo"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((READ, SEARCH), (SEARCH, READ)),
        ((READ, SEARCH, FIND), (FIND, READ, SEARCH)),
        ((READ, SEARCH, EDIT), (SEARCH, READ, EDIT)),
    ],
)
def test_reads_next_to_each_other_have_no_order(one: tuple[ToolCall, ...], other: tuple[ToolCall, ...]) -> None:
    assert same(form(*one), form(*other))


@pytest.mark.parametrize("writer", [EDIT, MAKE, MOVE, ToolCall("Frob", {})])
def test_a_call_that_may_write_or_move_keeps_its_place(writer: ToolCall) -> None:
    assert not same(form(READ, writer), form(writer, READ))
    assert not same(form(writer, READ, writer), form(writer, writer, READ))
    assert not same(form(writer, writer), form(writer))


@pytest.mark.parametrize("level", ["L1", "L2", "L3"])
def test_a_part_has_some_of_the_calls_and_no_other_ones(level: str) -> None:
    whole = form(READ, EDIT, MAKE)
    assert is_part_of(form(MAKE), whole, level)
    assert is_part_of(form(MAKE, READ), whole, level)
    for other in (form(READ, EDIT, MAKE), form(SEARCH), form(READ, SEARCH), form(MAKE, MAKE), form()):
        assert not is_part_of(other, whole, level)
