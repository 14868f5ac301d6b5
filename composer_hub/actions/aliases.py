"""Which tools of which harness are one tool: a call's name and arguments -> a kind of tool and its canonical arguments.

A call counts as a known tool only if its name is one of the kind's, every argument it carries is known, and the needed
ones are there. Anything else is a tool of its own, compared argument by argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """A kind of tool that many harnesses have under their own names."""

    kind: str
    names: frozenset[str]
    arguments: Mapping[str, str]  # an argument's name in some harness -> its canonical name
    needed: frozenset[str]
    ignored: frozenset[str] = frozenset()  # what does not change the effect
    defaults: Mapping[str, Any] = field(default_factory=dict)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _arguments(**spellings: str) -> dict[str, str]:
    return {name: canonical for canonical, names in spellings.items() for name in (canonical, *names.split())}


# Said about a call, or how long to wait for it and how much of its output to show: not what it does.
_REMARKS = _names("description summary justification explanation security_risk thought reason toolSummary")
_PATIENCE = _names("timeout timeout_ms timeoutMs yield_time_ms max_output_tokens timeout_seconds")
_PATH = "file_path filePath path absolute_path target_file filename file"

TOOLS: tuple[Tool, ...] = (
    Tool(
        "shell",
        _names(
            "bash shell local_shell shell_command execute_bash exec_command exec run_shell_command run_command "
            "run_terminal_cmd run_terminal_command run_in_terminal execute_command terminal container.exec"
        ),
        _arguments(
            command="cmd CommandLine script",
            cwd="workdir working_directory directory dir_path Cwd",
            background="run_in_background is_background isBackground",
            is_input="",
            shell="",
            login="",
            tty="",
            sandbox="dangerouslyDisableSandbox sandbox_permissions with_escalated_permissions",
        ),
        needed=_names("command"),
        ignored=_REMARKS | _PATIENCE,
        # The harnesses spell a missing flag as false or as text; a sandbox switch that is on stays.
        defaults={"background": False, "is_input": False, "sandbox": False},
    ),
    Tool(
        "read",
        _names("read read_file readfile view view_file open_file cat_file"),
        _arguments(path=_PATH, offset="", limit="", view_range="", start_line="", end_line="", pages=""),
        needed=_names("path"),
        ignored=_REMARKS,
    ),
    Tool(
        "write",
        _names("write write_file writefile create create_file write_to_file"),
        _arguments(path=_PATH, content="file_text contents text"),
        needed=_names("path content"),
        ignored=_REMARKS,
    ),
    Tool(
        "edit",
        _names("edit edit_file str_replace replace search_replace multiedit multi_edit replace_in_file string_replace"),
        _arguments(
            path=_PATH,
            old="old_string old_str oldText old_text oldString",
            new="new_string new_str newText new_text newString",
            replace_all="replaceAll allow_multiple",
            edits="",
            expected_replacements="",
        ),
        needed=_names("path"),
        ignored=_REMARKS | _names("instruction"),
        defaults={"replace_all": False, "expected_replacements": 1},
    ),
    Tool(
        "insert",
        _names("insert"),
        _arguments(path=_PATH, line="insert_line", new="new_str"),
        needed=_names("path line new"),
        ignored=_REMARKS,
    ),
    Tool(
        "patch",
        _names("apply_patch applypatch"),
        _arguments(patch="input patch_text patchText"),
        needed=_names("patch"),
        ignored=_REMARKS,
    ),
    Tool(
        "search",
        _names("grep grep_search search_file_content search_files ripgrep search_content"),
        _arguments(
            pattern="regex query",
            path="paths directory dir_path DirectoryPath",
            glob="include file_pattern include_pattern",
            type="",
            output_mode="",
            ignore_case="-i ignoreCase case_insensitive",
            multiline="",
            literal="fixed_strings",
        ),
        needed=_names("pattern"),
        # How much is shown around a hit, not what is searched.
        ignored=_REMARKS | _names("-n -A -B -C context head_limit limit offset -o"),
        defaults={"ignore_case": False, "multiline": False, "literal": False, "output_mode": "files_with_matches"},
    ),
    Tool(
        "glob",
        _names("glob find find_files find_by_name file_search glob_search"),
        _arguments(pattern="Pattern", path="directory dir_path SearchDirectory"),
        needed=_names("pattern"),
        ignored=_REMARKS | _names("limit"),
    ),
    Tool(
        "list",
        _names("ls list list_dir list_directory list_files"),
        _arguments(path="dir_path directory target_directory relative_workspace_path", ignore="", recursive=""),
        needed=frozenset(),
        ignored=_REMARKS | _names("limit"),
        defaults={"recursive": False, "ignore": []},
    ),
)
_BY_NAME = {name: tool for tool in TOOLS for name in tool.names}

_EDITOR_NAMES = _names("str_replace_editor str_replace_based_edit_tool text_editor file_editor")
_EDITOR_COMMANDS = {"view": "read", "create": "write", "str_replace": "edit", "insert": "insert"}
_EDITOR_ARGUMENTS = {
    "view": _names("path view_range"),
    "create": _names("path file_text"),
    "str_replace": _names("path old_str new_str"),
    "insert": _names("path insert_line new_str"),
}


def known_tool(name: str, arguments: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
    """Return the tool a call means and its canonical arguments; None where any part of the call is not known."""
    name = name.lower()
    if name in _EDITOR_NAMES:
        return _editor(arguments)
    tool = _BY_NAME.get(name)
    return _canonical(tool, arguments) if tool else None


def kind_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the kind a tool's name stands for, whatever its arguments, else the name itself."""
    if name.lower() in _EDITOR_NAMES:
        return _EDITOR_COMMANDS.get(str(arguments.get("command")), name)
    tool = _BY_NAME.get(name.lower())
    return tool.kind if tool else name


def _editor(arguments: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
    """Read the editor tool whose `command` says which act it is; its leftover arguments are empty or None."""
    command = arguments.get("command")
    if not isinstance(command, str) or command not in _EDITOR_COMMANDS:
        return None
    own = {name: value for name, value in arguments.items() if name != "command" and value is not None}
    if set(own) - _EDITOR_ARGUMENTS[command] - _REMARKS:
        return None
    tool = next(tool for tool in TOOLS if tool.kind == _EDITOR_COMMANDS[command])
    if command == "str_replace":
        # Left out, `new_str` deletes.
        own.setdefault("new_str", "")
    return _canonical(tool, own)


def _canonical(tool: Tool, arguments: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is None or name in tool.ignored:
            continue
        canonical = tool.arguments.get(name)
        if canonical is None or canonical in found:
            return None
        value = _flag(value) if isinstance(tool.defaults.get(canonical), bool) else value
        if canonical not in tool.defaults or value != tool.defaults[canonical]:
            found[canonical] = value
    return (tool, found) if tool.needed <= set(found) else None


def _flag(value: Any) -> Any:
    """Return a flag that a harness passes as text, such as OpenHands' `is_input`, as the flag it is."""
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
