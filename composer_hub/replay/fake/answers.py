"""The responses of the embedded teachers, with the faults that were asked for.

In: a scripted teacher, the body of a request, a fault. Out: a Starlette response.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import HTMLResponse, JSONResponse, Response

from composer_hub.records import canonical_json
from composer_hub.replay.fake.scripts import Action, Labels, Oracle, ScriptedTeacher, act

REFUSALS: Mapping[str, tuple[int, dict[str, str], Any]] = {
    "429": (429, {"retry-after": "0.02"}, "slow down"),
    "429_ms": (429, {"retry-after-ms": "20"}, "slow down"),
    "429_date": (429, {}, "slow down"),  # with the date of the response
    "429_bare": (429, {}, "slow down"),
    "503": (503, {"retry-after": "0.02"}, "busy"),
    "529": (529, {"retry-after": "0.02"}, "overloaded"),
    "402_wait": (402, {"retry-after": "0.02"}, "budget in flight"),
    "402": (402, {}, "insufficient credit"),
    "401": (401, {}, "no such key"),
    "403": (403, {}, "not for you"),
    "404": (404, {}, "no such model"),
    "400": (400, {}, "cannot read the tools"),
    "too_long": (400, {}, "maximum context length exceeded"),
    "500": (500, {}, "internal"),
    "502": (502, {}, "bad gateway"),
    "redirect": (307, {"location": "http://127.0.0.1:9/v1/chat/completions"}, "elsewhere"),
}
"""Faults before any work begins; they are never billed."""

LOST = ("drop", "drop_billed", "html", "bad_json", "error_200", "error_429", "empty_choices", "flagged")
ODD = (
    "length",
    "refusal",
    "invalid_args",
    "text_only",
    "unknown_tool",
    "route_mismatch",
    "no_usage",
    "overbill",
    "slow",
)
FAULTS = (*REFUSALS, *LOST, *ODD)


@dataclass(frozen=True, slots=True)
class FakeAnswer:
    """An assistant message before it is put into a response."""

    model: str
    message: dict[str, Any]
    finish: str


def answer_to(
    teacher: ScriptedTeacher, body: Mapping[str, Any], oracle: Oracle, fault: str, draw: int, labels: Labels
) -> FakeAnswer:
    """Return the teacher's answer, spoilt by the fault."""
    action: Action = act(teacher, body["messages"], body.get("tools") or [], oracle, draw, labels)
    if fault in ("text_only", "refusal", "length"):
        action = "I would rather not." if fault == "refusal" else "Let me think about it."
    if fault == "unknown_tool":
        action = [{"name": "no_such_tool", "arguments": {}}]
    calls = [] if isinstance(action, str) else action
    message: dict[str, Any] = {"role": "assistant", "content": action if isinstance(action, str) else None}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}",
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": "{not json" if fault == "invalid_args" else canonical_json(call["arguments"]),
                },
            }
            for number, call in enumerate(calls)
        ]
    finish = {"length": "length", "refusal": "content_filter"}.get(fault, "tool_calls" if calls else "stop")
    return FakeAnswer("another-model" if fault == "route_mismatch" else teacher.name, message, finish)


def respond(answer: FakeAnswer, usage: Mapping[str, Any], fault: str, request_id: str) -> Response:
    """Return the response that carries an answer, or loses it."""
    response = Dropped() if fault == "drop_billed" else _carrier(answer, usage, fault, request_id)
    response.headers["x-generation-id"] = request_id
    return response


def _carrier(answer: FakeAnswer, usage: Mapping[str, Any], fault: str, request_id: str) -> Response:
    if fault == "html":
        return HTMLResponse("<html><body>Gateway</body></html>")
    if fault == "bad_json":
        return Response('{"id": "x", "choices": [', media_type="application/json")
    content: dict[str, Any] = {
        "id": request_id,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": answer.model,
        "choices": [{"index": 0, "finish_reason": answer.finish, "message": answer.message}],
        "usage": usage,
    }
    if fault in ("error_200", "error_429"):
        return JSONResponse({"error": {"code": 429 if fault == "error_429" else 502, "message": "upstream failed"}})
    if fault == "empty_choices":
        content["choices"] = []
    if fault == "no_usage":
        del content["usage"]
    return JSONResponse(content)


def refuse(status: int, headers: Mapping[str, str], message: str) -> Response:
    """Return an error response."""
    return JSONResponse({"error": {"code": status, "message": message}}, status, headers=dict(headers))


class Dropped(Response):
    """A response that promises a body and then closes the connection."""

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        known = [header for header in self.raw_headers if header[0] == b"x-generation-id"]
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000"), *known]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id":', "more_body": True})
