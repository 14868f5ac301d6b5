"""The arguments of a call as its schema means them, and whether they fit it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from composer_hub.records import ToolCall, canonical_json, clean


def parsed_arguments(call: ToolCall) -> dict[str, Any] | None:
    """Return a call's arguments as an object; None if they are not one."""
    arguments = call.arguments
    if isinstance(arguments, str):
        if call.name.lower() in ("apply_patch", "applypatch") and arguments.lstrip().startswith("*** Begin Patch"):
            return {"input": arguments}
        try:
            arguments = clean(json.loads(arguments or "{}"))
        except (ValueError, RecursionError):
            return None
    return {} if arguments is None else arguments if isinstance(arguments, dict) else None


def stated_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Type the arguments and drop those that are None or equal to the schema's default."""
    properties = schema.get("properties") or {}
    stated: dict[str, Any] = {}
    for name, value in arguments.items():
        about = properties.get(name)
        about = about if isinstance(about, Mapping) else {}
        value = typed(value, about)
        if value is not None and not ("default" in about and canonical_json(about["default"]) == canonical_json(value)):
            stated[name] = value
    return stated


def misfit_of(
    calls: Sequence[ToolCall], arguments: Sequence[dict[str, Any] | None], tools: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return why calls cannot be compared, "" if they can: a tool that is not offered, or arguments that misfit."""
    if tools and any(call.name not in tools for call in calls):
        return "unknown_tool"
    pairs = zip(calls, arguments, strict=True)
    if any(args is None or _misfits(args, tools.get(call.name, {})) for call, args in pairs):
        return "invalid_args"
    return ""


def _misfits(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Return whether a required argument is missing or one has a plainly wrong type."""
    if any(name not in arguments for name in schema.get("required") or ()):
        return True
    properties = schema.get("properties") or {}
    return any(
        value is not None and not fits(value, properties[name])
        for name, value in arguments.items()
        if isinstance(properties.get(name), Mapping)
    )


TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a value has, or can be typed to, the type of its schema."""
    kind, value = schema.get("type"), typed(value, schema)
    if not isinstance(kind, str) or kind not in TYPES:
        return True
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value in the type of its schema: "true" as true, "5" and 5.0 as 5, "2.5" as 2.5."""
    kind = schema.get("type")
    if isinstance(value, str) and kind == "boolean" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, str) and kind in ("integer", "number") and re.fullmatch(r"-?\d{1,15}(\.\d{1,9})?", value):
        value = float(value)
    return _number(value)


def _number(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_number(one) for one in value]
    return {name: _number(one) for name, one in value.items()} if isinstance(value, dict) else value
