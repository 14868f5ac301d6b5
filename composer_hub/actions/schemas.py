"""Schemas of tools that a session does not record: from the calls that were made, or from a line of notation.

`inferred` makes the schema of one tool from the arguments of its calls. `parse_tool` reads a line such as
`Read(file_path: string, limit?: integer, mode?: "a" | "b", edits?: {old: string}[]) -- Read a file.`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from composer_hub.actions.arguments import TYPES, fits

SYNTHESIZED = "x-synthesized"
"""A key of schemas that were made from calls, so that no reader takes them for the harness's own."""
MIN_CALLS = 3  # that all have an argument, before it counts as required
MIN_ENUM_CALLS = 12
MAX_ENUM = 4

_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_WORD = re.compile(r"[A-Za-z][a-z_-]{1,30}")


def inferred(calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema that the arguments of some calls of one tool show: types, required arguments and enums.

    An argument whose value is null counts as left out.
    """
    names = sorted({name for arguments in calls for name in arguments})
    values = {name: _given(name, calls) for name in names}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: _shape(values[name]) for name in names},
        "additionalProperties": True,
        SYNTHESIZED: True,
    }
    always = [name for name in names if len(values[name]) == len(calls)]
    if always and len(calls) >= MIN_CALLS:
        schema["required"] = always
    return schema


def _given(name: str, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [arguments[name] for arguments in calls if arguments.get(name) is not None]


def _shape(values: Sequence[Any]) -> dict[str, Any]:
    types = {_TYPES[type(value)] for value in values if type(value) in _TYPES}
    if types == {"integer", "number"}:
        types = {"number"}
    if len(types) != 1:
        return {}
    (kind,) = types
    shape: dict[str, Any] = {"type": kind}
    if kind == "array":
        items = _shape([item for value in values if isinstance(value, list) for item in value])
        shape |= {"items": items} if items else {}
    elif kind == "string" and (words := _enum(values)):
        shape["enum"] = words
    return shape


def _enum(values: Sequence[Any]) -> list[str]:
    """Return the words that an argument takes its value from, or none if its values may be free text."""
    words = sorted({value for value in values if isinstance(value, str)})
    few = len(words) <= MAX_ENUM and len(values) >= MIN_ENUM_CALLS
    repeated = all(sum(value == word for value in values) > 1 for word in words)
    return words if few and len(words) > 1 and repeated and all(map(_WORD.fullmatch, words)) else []


def agreeing(schema: Mapping[str, Any], calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a shipped schema as far as the calls that worked agree with it, since harnesses change their tools.

    An argument that it lacks, or whose values it does not allow, is described by the calls. One that a call left out
    is not required.
    """
    properties = dict(schema.get("properties", {}))
    for name, shape in inferred(calls)["properties"].items():
        known, values = properties.get(name), _given(name, calls)
        if known is None or not all(fits(value, known) and value in known.get("enum", [value]) for value in values):
            properties[name] = shape
    required = [name for name in schema.get("required", ()) if len(_given(name, calls)) == len(calls)]
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


# --------------------------------------------------------------------------------------------------------- notation

_TOKEN = re.compile(r'\s*(?:(?P<quoted>"[^"]*")|(?P<word>[\w.$-]+)|(?P<mark>\[\]|[(){}:,?|])|(?P<end>$))')


class _Reader:
    """The tokens of a line, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        return match.group().strip() if match else ""

    def take(self, *wanted: str) -> str:
        """Read one of some marks, or of some kinds of tokens."""
        match = _TOKEN.match(self.text, self.at)
        if match is None or not {match.group().strip(), match.lastgroup}.intersection(wanted):
            raise ValueError(f"expected {' or '.join(wanted)} at {self.text[self.at :]!r}")
        self.at = match.end()
        return match.group().strip()

    def fields(self, end: str) -> dict[str, Any]:
        """Read `name: type, name?: type` up to a closing mark."""
        properties: dict[str, Any] = {}
        required: list[str] = []
        while self.peek() != end:
            name = self.take("word")
            if self.peek() == "?":
                self.take("?")
            else:
                required.append(name)
            self.take(":")
            properties[name] = self.shape()
            if self.peek() != end:
                self.take(",")
        self.take(end)
        return {"type": "object", "properties": properties, **({"required": required} if required else {})}

    def shape(self) -> dict[str, Any]:
        first = self.take("{", "quoted", "any", *TYPES)
        if first == "{":
            shape = self.fields("}")
        elif first.startswith('"'):
            words = [first[1:-1]]
            while self.peek() == "|":
                self.take("|")
                words.append(self.take("quoted")[1:-1])
            shape = {"type": "string", "enum": words}
        else:
            shape = {} if first == "any" else {"type": first}
        while self.peek() == "[]":
            self.take("[]")
            shape = {"type": "array", "items": shape}
        return shape


def parse_tool(line: str) -> tuple[str, str, dict[str, Any]]:
    """Return the name, the description and the schema of a line of notation; raise ValueError if it is broken."""
    signature, _, description = line.partition(" -- ")
    reader = _Reader(signature)
    name = reader.take("word")
    reader.take("(")
    schema = reader.fields(")")
    reader.take("end")
    return name, description.strip(), schema
