"""Programs that the model wrote in order to run them: their exceptions are results, not mistakes.

In: the calls of a session, in order. Out: `WrittenPrograms.explain` returns whether the exception of a command is the
answer that the program was written to give. A slip in the program's text (a name, its syntax) remains a mistake.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence

from composer_hub.actions.calls import command_of, path_of
from composer_hub.actions.commands import SimpleCommand, commands_in
from composer_hub.actions.tools import family_of_tool
from composer_hub.records import ToolCall

_REDIRECTED = re.compile(r">[ \t]*['\"]?([\w./~+-]{1,300})")
_TEED = re.compile(r"\btee(?: -a)?[ \t]*['\"]?([\w./~+-]{1,300})")
_COMPILERS = ("go build", "gcc", "g++", "clang", "rustc")
_BUILT = re.compile(r"\b(?:go build|gcc|g\+\+|clang(?:\+\+)?|rustc)\b[^\n|;&]{0,300}?\s-o[ =]?['\"]?([\w./~+-]{1,300})")
_ADDED = re.compile(r"^\*\*\* Add File: (\S[^\n]{0,400})$", re.MULTILINE)
_PROBE_NAME = re.compile(r"(?i)(?:^|[/_.-])(?:tests?|repro\w{0,20}|debug|demo|verify|check)(?:[/_.-]|$)")
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|node|deno|bun|ruby|perl|php|Rscript|julia|lua|tsx|ts-node")
_INLINE_OPTIONS = ("-c", "-e", "--eval", "-p", "-")
_FRAME = re.compile(r'File "([^"\n]{1,300})", line \d+')
_LIBRARY = re.compile(r"/lib(?:64)?/python\d|/(?:site|dist)-packages/|^<frozen ")
_RAISED = re.compile(r"(?:^|\n)[ \t]*(?:\w{1,60}\.){0,5}(\w{0,60}(?:Error|Exception|Exit|Failure|panic))\b")
_STALE = re.compile(r"Export named '[^'\n]{1,200}' not found in module|does not provide an export named")
_SLIPS = frozenset("SyntaxError IndentationError TabError NameError UnboundLocalError ReferenceError".split())
_CHECKS = frozenset("AssertionError AssertionFailure".split())
_CREATORS = frozenset("write write_file writefile create create_file write_to_file".split())


class WrittenPrograms:
    """The files that a session wrote as a whole, by name, up to a step."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.built: set[str] = set()  # programs that its commands compiled

    def note(self, call: ToolCall) -> None:
        """Remember the files that a call creates."""
        family = family_of_tool(call.name, call.arguments)
        if family == "edit" and _creates(call):
            self.names.add(os.path.basename(path_of(call)))
        for text in _texts(call)[:3]:
            if "*** Add File" in text:
                self.names.update(os.path.basename(path) for path in _ADDED.findall(text[:20_000]))
        if family == "shell":
            command = command_of(call)[:20_000]
            written = _REDIRECTED.findall(command) + (_TEED.findall(command) if "tee" in command else [])
            self.names.update(os.path.basename(path) for path in written)
            if any(name in command for name in _COMPILERS):
                self.built.update(os.path.basename(path) for path in _BUILT.findall(command))
        self.names.discard("")

    def explain(self, call: ToolCall, output: str) -> bool:
        """Tell whether an exception comes from a program that was written to be run, and not from a slip in it."""
        raised = _RAISED.findall(output[-4000:])
        name = raised[-1] if raised else ""
        commands = [command for command in commands_in(command_of(call)) if command.words]
        inline = any(_is_inline(command) for command in commands)
        if inline and not any(self._runs_written(command) for command in commands):
            frames = [frame for frame in _FRAME.findall(output[-4000:]) if not _LIBRARY.search(frame)]
            own = not frames or frames[-1].startswith("<")
            return name in _CHECKS or not own or _throws_itself(call, output)
        script = _script_named(commands)
        if script and os.path.basename(script) not in self.names and _STALE.search(output[-4000:]):
            return True  # a program of the project does not fit its own modules, as before a build
        if name in _SLIPS or (name == "ImportError" and _imported_by(script, output)):
            return False
        return name in _CHECKS or any(self._runs_written(one) for one in commands)

    def runs_built(self, call: ToolCall) -> bool:
        """Tell whether a command ends with a program that the session compiled, whose usage is under test."""
        commands = commands_in(command_of(call))
        return bool(commands) and commands[-1].program in self.built

    def _runs_written(self, command: SimpleCommand) -> bool:
        script = _script_of(command)
        return bool(script) and (os.path.basename(script) in self.names or bool(_PROBE_NAME.search(script)))


_MESSAGE = re.compile(
    r"(?:^|\n)[ \t]*(?:Uncaught )?(?:\w{1,60}\.){0,5}\w{0,60}(?:Error|Exception|Failure): (?!\(none\))([^\n]{4,300})"
)
_THROWN = re.compile(r"\b(?:throw|raise|die|panic|assert|fail)\b[^\n]{0,80}?[\"'`]([^\n\"'`$%{]{4,120})")


def _throws_itself(call: ToolCall, output: str) -> bool:
    """Tell whether the words of an exception stand behind a `throw` or `raise` of the inline program."""
    words = _MESSAGE.findall(output[-4000:])
    thrown = _THROWN.findall(command_of(call)[:20_000])
    return bool(words) and any(words[-1].startswith(one) for one in thrown)


def runs_a_script(command: str) -> bool:
    """Tell whether a command runs a program text: inline, or a file of it."""
    commands = [one for one in commands_in(command) if one.words]
    return not commands or any(
        _is_inline(one) or _script_of(one) or _INTERPRETER.fullmatch(one.program) for one in commands
    )


def _script_named(commands: Sequence[SimpleCommand]) -> str:
    return next((script for command in commands if (script := _script_of(command))), "")


def _imported_by(script: str, output: str) -> bool:
    """Tell whether the script itself names what it cannot import."""
    frames = _FRAME.findall(output[-4000:])
    return bool(frames) and os.path.basename(frames[-1]) == os.path.basename(script)


def _creates(call: ToolCall) -> bool:
    arguments = call.arguments
    word = arguments.get("command") if isinstance(arguments, Mapping) else None
    return word == "create" or call.name.rsplit("__", 1)[-1].casefold() in _CREATORS


def _texts(call: ToolCall) -> list[str]:
    values = call.arguments.values() if isinstance(call.arguments, Mapping) else [call.arguments]
    return [value for value in values if isinstance(value, str)]


def _script_of(command: SimpleCommand) -> str:
    """Return the file that a command runs, "" if it runs an installed program."""
    if _INTERPRETER.fullmatch(command.program):
        return next((word for word in command.words[1:] if not word.startswith("-")), "")
    if command.program in ("go", "cargo") and command.words[1:2] == ("run",):
        return next((word for word in command.words[2:] if not word.startswith("-")), "")
    return command.words[0] if "/" in command.words[0] else ""


def _is_inline(command: SimpleCommand) -> bool:
    if not _INTERPRETER.fullmatch(command.program):
        return False
    rest = command.words[1:]
    return not rest or any(word in _INLINE_OPTIONS for word in rest)
