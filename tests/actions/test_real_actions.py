"""Real calls of real sessions are understood, and only remarks and spellings are lost in their form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.actions.forms import ActionContext, normalize
from composer_hub.actions.tools import TOOLS, kind_of
from composer_hub.records import Message, ToolCall


def calls_in(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the calls of the Claude Code, Pi and Codex files, read without any of our readers."""
    for path in sorted(folder.glob("claude_code/*.jsonl")) + sorted(folder.glob("pi/*.jsonl")):
        for line in path.read_text(errors="replace").splitlines():
            content = (json.loads(line).get("message") or {}).get("content") or []
            for block in content if isinstance(content, list) else ():
                if block.get("type") in ("tool_use", "toolCall"):
                    yield block["name"], block.get("input") or block.get("arguments")
    for path in sorted(folder.glob("codex/*.jsonl")):
        for line in path.read_text(errors="replace").splitlines():
            payload = json.loads(line).get("payload") or {}
            if payload.get("type") in ("function_call", "custom_tool_call"):
                yield payload["name"], payload.get("arguments") or payload.get("input")


def form_of(name: str, arguments: Any) -> Any:
    context = ActionContext(cwd="/repo", shell_cwd="/repo")
    return normalize(Message("assistant", "", (ToolCall(name, arguments),)), context)


def test_real_calls_are_understood(samples: Path) -> None:
    calls = list(calls_in(samples))
    assert len(calls) > 300
    known = [(name, arguments) for name, arguments in calls if kind_of(name, {}) in {tool.kind for tool in TOOLS}]
    assert len(known) > 0.95 * len(calls)
    values = [json.loads(form_of(name, arguments).text)[0] for name, arguments in known]
    assert sum("tool" in value for value in values) < 0.02 * len(known)
    shells = [value["shell"] for value in values if "shell" in value]
    assert sum("text" in value for value in shells) < 0.1 * len(shells)


def test_real_commands_that_differ_in_more_than_spacing_keep_different_forms(samples: Path) -> None:
    commands = {
        arguments["command"].replace("\\\n", " ") for name, arguments in calls_in(samples) if name in ("Bash", "bash")
    }
    apart = {" ".join(command.split()) for command in commands}
    forms = {form_of("Bash", {"command": command}).text for command in commands}
    assert len(forms) >= len(apart) - 3
