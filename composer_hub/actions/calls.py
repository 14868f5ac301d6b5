"""The subject of a tool call, whichever harness wrote it: the path it is about, the shell text it runs.

In: a `ToolCall`, or a message that spells one out (`call_in_text`). Odd arguments never fail: the result is then "".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from composer_hub.actions.tools import is_script
from composer_hub.records import ToolCall

PATH_KEYS = (
    "file_path", "filePath", "path", "filename", "notebook_path", "target_file", "absolute_path", "file", "dir_path",
)  # fmt: skip
CWD_KEYS = ("workdir", "cwd", "working_directory", "directory", "dir_path", "Cwd", "cd")
COMMAND_KEYS = ("command", "cmd", "commands", "script", "code", "input")

MAX_PATCH_CHARS = 20_000
_PATCH_FILE = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (\S[^\n]{0,400})$", re.MULTILINE)


def path_of(call: ToolCall) -> str:
    """Return the path that a call is about, "" if it names none."""
    return next(_named_paths(call), "")


def paths_of(call: ToolCall) -> tuple[str, ...]:
    """Return every path that a call is about: a patch may name many."""
    return tuple(dict.fromkeys(_named_paths(call)))


def _named_paths(call: ToolCall) -> Iterator[str]:
    arguments = call.arguments
    if isinstance(arguments, Mapping):
        named = (arguments[key] for key in PATH_KEYS if isinstance(arguments.get(key), str))
        if path := next(named, ""):
            yield path
            return
    for patch in _PATCH_FILE.finditer(_text_of(arguments)[:MAX_PATCH_CHARS]):
        yield patch[1].strip()


def cwd_of(call: ToolCall) -> str:
    """Return the directory that a shell call names for its command, "" if it names none."""
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    return next((arguments[key] for key in CWD_KEYS if isinstance(arguments.get(key), str)), "")


def command_of(call: ToolCall) -> str:
    """Return the shell text that a call runs, "" if there is none."""
    arguments = call.arguments
    if isinstance(arguments, str):
        return arguments
    if not isinstance(arguments, Mapping) or is_script(call.name, arguments):
        return ""
    value = next((arguments[key] for key in COMMAND_KEYS if arguments.get(key)), "")
    if isinstance(value, list):
        words = [str(word) for word in value]
        # Codex spells a shell line as ["bash", "-lc", "…"]; its last word is the text.
        return words[-1] if len(words) == 3 and words[1].startswith("-") else " ".join(words)
    return value if isinstance(value, str) else ""


def _text_of(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, Mapping):
        return "\n".join(value for value in arguments.values() if isinstance(value, str))
    return ""


# --------------------------------------------------------------------------------------------- calls written as text

_FUNCTION = re.compile(r"<function=([\w.-]{1,80})>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.-]{1,80})>(.*?)</parameter>", re.DOTALL)
_FENCED = re.compile(r"^```(?:[\w-]{0,40})[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_EDIT_BLOCK = re.compile(r"^(\S[^\n]{0,300})\n(?:```[^\n]*\n)?<{5,9} SEARCH$", re.MULTILINE)


def call_in_text(text: str) -> ToolCall:
    """Return the last call that a message of a text protocol spells out; one without a name if there is none."""
    if functions := _FUNCTION.findall(text):
        name, body = functions[-1]
        return ToolCall(name, dict(_PARAMETER.findall(body)))
    if block := _EDIT_BLOCK.search(text):
        return ToolCall("edit", {"path": block[1]})
    if fenced := _FENCED.findall(text):
        return ToolCall("bash", {"command": fenced[-1].strip()})
    return ToolCall("", None)
