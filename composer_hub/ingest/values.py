"""Safe hands for foreign JSON: whatever a field holds, the caller gets the type it can work with.

In: any value a log may hold. Out: dict, list, text or number, empty or None where the value is something else. Text
comes back as valid Unicode: lone surrogates, which some logs hold, become U+FFFD.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import orjson

from composer_hub.records import ToolCall

IMAGE = "[image]"
"""What stands where a message held an image: the model saw one, the record keeps none."""

_SURROGATE = re.compile("[\ud800-\udfff]")


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
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def as_int(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_bool(value: Any) -> bool | None:
    """Return True or False where the value says it, 0 and 1 included."""
    return bool(value) if isinstance(value, (bool, int)) and value in (0, 1) else None


def clean(value: Any) -> Any:
    """Return a JSON value with valid Unicode in every text, keys included."""
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {as_text(key): clean(item) for key, item in value.items()}
    return value


def parse_json(text: str | bytes) -> Any:
    """Parse JSON, lone surrogates and NaN included; raises ValueError where there is none."""
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def arguments_of(value: Any) -> Any:
    """Return a call's arguments as an object where they are one, and else the raw text the model wrote."""
    if isinstance(value, str):
        try:
            parsed = parse_json(value)
        except ValueError:
            return as_text(value)
        return clean(parsed) if isinstance(parsed, dict) else as_text(value)
    return {} if value is None else clean(value)


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
    kind = as_text(part.get("type"))
    if kind in ("image", "image_url", "input_image") or "inlineData" in part:
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
