"""One table of tools: a call's name and arguments, as any harness spells them -> what the tool does.

- `family_of_tool`: shell, edit, read, web, agent, ask, poll, bookkeeping, finish, script or other. Hints and error
  rules ask for this.
- `kind_of`: one kind of tool that many harnesses have (`read`, `search`, `patch`, …), else the name itself.
- `known_tool`: the kind with its canonical arguments, if every argument of the call is known. Normal forms are made of
  these; any other call is compared argument by argument.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """A kind of tool, with the names and arguments that harnesses give it."""

    family: str
    names: frozenset[str]  # lower case
    kind: str = ""  # "" if only the family is known
    arguments: Mapping[str, str] = field(default_factory=dict)  # a harness's argument -> its canonical name
    needed: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()  # arguments that do not change the effect
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fresh: frozenset[str] = frozenset()  # shells that start in the session's directory at each call
    creates: frozenset[str] = frozenset()  # tools that fail if the file exists


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _arguments(**spellings: str) -> dict[str, str]:
    return {name: canonical for canonical, names in spellings.items() for name in (canonical, *names.split())}


# Remarks about a call, how long to wait for it, and how much of its output to show do not change its effect.
_REMARKS = _names("description summary justification explanation security_risk thought reason toolSummary")
PATIENCE = _names("timeout timeout_ms timeoutMs yield_time_ms max_output_tokens timeout_seconds")
_PATH = "file_path filePath path absolute_path target_file filename file AbsolutePath TargetFile relative_path"

TOOLS: tuple[Tool, ...] = (
    Tool(
        "shell",
        _names(
            "bash shell local_shell shell_command execute_bash exec_command exec run_shell_command run_command "
            "run_terminal_cmd run_terminal_command run_in_terminal execute_command execute terminal container.exec"
        ),
        kind="shell",
        arguments=_arguments(
            command="cmd CommandLine script",
            cwd="workdir working_directory directory dir_path Cwd cd",
            background="run_in_background is_background isBackground",
            is_input="",
            shell="",
            login="",
            tty="",
            sandbox="dangerouslyDisableSandbox sandbox_permissions with_escalated_permissions",
        ),
        needed=_names("command"),
        ignored=_REMARKS
        | PATIENCE
        | _names("requires_approval Blocking SafeToAutoRun WaitMsBeforeAsync blocking riskLevel riskLevelReason goal"),
        # Harnesses spell a missing flag as false or as text; a sandbox switch that is on is kept.
        defaults={"background": False, "is_input": False, "sandbox": False},
        fresh=_names("exec_command shell shell_command local_shell run_shell_command"),
    ),
    Tool(
        "read",
        _names("read read_file readfile read_text_file view view_file open_file cat_file"),
        kind="read",
        arguments=_arguments(
            path=_PATH,
            offset="line_offset",
            limit="n_lines",
            view_range="line_range read_range",
            start_line="start_line_one_indexed start StartLine startLine line_start",
            end_line="end_line_one_indexed_inclusive end_line_one_indexed end EndLine endLine line_end",
            pages="",
        ),
        needed=_names("path"),
        ignored=_REMARKS | _names("should_read_entire_file show_line_numbers"),
    ),
    Tool(
        "edit",
        _names("write write_file writefile create create_file write_to_file"),
        kind="write",
        arguments=_arguments(path=_PATH, content="file_text contents text"),
        needed=_names("path content"),
        ignored=_REMARKS | _names("line_count overwrite"),
        creates=_names("create create_file str_replace_editor str_replace_based_edit_tool file_editor"),
    ),
    Tool(
        "edit",
        _names(
            "edit edit_file str_replace strreplace replace search_replace multiedit multi_edit replace_in_file "
            "string_replace replace_string_in_file apply_diff"
        ),
        kind="edit",
        arguments=_arguments(
            path=_PATH,
            old="old_string old_str oldText old_text oldString",
            new="new_string new_str newText new_text newString",
            replace_all="replaceAll allow_multiple change_all",
            edits="",
            diff="",
            expected_replacements="",
        ),
        needed=_names("path"),
        ignored=_REMARKS | _names("instruction"),
        defaults={"replace_all": False, "expected_replacements": 1},
    ),
    Tool(
        "edit",
        _names("insert"),
        kind="insert",
        arguments=_arguments(path=_PATH, line="insert_line", new="new_str"),
        needed=_names("path line new"),
        ignored=_REMARKS,
    ),
    Tool(
        "edit",
        _names("apply_patch applypatch"),
        kind="patch",
        arguments=_arguments(patch="input patch_text patchText"),
        needed=_names("patch"),
        ignored=_REMARKS,
    ),
    Tool(
        "read",
        _names("grep grep_search search_file_content search_files ripgrep search_content"),
        kind="search",
        arguments=_arguments(
            pattern="regex query",
            path="paths directory dir_path DirectoryPath",
            glob="include file_pattern include_pattern includePattern glob_pattern",
            type="",
            output_mode="",
            ignore_case="-i ignoreCase case_insensitive",
            multiline="",
            literal="fixed_strings",
            limit="head_limit",
            offset="",
            after="-A",
            before="-B",
            around="-C context",
        ),
        needed=_names("pattern"),
        ignored=_REMARKS | _names("-n -o"),
        defaults={
            "ignore_case": False,
            "multiline": False,
            "literal": False,
            "output_mode": "files_with_matches",
            "limit": 0,
            "offset": 0,
        },
    ),
    Tool(
        "read",
        _names("glob find find_files find_by_name file_search glob_search"),
        kind="glob",
        arguments=_arguments(pattern="Pattern glob_pattern", path="directory dir_path folder SearchDirectory"),
        needed=_names("pattern"),
        ignored=_REMARKS | _names("limit"),
    ),
    Tool(
        "read",
        _names("ls list list_dir list_directory list_files"),
        kind="list",
        arguments=_arguments(
            path="dir_path directory directory_path target_directory relative_workspace_path", ignore="", recursive=""
        ),
        ignored=_REMARKS | _names("limit"),
        defaults={"recursive": False, "ignore": []},
    ),
    Tool(
        "read",
        _names("read_many_files read_files"),
        kind="reads",
        arguments=_arguments(paths="files file_paths"),
        needed=_names("paths"),
        ignored=_REMARKS,
    ),
    Tool(
        "edit",
        _names("delete_file remove_file"),
        kind="delete",
        arguments=_arguments(path=_PATH),
        needed=_names("path"),
        ignored=_REMARKS,
    ),
    # From here on only the family is known.
    Tool(
        "shell",
        _names(
            "local_shell_call sh zsh powershell cmd unified_exec run run_ipython execute_ipython_cell ipython "
            "python code_interpreter mswea_bash_command bash_command developer__shell commandexecution local_bash"
        ),
    ),
    Tool(
        "edit",
        _names(
            "str_replace_editor str_replace_based_edit_tool text_editor file_editor notebookedit insert_edit_into_file "
            "edit_notebook append move_file undo_edit filechange patch insert_content_at_line "
            "edit_file_by_replace planning_file_editor"
        ),
    ),
    Tool(
        "read",
        _names(
            "open goto cat search_file search_dir find_file grep_files codebase_search semantic_search "
            "glob_file_search notebookread lsp view_image read_notebook list_code_definition_names read_mcp_resource "
            "list_mcp_resources readmcpresourcetool listmcpresourcestool think"
        ),
    ),
    Tool(
        "web",
        _names(
            "webfetch websearch web_fetch web_search google_web_search fetch fetch_webpage browse browse_interactive "
            "browser browser_use web_search_call url_fetch"
        ),
    ),
    Tool("agent", _names("task agent spawn_agent delegate skill activate_skill sendmessage workflow")),
    Tool(
        "ask",
        _names(
            "exitplanmode enterplanmode askuserquestion ask_user ask_followup_question request_user_input "
            "plan_mode_respond ask_questions"
        ),
    ),
    Tool(
        "poll",
        _names(
            "bashoutput taskoutput agentoutputtool write_stdin wait wait_agent killshell kill_bash taskstop sleep "
            "command_status monitor"
        ),
    ),
    Tool(
        "bookkeeping",
        _names(
            "todowrite todoread todo_write todo_read write_todos read_todos update_plan manage_todo_list "
            "update_todo_list taskcreate taskupdate tasklist taskget toolsearch tool_search report_intent set_title"
        ),
    ),
    Tool("finish", _names("submit finish exit attempt_completion complete_task exit_forfeit task_complete")),
)
_BY_NAME = {name: tool for tool in TOOLS for name in tool.names}
_BY_KIND = {tool.kind: tool for tool in TOOLS if tool.kind}

# One tool with several acts: its `command` argument names the act.
_EDITOR_NAMES = _names("str_replace_editor str_replace_based_edit_tool text_editor file_editor")
_EDITOR_COMMANDS = {"view": "read", "create": "write", "write": "write", "str_replace": "edit", "insert": "insert"}
_EDITOR_ARGUMENTS = {
    "view": _names("path view_range"),
    "create": _names("path file_text"),
    "write": _names("path file_text"),
    "str_replace": _names("path old_str new_str"),
    "insert": _names("path insert_line new_str"),
}
_VIEWS = _names("view read open")


_SPACES = (
    "functions.",
    "developer__",
    "default_api.",
    "default_api:",
    "functions::",
    "mcp__filesystem__",
    "filesystem.",
)
"""Namespaces that say nothing about a tool."""


def plain_name(name: str) -> str:
    """Return a tool's name in lower case, without a namespace that adds no meaning."""
    name = name.lower()
    return next((name[len(space) :] for space in _SPACES if name.startswith(space)), name)


def bare_name(name: str) -> str:
    """Return a tool's name in lower case, without the MCP server or namespace it came from, and without a version."""
    return re.sub(r"_v\d$", "", re.split(r"__|\.|/", name.casefold())[-1]) if name else ""


def is_script(name: str, arguments: Any) -> bool:
    """Return whether a call is a script of Codex's code mode, whose `exec` takes only a text as `input`."""
    return name == "exec" and isinstance(arguments, Mapping) and arguments.keys() == {"input"}


def family_of_tool(name: str, arguments: Any = None) -> str:
    """Return the family of a tool, by its name with or without a namespace; other if it is unknown."""
    if is_script(name, arguments):
        return "script"
    tool = _BY_NAME.get(name.casefold()) or _BY_NAME.get(bare_name(name))
    family = tool.family if tool else "other"
    if family == "edit" and isinstance(arguments, Mapping) and str(arguments.get("command")) in _VIEWS:
        return "read"
    return family


def kind_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the kind of tool that a name means, whatever the other arguments; the name itself if it is unknown."""
    if plain_name(name) in _EDITOR_NAMES:
        return _EDITOR_COMMANDS.get(str(arguments.get("command")), name)
    tool = _BY_NAME.get(plain_name(name))
    return (tool.kind if tool else "") or name


def tool_named(name: str) -> Tool | None:
    """Return the entry of exactly this name."""
    return _BY_NAME.get(name.lower())


def tool_of_kind(kind: str) -> Tool:
    """Return the entry of a kind."""
    return _BY_KIND[kind]


def known_tool(name: str, arguments: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
    """Return the tool that a call means with its canonical arguments; None if any part of the call is unknown."""
    name = plain_name(name)
    if name in _EDITOR_NAMES:
        return _editor(arguments)
    tool = _BY_NAME.get(name)
    return _canonical(tool, arguments) if tool and tool.kind else None


def _editor(arguments: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
    command = arguments.get("command")
    if not isinstance(command, str) or command not in _EDITOR_COMMANDS:
        return None
    # Arguments of the other acts are often sent along as None.
    own = {name: value for name, value in arguments.items() if name != "command" and value is not None}
    if set(own) - _EDITOR_ARGUMENTS[command] - _REMARKS:
        return None
    if command == "str_replace":
        own.setdefault("new_str", "")  # Without it the editor deletes.
    return _canonical(_BY_KIND[_EDITOR_COMMANDS[command]], own)


def _canonical(tool: Tool, arguments: Mapping[str, Any]) -> tuple[Tool, dict[str, Any]] | None:
    own: dict[str, Any] = {}
    for name, value in arguments.items():
        if value is None or name in tool.ignored:
            continue
        canonical = tool.arguments.get(name)
        if canonical is None or canonical in own:
            return None
        value = _flag(value) if isinstance(tool.defaults.get(canonical), bool) else value
        value = int(value) if canonical in _COUNTS and isinstance(value, str) and _WHOLE.fullmatch(value) else value
        if canonical not in tool.defaults or value != tool.defaults[canonical]:
            own[canonical] = value
    return (tool, own) if tool.needed <= set(own) else None


_COUNTS = _names("offset limit start_line end_line line after before around expected_replacements")
_WHOLE = re.compile(r"-?\d{1,9}")


def _flag(value: Any) -> Any:
    """Return a flag that a harness passes as text, such as OpenHands' `is_input`, as the flag it is."""
    return {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
