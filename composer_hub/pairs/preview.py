"""A pair's actions in a few characters, for the index that lists are drawn from: published messages in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MAX_CHARS = 100


def tool_names(action: Sequence[Mapping[str, Any]]) -> str:
    """Return the tools of an action, each once: `Read`, or `Glob+Grep`."""
    return "+".join(dict.fromkeys(function["name"] for function in _functions(action)))


def preview(action: Sequence[Mapping[str, Any]]) -> str:
    """Return the beginning of an action's arguments without their names; several calls begin with their number."""
    functions = list(_functions(action))
    text = f"{len(functions)} calls: " if len(functions) > 1 else ""
    for function in functions:
        values = function["arguments"].values() if isinstance(function.get("arguments"), Mapping) else ()
        texts = [value for value in values if isinstance(value, str) and value]
        # Only their names distinguish numbers and switches.
        text += " · ".join(" ".join(value[: 4 * MAX_CHARS].split()) for value in texts or map(str, values)) + " ; "
        if len(text) > 2 * MAX_CHARS:
            break
    return text.removesuffix(" ; ")[:MAX_CHARS]


def _functions(action: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    return (call["function"] for message in action for call in message.get("tool_calls") or ())
