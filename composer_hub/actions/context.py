"""The state before each step of a trace: the directory of the shell and the texts of files, as far as they are certain.

After a command that may write, every file is unknown. After a `cd`, the directory of a lasting shell is unknown. A
session that records no directory often names it, or names one file both ways: `/repo/src/a.py` and `src/a.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from composer_hub.actions.arguments import parsed_arguments
from composer_hub.actions.call_forms import ActionContext, replacements
from composer_hub.actions.calls import path_of
from composer_hub.actions.edits import inserted, replaced
from composer_hub.actions.paths import normal_path, tidy
from composer_hub.actions.scripts import calls_in
from composer_hub.actions.shell_form import argv_text, shell_form
from composer_hub.actions.tools import kind_of, known_tool, tool_named
from composer_hub.harnesses import keeps_cwd
from composer_hub.records import Message, Step, ToolCall, Trace

_HARMLESS = frozenset(("read", "web", "bookkeeping"))  # families that leave every file as it was
_FILE_KINDS = frozenset(("read", "write", "edit", "insert", "patch"))
_NUMBERED = re.compile(r" *(\d+)[→\t](.*)")
_STATED_CWD = re.compile(
    r"(?i)\b(?:(?:working|current|project|root) directory|cwd|workspace(?: folder)?)\b[^\n/\w]{0,8}"
    r"(?:(?:is|set to|at|path)\b[^\n/\w]{0,8})?(/[\w.+@-]+(?:/[\w.+@-]+)*)"
)
_ENTRY = re.compile(r"\s*cd +(['\"]?)(/[^\s;&|'\"]+)\1 *(?:&&|;|\n|$)")
_MAX_LINES = 2000
_MAX_LINE = 2000


def contexts(trace: Trace) -> Iterator[tuple[Step, ActionContext]]:
    """Yield every step with the context of its action, in the order of the trace."""
    trace = trace if trace.cwd else replace(trace, cwd=inferred_cwd(trace))
    schemas = tool_schemas(trace)
    failed = {site.call_id for step in trace.steps for site in step.error_sites if site.call_id}
    read: list[int] = []
    history = _StateBefore(trace)
    for step in trace.steps:
        indices = [index for start, stop in step.prompt for index in range(start, stop)]
        if indices[: len(read)] != read:
            read, history = [], _StateBefore(trace)
        for index in indices[len(read) :]:
            history.see(trace.messages[index], failed)
        read = indices
        yield step, history.context(schemas)


def inferred_cwd(trace: Trace) -> str:
    """Return the directory that a session works in, by its own words or its paths; "" if they do not settle it."""
    opening = itertools.takewhile(lambda message: message.role in ("system", "user"), trace.messages)
    stated = {match[1].rstrip("/.") for message in opening for match in _STATED_CWD.finditer(message.content)}
    if stated:
        return stated.pop() if len(stated) == 1 else ""
    calls = (call for message in trace.messages for call in message.tool_calls)
    paths = {tidy(path) for call in calls if kind_of(call.name, {}) != "shell" and (path := path_of(call))}
    inside = [path for path in paths if "/" in path and not path.startswith(("/", "~", "."))]
    folders = {path.removesuffix(f"/{end}") for path in paths for end in inside if path.endswith(f"/{end}")}
    absolute = {folder for folder in folders if folder.startswith("/")}
    return absolute.pop() if len(absolute) == 1 else "" if absolute else _entered(trace, paths)


def _entered(trace: Trace, paths: Collection[str]) -> str:
    """Return the one directory that the commands of a session begin by entering; "" if there are others."""
    calls = (call for message in trace.messages for call in message.tool_calls)
    known = [found for call in calls if (found := known_tool(call.name, parsed_arguments(call) or {}))]
    starts = []
    for tool, own in known:
        command = own.get("command")
        command = (
            argv_text(command) if isinstance(command, list) and all(isinstance(w, str) for w in command) else command
        )
        if tool.kind == "shell" and isinstance(command, str):
            entry = _ENTRY.match(command)
            starts.append(str(own.get("cwd") or (entry and entry[2]) or "").rstrip("/"))
    folders = {start for start in starts if start.startswith("/")}
    if len(folders) != 1:
        return ""
    folder = folders.pop()
    absolute = [path for path in paths if path.startswith("/")]
    num_inside = sum(f"{path}/".startswith(f"{folder}/") for path in absolute)
    return folder if 2 * num_inside > len(absolute) or (not absolute and starts.count(folder) > 1) else ""


def tool_schemas(trace: Trace) -> dict[str, Mapping[str, Any]]:
    """Return the argument schema of each tool that the trace lists; empty if only the name is known."""
    listed = (tool.get("function", tool) for tool in trace.tools)
    return {
        tool["name"]: tool.get("parameters") or tool.get("input_schema") or {} for tool in listed if tool.get("name")
    }


@dataclass
class _StateBefore:
    """The state after the messages read so far."""

    trace: Trace
    files: dict[str, str] = field(default_factory=dict)
    asked: dict[str, ToolCall] = field(default_factory=dict)  # calls still without a result
    moved: bool = False

    def context(self, schemas: Mapping[str, Mapping[str, Any]]) -> ActionContext:
        lasting = keeps_cwd(self.trace.source)
        shell_cwd = "" if self.moved and lasting else self.trace.cwd
        return ActionContext(self.trace.cwd, shell_cwd, lasting, schemas, dict(self.files))

    def see(self, message: Message, failed: set[str]) -> None:
        if message.role == "user":
            # People edit files between two turns.
            self.files.clear()
        for call in message.tool_calls:
            for inner in (made := calls_in(call)):
                self._ask(inner)
            if made != (call,):
                # Its result is what the script prints, and no text of a file.
                self.asked[call.call_id] = call
                if any(kind_of(one.name, {}) in _FILE_KINDS - {"read"} for one in made):
                    self.files.clear()
        if message.role == "tool":
            if message.tool_call_id not in self.asked:
                self.files.clear()
            elif message.tool_call_id not in failed:
                self._answered(self.asked[message.tool_call_id], message.content)

    def _ask(self, call: ToolCall) -> None:
        arguments = parsed_arguments(call) or {}
        kind = kind_of(call.name, arguments)
        if kind == "shell":
            self._ran(call, arguments)
        elif kind not in _FILE_KINDS:
            tool = tool_named(call.name)
            if tool is None or tool.family not in _HARMLESS:
                self.files.clear()
        self.asked[call.call_id] = call

    def _ran(self, call: ToolCall, arguments: Mapping[str, Any]) -> None:
        known = known_tool(call.name, arguments)
        command = known[1]["command"] if known else None
        if isinstance(command, list) and all(isinstance(word, str) for word in command):
            command = argv_text(command)
        if not isinstance(command, str):
            self.files.clear()
            self.moved = True
            return
        form = shell_form(command, base=self.trace.cwd, cwd="" if self.moved else self.trace.cwd)
        self.moved |= form.moves
        if not form.read_only:
            self.files.clear()

    def _answered(self, call: ToolCall, result: str) -> None:
        """Update the text of a file after a successful read, write or edit."""
        arguments = parsed_arguments(call) or {}
        known = known_tool(call.name, arguments)
        kind = known[0].kind if known else ""
        if not known or kind not in _FILE_KINDS:
            if kind_of(call.name, arguments) in _FILE_KINDS - {"read"}:
                self.files.clear()
            return
        if kind == "patch":
            self.files.clear()
            return
        path = normal_path(known[1]["path"], base=self.trace.cwd) if isinstance(known[1]["path"], str) else None
        if path is None:
            return
        text = self._text_after(kind, known[1], path, result)
        if text is not None:
            self.files[path] = text
        elif kind != "read":
            self.files.pop(path, None)

    def _text_after(self, kind: str, own: Mapping[str, Any], path: str, result: str) -> str | None:
        if kind == "read":
            return whole_file(result) if set(own) == {"path"} else None
        if kind == "write":
            return own["content"] if isinstance(own["content"], str) else None
        before = self.files.get(path)
        if before is None:
            return None
        if kind == "insert":
            return inserted(before, own["line"], own["new"]) if isinstance(own["new"], str) else None
        edits = replacements(own)
        return replaced(before, edits) if edits else None


def whole_file(result: str) -> str | None:
    """Return the text of a numbered listing; None unless it is plainly the whole file."""
    lines = result.split("\n\n<system-reminder>")[0].rstrip("\n").split("\n")
    numbered = [_NUMBERED.fullmatch(line) for line in lines]
    if len(lines) >= _MAX_LINES or any(match is None for match in numbered):
        return None
    matches = [match for match in numbered if match]
    if any(int(match[1]) != number or len(match[2]) >= _MAX_LINE for number, match in enumerate(matches, start=1)):
        return None
    return "".join(f"{match[2]}\n" for match in matches)
