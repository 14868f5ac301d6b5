"""Reasons to doubt that a failure is the model's own mistake, although failures of its kind usually are.

In: a site that blames the model, the call, and what the session showed before. Out: true if the blame falls. A wrong
hint teaches the model to distrust what was right, so these questions are asked first:

- Did the task name the path or the agent that is missing?
- Did the program that is missing work earlier, or does every machine have it? Then the shell's PATH is broken.
- Is the line of which the shell complains in the command at all? If not, a start-up file is broken.
- Does the command name the program that is missing? If not, a script behind it needs it.
- Does it ask whether that program is there, or for its version?
- Is it a look: does the call list a folder, ask a bare program for its usage, or say that it looks for a path?
"""

from __future__ import annotations

import os.path
import re
from collections import defaultdict
from collections.abc import Mapping

from composer_hub.actions.calls import command_of, path_of
from composer_hub.actions.commands import commands_in
from composer_hub.actions.tools import family_of_tool
from composer_hub.errors.exits import LISTING
from composer_hub.errors.rules import EVERYWHERE
from composer_hub.records import ErrorSite, Step, ToolCall, Trace

MAX_GIVEN_CHARS = 200_000  # of each message
_MISSING_PROGRAMS = (
    re.compile(
        r"(?:^|\n)(?:\S{0,80}sh|env|\S{0,80}: line \d+)(?::[^\n:]{0,40})*?: ?([\w@./+-]{1,80}): (?:command )?not found"
    ),
    re.compile(r"command not found: ([\w@./+-]{1,80})"),
    re.compile(r"[ \t](?:ba|da|z)?sh: (?:line )?(?:\d+: )?([\w@./+-]{1,80}): (?:command )?not found"),  # in a log
    re.compile(r"\bCommand \"([\w@./+-]{1,80})\" not found"),
    re.compile(r"'([\w@./+-]{1,80})' is not recognized as "),
)  # fmt: skip
_MISSING_PATHS = re.compile(
    r"(?:^|\n)[\w.-]{1,40}: (?:cannot \w+ )?['\"]?([^\s'\":]{2,300})['\"]?: No such file or directory"
)
_LINE = re.compile(r"(?:^|\n)(?:\(eval\)|\S{0,80}sh):(?: line)? ?(\d{1,6}): ")
_ASKED = re.compile(r"\b(?:command -v|which|where|type|hash) ([\w.+-]+)|([\w.+-]+) (?:--version|-V)(?![\w-])")
_AGENT = re.compile(r"Agent type '([^'\n]{1,100})' not found")
_SETS_PATH = re.compile(r"(?i:\bPATH=)|\b(?:for|read(?: -r)?) path\b")  # zsh: `path` is PATH, too
_LIST_TOOLS = frozenset("ls list listdir list_dir list_directory list_files".split())
_NOT_LISTED = re.compile(LISTING + r"[^\n]{1,300}No such file or directory")
_LOOK = re.compile(r"(?i)\b(?:if|whether|already|still|does|do)\b[^\n]{0,60}\bexists?\b")


class Doubts:
    """What a session showed so far that speaks for the model."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.worked: list[str] = []  # commands
        self.results = {index for step in trace.steps for index in step.results}
        self.places: dict[str, set[str]] | None = None

    def note_success(self, call: ToolCall) -> None:
        """Remember a command that worked; only a doubt asks for its programs."""
        if family_of_tool(call.name, call.arguments) == "shell":
            self.worked.append(command_of(call))

    def about(self, site: ErrorSite, call: ToolCall, output: str, step: Step) -> bool:
        """Tell whether a site that blames the model should not."""
        command = command_of(call) if family_of_tool(call.name, call.arguments) == "shell" else ""
        if site.kind == "path_not_found":
            if _LOOK.search(_purpose(call)) or call.name.rsplit("__", 1)[-1].casefold() in _LIST_TOOLS:
                return True
            if command and _NOT_LISTED.search(output[:4000]):
                return True  # the command lists the place before it reads from it
            paths = _MISSING_PATHS.findall(output[:4000]) if command else [path_of(call)]
            return bool(paths) and all(self._is_given(path, step) for path in paths)
        if site.kind == "tool_not_found":
            agent = _AGENT.search(output[:400])
            return agent is not None and self._is_named(agent[1], step)
        if site.kind == "command_not_found":
            return self._had_program(command, output)
        if site.rule.startswith("exit.usage") and len(command.split()) == 1:
            return True  # a bare program is asked for its usage
        if site.rule == "exit.quoting":
            lines = [int(number) for number in _LINE.findall(output[:4000])]
            return bool(lines) and min(lines) > command.count("\n") + 1
        return False

    def _had_program(self, command: str, output: str) -> bool:
        if not command or _SETS_PATH.search(command):
            return False
        asked = {name for names in _ASKED.findall(command) for name in names if name}
        found = [name for pattern in _MISSING_PROGRAMS for name in pattern.findall(output[:4000])]
        if not found:
            return bool(asked)
        names = {name.rsplit("/", 1)[-1] for name in found} - EVERYWHERE - asked
        # Only a command that holds the name can have run the program.
        commands = [text for text in self.worked if any(map(text.__contains__, names))]
        names -= {one.program for text in commands for one in commands_in(text)}
        return not any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", command) for name in names)

    def _is_given(self, path: str, step: Step) -> bool:
        """Tell whether the task names a path."""
        cwd = self.trace.cwd.rstrip("/") + "/"
        spellings = {path.rstrip("/"), path.removeprefix(cwd).rstrip("/")}
        named = {one for one in spellings if "/" in one.strip("/") or ("." in one and self._has_one_place(path))}
        return any(self._is_named(one, step) for one in named)

    def _is_named(self, name: str, step: Step) -> bool:
        """Tell whether a message of the user or the system holds a name as a word."""
        word = re.compile(rf"(?<![\w/.~-]){re.escape(name)}(?![\w/-]|\.\w)")
        return any(
            word.search(message.content[:MAX_GIVEN_CHARS])
            for number, message in enumerate(self.trace.messages[: step.action])
            if number not in self.results and message.role in ("user", "system")
        )

    def _has_one_place(self, path: str) -> bool:
        """Tell whether the session looked for a file of this name in one folder only."""
        if self.places is None:
            self.places = defaultdict(set)
            for message in self.trace.messages:
                for call in message.tool_calls:
                    if spelled := path_of(call):
                        self.places[os.path.basename(spelled)].add(os.path.dirname(spelled))
        return len(self.places.get(os.path.basename(path), ())) <= 1


def _purpose(call: ToolCall) -> str:
    """Return what the model says that a call is for."""
    words = call.arguments.get("description") if isinstance(call.arguments, Mapping) else None
    return words if isinstance(words, str) else ""
