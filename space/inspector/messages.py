"""Chat messages as they are read: role, text, calls, each cut to a length that a page can bear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from inspector.diff import calls_of, text_of
from inspector.markup import Html, block, h, pretty

MAX_MESSAGES = 200  # of one answer; a longer prompt is fetched in parts


def message_view(message: Any, *, at: int | None = None, more: str = "") -> Html:
    """Return one message; `at` is its place in the prompt."""
    if not isinstance(message, Mapping):
        message = {"role": "unknown", "content": pretty(message)}
    role = str(message.get("role") or "unknown")
    name = str(message.get("name") or "")
    place = h("span", f"{at + 1}", cls="at") if at is not None else None
    head = h("header", place, h("b", role), f" {name}" if name else None)
    address = f"{more}&at={at}" if more and at is not None else ""
    text, thought = text_of(message), message.get("reasoning_content")
    body = [
        h("details", h("summary", "thinking"), block(pretty(thought))) if thought else None,
        block(text, more=address) if text else None,
        [_call(call.tool, call.arguments) for call in calls_of(message)],
    ]
    return h("div", head, body, cls=f"message {role if role in _ROLES else 'unknown'}")


_ROLES = {"system", "user", "assistant", "tool"}


def _call(tool: str, arguments: Any) -> Html:
    if isinstance(arguments, Mapping):
        shown = h("dl", [(h("dt", str(key)), h("dd", block(pretty(value)))) for key, value in arguments.items()])
    else:
        shown = block(pretty(arguments)) if arguments not in (None, "") else None
    return h("div", h("span", tool, cls="name"), shown, cls="callbox")


def conversation(messages: Sequence[Any], first: int = 0, more: str = "") -> Html:
    """Return messages in order; `first` is the place of the first one in the whole prompt."""
    shown = [
        message_view(message, at=first + number, more=more) for number, message in enumerate(messages[:MAX_MESSAGES])
    ]
    left = len(messages) - MAX_MESSAGES
    return h("div", shown, h("p", f"{left} more messages", cls="quiet") if left > 0 else None, cls="conversation")
