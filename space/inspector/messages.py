"""Chat messages as they are read: role, text, calls, each cut to a length that a page can bear."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from inspector.diff import calls_of, short_action, text_of
from inspector.elements import Html, h
from inspector.markup import block, pretty, short

MAX_MESSAGES = 100  # of one answer; a longer prompt is fetched in parts


def message_view(message: Any, *, at: int | None = None, more: str = "") -> Html:
    """Return one message; `at` is its place in the prompt."""
    if not isinstance(message, Mapping):
        message = {"role": "unknown", "content": pretty(message)}
    role = str(message.get("role") or "unknown")
    name = str(message.get("name") or "")
    place = h("span", f"{at + 1}", cls="at") if at is not None else None
    head = h("header", place, h("b", short(role)), f" {short(name)}" if name else None)
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
        shown = h("dl", [(h("dt", short(str(key))), h("dd", block(pretty(value)))) for key, value in arguments.items()])
    else:
        shown = block(pretty(arguments)) if arguments not in (None, "") else None
    return h("div", h("span", short(tool), cls="name"), shown, cls="callbox")


def folded(message: Any, *, at: int, more: str = "", unfolded: bool = False) -> Html:
    """Return one message as a line that opens."""
    text = text_of(message) if isinstance(message, Mapping) else pretty(message)
    line = (
        short_action(message, 140)
        if isinstance(message, Mapping) and calls_of(message)
        else " ".join(text[:400].split())
    )
    role = str(message.get("role") or "unknown") if isinstance(message, Mapping) else "unknown"
    title = h("summary", h("b", short(role)), " ", h("span", line[:140], cls="quiet"))
    return h("details", title, message_view(message, at=at, more=more), open=unfolded, data_open=unfolded)


def conversation(messages: Sequence[Any], first: int = 0, more: str = "") -> Html:
    """Return messages in order; `first` is the place of the first one in the whole prompt."""
    shown = [message_view(one, at=first + number, more=more) for number, one in enumerate(messages[:MAX_MESSAGES])]
    left = len(messages) - MAX_MESSAGES
    return h("div", shown, h("p", f"{left} more messages", cls="quiet") if left > 0 else None, cls="conversation")


def requests(messages: Sequence[Any]) -> list[int]:
    """Return the places of what the user wrote, without the blocks that a harness adds to it."""
    places = [
        at for at, message in enumerate(messages) if isinstance(message, Mapping) and message.get("role") == "user"
    ]
    return [at for at in places if _BLOCKS.sub("", text_of(messages[at])).strip()] or places


# `<system-reminder>…</system-reminder>`: a block between tags is the harness's, not the user's.
_BLOCKS = re.compile(r"<([a-zA-Z][\w-]*)\b[^<>]*>.*?</\1>", re.DOTALL)
