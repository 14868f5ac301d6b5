"""A pair's actions in a few characters, for the index that lists are drawn from: published messages in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_CHARS = 100


def tool_names(action: Sequence[Mapping[str, Any]]) -> str:
    """Return the tools of an action: `Read`, or `Glob+Grep` for two calls."""
    return "+".join(call["function"]["name"] for message in action for call in message.get("tool_calls") or ())


def preview(action: Sequence[Mapping[str, Any]]) -> str:
    """Return the beginning of an action's arguments, without their names."""
    calls = (call["function"].get("arguments") for message in action for call in message.get("tool_calls") or ())
    values = (
        value if isinstance(value, str) else str(value)
        for arguments in calls
        if isinstance(arguments, Mapping)
        for value in arguments.values()
        if value not in (None, "", False)
    )
    text = ""
    for value in values:
        text += (" · " if text else "") + " ".join(value[: 4 * MAX_CHARS].split())
        if len(text) >= MAX_CHARS:
            break
    return text[:MAX_CHARS]
