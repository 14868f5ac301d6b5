"""The tools and the preview of an action in the index."""

from __future__ import annotations

from composer_hub.pairs.preview import MAX_CHARS, preview, tool_names
from composer_hub.records import Message, ToolCall


def action(*calls: ToolCall) -> list[dict]:
    return [Message("assistant", "words", calls).to_chat()]


def test_tools_of_several_calls_are_joined() -> None:
    assert tool_names(action(ToolCall("Glob", {}), ToolCall("Grep", {}), ToolCall("Glob", {}))) == "Glob+Grep"
    assert tool_names(action()) == ""


def test_a_preview_holds_the_texts_of_the_arguments_on_one_line() -> None:
    assert preview(action(ToolCall("Bash", {"command": "ls\n  -la", "timeout": 5, "quiet": False}))) == "ls -la"
    assert preview(action(ToolCall("add", {"a": 1, "b": 2}))) == "1 · 2"


def test_a_preview_of_several_calls_begins_with_their_number() -> None:
    calls = (ToolCall("Bash", {"command": "ls"}), ToolCall("Read", {"path": "a.py"}))
    assert preview(action(*calls)) == "2 calls: ls ; a.py"


def test_a_preview_is_cut() -> None:
    assert preview(action(ToolCall("Write", {"content": "x" * 10_000_000}))) == "x" * MAX_CHARS


def test_arguments_that_are_not_an_object_have_no_preview() -> None:
    assert preview(action(ToolCall("Bash", "{broken"))) == ""
