"""Safe hands for foreign JSON: whatever a field holds, the caller gets the type it can work with.

In: any value that `lines.parse` returned. Out: dict, list, text or number, and empty or None where it is something
else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from composer_hub.ingest.lines import parse
from composer_hub.records import ToolCall, canonical_json

IMAGE = "[image]"
"""What stands where a message held an image: the model saw one, the record keeps none."""
MAX_DEPTH = 60
"""Arguments nested deeper are kept as text: Arrow, JSON writers and people give up somewhere beyond."""


def as_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list and leave out the rest."""
    return (item for item in as_list(value) if isinstance(item, dict))


def as_text(value: Any) -> str:
    """Return text as it is, a number as its digits, and "" for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def as_int(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_bool(value: Any) -> bool | None:
    """Return True or False where the value says it, 0 and 1 included."""
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def first_text(row: Any, *names: str) -> str:
    """Return the first of some fields that holds text."""
    return next(filter(None, (as_text(as_dict(row).get(name)) for name in names)), "")


def parsed(value: Any) -> Any:
    """Return a value that may stand as JSON text; None where the text is no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return parse(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None


def parsed_dicts(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list that may stand as JSON text, whole or item by item (a JSON column of Parquet)."""
    return list(dicts([parsed(item) for item in as_list(parsed(value))]))


def arguments_of(value: Any) -> Any:
    """Return a call's arguments as an object where they are one, and else the raw text the model wrote."""
    if value is None:
        return {}
    arguments = parsed(value)
    if not isinstance(arguments, dict):
        return value if isinstance(value, str) else canonical_json(value)
    return arguments if depth_of(arguments) <= MAX_DEPTH else canonical_json(arguments)


def depth_of(value: Any) -> int:
    """Measure nesting level by level, since the nesting may be deeper than Python's stack."""
    level, depth = [value], 0
    while level:
        level = [inner for item in level if isinstance(item, (dict, list)) for inner in _inside(item)]
        depth += 1
    return depth


def _inside(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def content_text(content: Any) -> str:
    """Return the text of a message's content: a string, or parts in the OpenAI, Anthropic or Gemini shape."""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return as_text(content)
    return "\n".join(text for part in content if (text := _part_text(part)))


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return as_text(part)
    if part.get("type") in ("image", "image_url", "input_image") or "inlineData" in part:
        return IMAGE
    return as_text(part.get("text"))


def chat_calls(value: Any) -> tuple[ToolCall, ...]:
    """Return the calls of a message in the OpenAI shape; a call without a function's name is none."""
    return tuple(call for item in dicts(value) if (call := _chat_call(item)))


def _chat_call(item: dict[str, Any]) -> ToolCall | None:
    function = as_dict(item.get("function"))
    name = as_text(function.get("name")) or as_text(item.get("name"))
    arguments = function.get("arguments", item.get("arguments"))
    return ToolCall(name, arguments_of(arguments), as_text(item.get("id"))) if name else None
