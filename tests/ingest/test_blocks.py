"""One interpreter of content blocks, whatever harness wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from composer_hub.ingest.readers.blocks import Blocks
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, ToolCall


def blocks(*content: Any, prefix: str = "") -> Blocks:
    return Blocks(list(content), FileReport(), prefix=prefix)


def test_text_alone_is_a_message_of_one_block() -> None:
    assert Blocks("Hello.", FileReport()).action() == Message("assistant", "Hello.")


def test_text_thinking_calls_and_results_are_told_apart_and_keep_their_order() -> None:
    made = blocks(
        {"type": "thinking", "thinking": "First."},
        {"type": "output_text", "text": "One."},
        {"type": "tool_use", "name": "Read", "input": {"path": "a"}, "id": "c1"},
        {"type": "text", "text": "Two."},
        {"type": "tool_result", "tool_use_id": "c0", "content": "done"},
    )
    assert made.action() == Message(
        "assistant", "One.\nTwo.", (ToolCall("Read", {"path": "a"}, "c1"),), reasoning_content="First."
    )
    assert [block["tool_use_id"] for block in made.results] == ["c0"]


@pytest.mark.parametrize("call", [
    {"type": "toolCall", "name": "ls", "arguments": {"path": "."}, "id": "x"},
    {"type": "tool-call", "name": "ls", "input": '{"path": "."}', "toolCallId": "x"},
    {"type": "mcp_tool_use", "name": "ls", "input": {"path": "."}, "id": "x"},
], ids=lambda call: call["type"])  # fmt: skip
def test_a_call_is_the_same_in_every_spelling(call: dict[str, Any]) -> None:
    assert blocks(call).calls == [ToolCall("ls", {"path": "."}, "x")]


def test_calls_without_ids_are_named_by_their_place_in_the_record() -> None:
    call = {"type": "tool_use", "name": "ls", "input": {}}
    assert [one.call_id for one in blocks(call, call, prefix="n7").calls] == ["n7:0", "n7:1"]
    assert blocks(call).calls[0].call_id == ""


@pytest.mark.parametrize(("thinking", "reasoning"), [
    ([], ""),
    ([{"type": "thinking", "thinking": "So."}], "plain"),
    ([{"type": "thinking", "thinking": "", "signature": "…"}], "encrypted"),
    ([{"type": "redacted_thinking", "data": "…"}], "encrypted"),
    ([{"type": "redacted_thinking", "data": "…"}, {"type": "thinking", "thinking": "So."}], "plain"),
])  # fmt: skip
def test_thinking_is_encrypted_if_none_of_it_can_be_read(thinking: list[dict[str, Any]], reasoning: str) -> None:
    assert blocks(*thinking, {"type": "text", "text": "Done."}).reasoning == reasoning


def test_a_picture_and_a_document_leave_a_placeholder_and_a_reason() -> None:
    assert (blocks({"type": "input_image"}).text, blocks({"type": "image"}).lost) == ("[image]", "image_left_out")
    made = blocks({"type": "document"}, {"type": "image"})
    assert (made.text, made.lost) == ("[document]\n[image]", "document_left_out")


@pytest.mark.parametrize("strange", [{"type": "context", "text": "x"}, {}, {"type": ["text"]}, 7, None], ids=str)
def test_a_block_of_an_unknown_kind_is_counted_and_not_read(strange: Any) -> None:
    report = FileReport()
    made = Blocks([{"type": "text", "text": "known"}, strange], report)
    assert (made.text, report.counts["unknown"]) == ("known", 1)
