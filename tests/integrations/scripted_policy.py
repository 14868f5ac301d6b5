"""A policy on loopback that speaks the streaming half of OpenAI's API: it errs first, then does what is asked."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.integrations import loopback


def action(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Call a tool that is not there, then with words for numbers, then rightly; then say the sum."""
    results = [message for message in messages if message["role"] == "tool"]
    a, b = re.findall(r"\d+", next(m["content"] for m in messages if m["role"] == "user"))
    calls = [
        ("plus", {"a": int(a), "b": int(b)}),
        ("add", {"a": "six", "b": int(b)}),
        ("add", {"a": int(a), "b": int(b)}),
    ]
    if len(results) == len(calls):
        return {"content": str(int(a) + int(b))}
    name, arguments = calls[len(results)]
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"call_{len(results)}", "type": "function", "function": function}]}


def events(body: dict[str, Any]) -> Iterator[str]:
    """Yield a completion as server-sent events."""
    said = {"role": "assistant", "content": None, **action(body["messages"])}
    finish = "tool_calls" if "tool_calls" in said else "stop"
    choices: list[list[dict[str, Any]]] = [
        [{"index": 0, "delta": said, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": finish}],
        [],
    ]
    for choice in choices:
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": body["model"], "choices": choice}
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        yield f"data: {json.dumps(chunk if choice else chunk | {'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serve while the block runs; yield the base URL."""
    from starlette.requests import Request
    from starlette.responses import StreamingResponse

    async def complete(request: Request) -> StreamingResponse:
        return StreamingResponse(events(await request.json()), media_type="text/event-stream")

    with loopback.serving(complete) as address:
        yield f"{address}/v1"
