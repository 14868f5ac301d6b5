"""What a tool call is about, whatever its harness names the tool: its family, its path, its shell commands.

In: a `ToolCall` of any harness, or a message that spells one out (`call_in_text`). Out: `family_of_tool` (shell, edit,
read, web, agent, ask, poll, finish or other), `path_of`, `command_of`, and `commands_in`, the simple commands of a
shell text. Nothing here fails on odd arguments: the answer is then "".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from composer_hub.records import ToolCall


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FAMILIES: dict[str, frozenset[str]] = {
    "shell": _words(
        "bash shell exec_command execute_bash local_shell local_shell_call run_command run_shell_command terminal"
        " run_terminal_cmd run_terminal_command run_in_terminal execute_command shell_command container.exec sh zsh"
        " powershell cmd unified_exec execute run run_ipython execute_ipython_cell ipython python code_interpreter"
        " mswea_bash_command bash_command developer__shell commandexecution local_bash"
    ),
    "edit": _words(
        "edit multiedit notebookedit write str_replace str_replace_editor str_replace_based_edit_tool apply_patch"
        " create insert edit_file write_file write_to_file replace_in_file replace search_replace create_file"
        " insert_edit_into_file edit_notebook append delete_file move_file undo_edit file_editor filechange patch"
        " insert_content_at_line edit_file_by_replace apply_diff planning_file_editor"
    ),
    "read": _words(
        "read grep glob ls list read_file read_many_files view open goto cat search_file search_dir find_file"
        " list_files list_dir list_directory search_files grep_search grep_files file_search codebase_search"
        " semantic_search glob_file_search search_file_content notebookread lsp view_image read_notebook find"
        " list_code_definition_names read_mcp_resource list_mcp_resources readmcpresourcetool"
        " listmcpresourcestool tool_search toolsearch think todowrite todoread update_plan"
    ),
    "web": _words(
        "webfetch websearch web_fetch web_search google_web_search fetch fetch_webpage browse browse_interactive"
        " browser browser_use web_search_call url_fetch"
    ),
    "agent": _words("task agent spawn_agent delegate skill activate_skill sendmessage workflow"),
    "ask": _words(
        "exitplanmode enterplanmode askuserquestion ask_user ask_followup_question request_user_input"
        " plan_mode_respond ask_questions"
    ),
    "poll": _words(
        "bashoutput taskoutput agentoutputtool write_stdin wait wait_agent killshell kill_bash taskstop sleep"
        " command_status monitor"
    ),
    "finish": _words("submit finish exit attempt_completion complete_task exit_forfeit task_complete"),
}
"""Tool names, lower case, by what they do. Replay's aliases read the same table."""

_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}

# One tool that both looks and changes: its `command` argument tells which.
_VIEWS = frozenset({"view", "read", "open"})

PATH_KEYS = ("file_path", "path", "filename", "notebook_path", "target_file", "absolute_path", "file", "dir_path")
COMMAND_KEYS = ("command", "cmd", "commands", "script", "code", "input")

_PATCH_FILE = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (\S[^\n]{0,400})$", re.MULTILINE)


def bare_name(name: str) -> str:
    """Return a tool's name in lower case, without the MCP server or namespace it came from."""
    return re.split(r"__|\.|/", name.casefold())[-1] if name else ""


def family_of_tool(name: str, arguments: Any = None) -> str:
    """Return what a tool does: one of `FAMILIES`, or other."""
    lowered = name.casefold()
    family = _FAMILY_OF.get(lowered) or _FAMILY_OF.get(bare_name(name), "other")
    if family == "edit" and isinstance(arguments, Mapping) and arguments.get("command") in _VIEWS:
        return "read"
    return family


def path_of(call: ToolCall) -> str:
    """Return the path that a call is about, or "" where it names none."""
    arguments = call.arguments
    if isinstance(arguments, Mapping):
        named = (arguments[key] for key in PATH_KEYS if isinstance(arguments.get(key), str))
        found = next(named, "")
        if found:
            return found
    patch = _PATCH_FILE.search(_text_of(arguments)[:20_000])
    return patch[1].strip() if patch else ""


def command_of(call: ToolCall) -> str:
    """Return the shell text of a call, or "" where it runs none."""
    arguments = call.arguments
    if isinstance(arguments, str):
        return arguments
    if not isinstance(arguments, Mapping):
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
    """Return the call that a text protocol writes into the message, the last one; nameless where there is none."""
    if functions := _FUNCTION.findall(text):
        name, body = functions[-1]
        return ToolCall(name, dict(_PARAMETER.findall(body)))
    if block := _EDIT_BLOCK.search(text):
        return ToolCall("edit", {"path": block[1]})
    if fenced := _FENCED.findall(text):
        return ToolCall("bash", {"command": fenced[-1].strip()})
    return ToolCall("", None)


# ------------------------------------------------------------------------------------------------------- shell text


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command of a shell line: its words without quotes, and whether its output goes on into a pipe."""

    words: tuple[str, ...]
    piped: bool = False

    @property
    def program(self) -> str:
        """Return the program's name without its folder."""
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""


MAX_SHELL_CHARS = 20_000  # a longer text is a file in a heredoc; its head names the programs

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t]+|\\\n|\#[^\n]*(?=\n|$))
  | (?P<pipe>\|&?(?!\|))
  | (?P<end>&&|\|\||;;?|\n|&(?![>&]))
  | (?P<heredoc><<-?[ ]*(?P<quote>['"]?)(?P<tag>\w+)(?P=quote))
  | (?P<redirect>\d?[<>]{1,3}&?[ \t]*(?:[^\s;|&<>'"]|"[^"]*"|'[^']*')*|&>>?[ \t]*[^\s;|&]+)
  | (?P<group>[(){}!](?=[\s(){}]|$)|\(|\))
  | (?P<word>(?:\\.|\$\([^()]*\)|"(?:\\.|[^"\\])*"|'[^']*'|[^\s;|&<>()'"\\])+)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"\w+=")
_WRAPPERS = _words("sudo time env nohup exec command builtin npx bunx pnpx uvx nice stdbuf xargs")
_RUNNERS = {("uv", "run"), ("poetry", "run"), ("pipenv", "run"), ("bundle", "exec"), ("mise", "exec"), ("pdm", "run")}
_KEYWORDS = _words("if then else elif fi for while until do done case esac in function { } ! [[")


def commands_in(text: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands of a shell text in order; heredoc bodies, redirections and assignments left out."""
    return tuple(command for command in _split(text[:MAX_SHELL_CHARS]) if command.words)


def _split(text: str) -> Iterator[SimpleCommand]:
    words: list[str] = []
    tags: list[str] = []
    position = 0
    while match := _TOKEN.match(text, position):
        position = match.end()
        kind = match.lastgroup if match.lastgroup not in ("quote", "tag") else "heredoc"
        if kind == "heredoc":
            tags.append(match["tag"])
        elif kind == "word":
            words.append(_unquoted(match["word"]))
        elif kind in ("pipe", "end"):
            yield SimpleCommand(_without_wrappers(words), piped=kind == "pipe")
            words = []
            if match[0] == "\n" and tags:
                position = _after_heredocs(text, position, tags)
                tags = []
    yield SimpleCommand(_without_wrappers(words))


def _after_heredocs(text: str, position: int, tags: list[str]) -> int:
    for tag in tags:
        end = re.compile(rf"^[ \t]*{tag}[ \t]*$", re.MULTILINE).search(text, position)
        position = end.end() if end else len(text)
    return position


def _unquoted(word: str) -> str:
    return re.sub(r"""\\(.)|["']""", lambda match: match[1] or "", word, flags=re.DOTALL)


def _without_wrappers(words: list[str]) -> tuple[str, ...]:
    """Drop what stands before the program: `FOO=1 sudo timeout 30 uv run pytest` is about pytest."""
    rest = words
    while rest:
        if rest[0] in _WRAPPERS or rest[0] in _KEYWORDS or _ASSIGNMENT.match(rest[0]):
            rest = rest[1:]
            while rest and rest[0].startswith("-"):
                rest = rest[1:]
        elif rest[0] in ("timeout", "gtimeout"):
            rest = rest[1:]
            while rest and (rest[0].startswith("-") or rest[0][:1].isdigit()):
                rest = rest[1:]
        elif tuple(rest[:2]) in _RUNNERS:
            rest = rest[2:]
        else:
            break
    return tuple(rest)
