"""A trace as STS lines, the JSON lines that the Hub's viewer of agent traces shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from composer_hub.exports.atif import main_line
from composer_hub.records import Trace


def to_sts(trace: Trace) -> Iterator[str]:
    """Yield the trace as STS lines: one for the session, then one per message of the main branch."""
    yield _line({"type": "session", "harness": trace.source, "id": trace.session_id})
    models = {step.action: step.model for step in trace.steps}
    for index in main_line(trace):
        message = trace.messages[index]
        row: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.reasoning_content:
            row["reasoningContent"] = message.reasoning_content
        if message.tool_calls:
            row["toolCalls"] = message.to_chat()["tool_calls"]
        if message.tool_call_id:
            row["toolCallId"] = message.tool_call_id
        if model := models.get(index):
            row["model"] = model
        yield _line({"type": "message", "message": row})


def _line(value: dict[str, Any]) -> str:
    return orjson.dumps(value).decode()
