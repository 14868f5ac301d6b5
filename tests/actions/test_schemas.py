"""Schemas of tools that no session recorded: the notation, what calls show, and where the two disagree."""

from __future__ import annotations

import pytest

from composer_hub.actions.schemas import SYNTHESIZED, agreeing, inferred, parse_tool
from composer_hub.harnesses import HARNESSES
from composer_hub.ingest.tools import shipped, tools_of_calls
from composer_hub.records import Message, ToolCall
from composer_hub.session import ResultFlag


def test_a_line_of_notation_is_a_schema():
    name, about, schema = parse_tool(
        'Edit(-n?: boolean, mode: "a" | "b-c", edits?: {old: string, all?: any}[]) -- Change.'
    )
    assert (name, about) == ("Edit", "Change.")
    items = {"type": "object", "properties": {"old": {"type": "string"}, "all": {}}, "required": ["old"]}
    assert schema == {
        "type": "object",
        "properties": {
            "-n": {"type": "boolean"},
            "mode": {"type": "string", "enum": ["a", "b-c"]},
            "edits": {"type": "array", "items": items},
        },
        "required": ["mode"],
    }
    assert parse_tool("List()")[2] == {"type": "object", "properties": {}}
    for broken in ("", "Edit", "Edit(a)", "Edit(a: string", "Edit(a string)", 'R(m: "a" | b)', "R() x", "R(a: strin)"):
        with pytest.raises(ValueError, match="expected"):
            parse_tool(broken)


def test_every_shipped_tool_can_be_read_and_belongs_to_a_harness():
    names = [harness.name for harness in HARNESSES if shipped(harness.name)]
    assert "claude_code" in names
    assert "codex" in names
    assert not shipped("of_tomorrow")
    for name in names:
        assert all(about and schema["type"] == "object" for about, schema in shipped(name).values())


def test_calls_show_types_required_arguments_and_words_of_a_set():
    modes = ["count", "content", "files"] * 5
    calls = [
        {"pattern": f"p{n}", "mode": mode, "head": n, "rate": n / 2 if n % 2 else n} for n, mode in enumerate(modes)
    ]
    del calls[3]["head"]
    schema = inferred(calls)
    assert schema["required"] == ["mode", "pattern", "rate"]
    assert schema["properties"] == {
        "head": {"type": "integer"},
        "mode": {"type": "string", "enum": ["content", "count", "files"]},
        "pattern": {"type": "string"},
        "rate": {"type": "number"},
    }
    assert schema[SYNTHESIZED]
    assert "required" not in inferred(calls[:2])
    assert inferred([{"a": None}, {"a": "x"}, {"a": "x", "b": None}])["properties"] == {
        "a": {"type": "string"},
        "b": {},
    }
    assert "required" not in inferred([{"a": None}, {"a": "x"}, {"a": "x"}])
    assert inferred([{"a": 1}, {"a": "x"}, {"a": None}])["properties"] == {"a": {}}
    assert "enum" not in inferred([{"path": path} for path in ("src/a", "src/b") * 9])["properties"]["path"]


def test_a_shipped_schema_follows_the_calls_that_worked():
    _, _, schema = parse_tool('Find(pattern: string, kind?: "a" | "b", old: string)')
    merged = agreeing(schema, [{"pattern": "x", "kind": "c", "new": True}])
    assert merged["required"] == ["pattern"]
    assert merged["properties"]["kind"] == {"type": "string"}
    assert merged["properties"]["new"] == {"type": "boolean"}
    assert agreeing(schema, []) == schema
    assert agreeing({"type": "object", "required": ["a"]}, [{"a": 1}])["required"] == ["a"]
    _, _, schema = parse_tool("Wait(seconds: integer, note?: string)")
    assert agreeing(schema, [{"seconds": "5"}, {"seconds": None, "note": ["x"]}]) == {
        "type": "object",
        "properties": {"seconds": {"type": "integer"}, "note": {"type": "array", "items": {"type": "string"}}},
    }


def test_failed_calls_show_no_arguments_and_the_source_is_named():
    calls = (ToolCall("Read", {"file": "x"}, "1"), ToolCall("mcp__x__look", {"at": 3}, "2"), ToolCall("Guess", {}, "3"))
    pool = (Message("assistant", "", calls), Message("tool", "wrong", tool_call_id="1"))
    tools, source = tools_of_calls("claude_code", pool, {1: ResultFlag(is_error=True)}, ["Grep", "Read"])
    about = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    assert source == "known"
    assert list(about) == ["Read", "mcp__x__look", "Guess", "Grep"]
    assert "file" not in about["Read"]["properties"]
    assert about["mcp__x__look"]["properties"] == {"at": {"type": "integer"}}
    assert about["Grep"]["required"] == ["pattern"]
    assert tools_of_calls("swe_agent", pool, {})[1] == "seen"
