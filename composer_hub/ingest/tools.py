"""The tools of a trace: recorded schemas as they are, else shipped ones for a harness's own tools, else from calls."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from composer_hub.actions.schemas import agreeing, inferred, parse_tool
from composer_hub.records import Message
from composer_hub.session import ResultFlag

Schema = dict[str, Any]


@functools.cache
def shipped(harness: str) -> Mapping[str, tuple[str, Schema]]:
    """Return the tools of a harness that the package knows: name -> description and schema."""
    known: dict[str, tuple[str, Schema]] = {}
    section = ""
    for line in (files("composer_hub") / "ingest/data/tools.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif section == harness and line and not line.startswith("#"):
            name, description, schema = parse_tool(line)
            known[name] = description, schema
    return known


def tools_of_calls(
    harness: str, pool: Sequence[Message], flags: Mapping[int, ResultFlag], more: Iterable[str] = ()
) -> tuple[tuple[Schema, ...], str]:
    """Return the tools that were called, then `more` by name, and the source of their schemas: known or seen.

    Arguments are taken from calls that no flag marks as failed, since a wrong call shows wrong ones.
    """
    failed = {pool[index].tool_call_id for index, flag in flags.items() if flag.is_error and pool[index].role == "tool"}
    worked: dict[str, list[Mapping[str, Any]]] = {}
    for call in (call for message in pool for call in message.tool_calls if call.name):
        calls = worked.setdefault(call.name, [])
        if call.call_id not in failed and isinstance(call.arguments, dict):
            calls.append(call.arguments)
    names = dict.fromkeys([*worked, *filter(None, more)])
    known = shipped(harness)
    source = "known" if any(name in known for name in names) else "seen"
    return tuple(_tool(name, known.get(name), worked.get(name, [])) for name in names), source


def _tool(name: str, known: tuple[str, Schema] | None, calls: Sequence[Mapping[str, Any]]) -> Schema:
    if known is not None:
        return tool_schema(name, known[0], agreeing(known[1], calls))
    return tool_schema(name, "", inferred(calls))


def tool_schema(name: str, description: str = "", parameters: Mapping[str, Any] | None = None) -> Schema:
    """Return a tool as chat templates take it."""
    schema = dict(parameters) if parameters else {"type": "object", "properties": {}}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
