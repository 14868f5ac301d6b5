"""Values of foreign JSON: whatever a field holds, the caller gets a value of the type that it can work with.

`parse_json` reads bytes that may be broken. The functions after it take any parsed value and return an object, a list,
text or a number: empty or None if the value is something else. All text is valid Unicode: bytes that are not UTF-8 and
lone surrogates become U+FFFD, and the report counts them as repaired.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from composer_hub.ingest.report import FileReport
from composer_hub.records import ToolCall, canonical_json, clean

IMAGE = "[image]"
"""Replaces each image: the model saw it, the record does not keep it."""
MAX_DEPTH = 60
"""Deeper values are kept as text, since Arrow and JSON writers fail on them."""


def parse_json(data: bytes, report: FileReport | None = None) -> Any:
    """Return the JSON value of some bytes, with broken text repaired; raise ValueError if it is not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return repaired(data, report)


def repaired(data: bytes, report: FileReport | None = None) -> Any:
    """Read JSON that orjson refuses: bad UTF-8, lone surrogates, NaN, a byte order mark; else raise ValueError."""
    try:
        value = clean(json.loads(data.decode("utf-8-sig", "replace")))
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg.removesuffix(' at')} at column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if report is not None:
        report.add("repaired")
    return value


def as_dict(value: Any) -> dict[str, Any]:
    """Return an object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a list and leave out the rest."""
    return (item for item in as_list(value) if isinstance(item, dict))


def as_text(value: Any) -> str:
    """Return text as it is, a number as its digits, and "" for anything else."""
    if isinstance(value, str):
        return value
    if value is None:  # the usual case of a missing field
        return ""
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def as_int(value: Any) -> int | None:
    """Return a whole number, also one written as `3.0`; None for anything else, `true` included."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_bool(value: Any) -> bool | None:
    """Return a truth value, also for 0 and 1; None for anything else."""
    return bool(value) if isinstance(value, (bool, int, float)) and value in (0, 1) else None


def text_at(record: Mapping[str, Any], *path: str) -> str:
    """Return the text under a path of keys, or ""."""
    return as_text(_at(record, path))


def dict_at(record: Mapping[str, Any], *path: str) -> dict[str, Any]:
    """Return the object under a path of keys, or an empty one."""
    return as_dict(_at(record, path))


def list_at(record: Mapping[str, Any], *path: str) -> list[Any]:
    """Return the list under a path of keys, or an empty one."""
    return as_list(_at(record, path))


def dicts_at(record: Mapping[str, Any], *path: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of the list under a path of keys."""
    return dicts(_at(record, path))


def int_at(record: Mapping[str, Any], *path: str) -> int | None:
    """Return the whole number under a path of keys, or None."""
    return as_int(_at(record, path))


def bool_at(record: Mapping[str, Any], *path: str) -> bool | None:
    """Return the truth value under a path of keys, or None."""
    return as_bool(_at(record, path))


def _at(record: Mapping[str, Any], path: Sequence[str]) -> Any:
    value = record.get(path[0])
    for key in path[1:]:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def first_text(row: Any, *names: str) -> str:
    """Return the first of some fields that holds text."""
    return next(filter(None, (as_text(as_dict(row).get(name)) for name in names)), "")


def joined(texts: Iterable[str]) -> str:
    """Return the texts that are not empty, one per line."""
    return "\n".join(filter(None, texts))


def parsed(value: Any) -> Any:
    """Return a value that may be encoded as JSON text; None if the text is not JSON."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value.encode("utf-8", "surrogatepass"))
    except ValueError:
        return None


def parsed_dicts(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list that may be JSON text, whole or item by item, as in a JSON column of Parquet."""
    return list(dicts([parsed(item) for item in as_list(parsed(value))]))


def arguments_of(value: Any) -> Any:
    """Return a call's arguments as an object if they are one, else the raw text that the model wrote."""
    if value is None:
        return {}
    arguments = parsed(value)
    if not isinstance(arguments, dict):
        return value if isinstance(value, str) else shallow_text(value)
    return shallow(arguments)


def shallow(value: Any) -> Any:
    """Return the value, or its JSON text if it is nested deeper than MAX_DEPTH."""
    return value if is_within(value, MAX_DEPTH) else shallow_text(value)


def shallow_text(value: Any) -> str:
    """Return the JSON text of a value."""
    try:
        return canonical_json(value)
    except RecursionError:
        return "[nested too deeply]"


def is_within(value: Any, depth: int) -> bool:
    """Return whether a value is nested at most this deep."""
    if not isinstance(value, (dict, list)):
        return True
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)) and not (depth > 1 and is_within(item, depth - 1)):
            return False
    return True


def content_text(content: Any) -> str:
    """Return the text of a message's content: a string, or parts in the OpenAI, Anthropic or Gemini shape."""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return as_text(content)
    return joined(map(_part_text, content))


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return as_text(part)
    if part.get("type") in ("image", "image_url", "input_image") or "inlineData" in part:
        return IMAGE
    return as_text(part.get("text"))


def chat_calls(value: Any) -> tuple[ToolCall, ...]:
    """Return the calls of a message in the OpenAI shape, without those that name no function."""
    return tuple(call for item in dicts(value) if (call := _chat_call(item)))


def _chat_call(item: dict[str, Any]) -> ToolCall | None:
    function = as_dict(item.get("function"))
    name = as_text(function.get("name")) or as_text(item.get("name"))
    arguments = function.get("arguments", item.get("arguments"))
    return ToolCall(name, arguments_of(arguments), as_text(item.get("id"))) if name else None
