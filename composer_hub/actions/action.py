"""The actions of a session: one `Action` per call, with its result. A call is read once, then passed along.

In: a trace and, if the reader has them, the flags of its results. Out: `actions_of` returns the actions of every step.
Errors, hints, the report and the comparison of actions ask an `Action` for its family, paths, commands, directory and
outcome.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from composer_hub.actions.calls import call_in_text, command_of, cwd_of, path_of, paths_of
from composer_hub.actions.commands import SimpleCommand, commands_in
from composer_hub.actions.script_results import CallResult, ScriptOutput, output_of, results_of
from composer_hub.actions.script_values import PlainScript
from composer_hub.actions.scripts import script_of
from composer_hub.actions.tools import family_of_tool, is_script
from composer_hub.harnesses import running_id
from composer_hub.records import ErrorSite, Step, ToolCall, Trace
from composer_hub.session import ResultFlag

_NO_FLAG = ResultFlag()
_POLL_KEYS = ("session_id", "bash_id", "task_id", "shell_id", "id")

Actions = tuple[tuple["Action", ...], ...]
"""The actions of a trace, one tuple per step, in the order of the calls."""


@dataclass(frozen=True)
class Action:
    """A call as its tool got it, the text of its result (None without a result), and the flag of the result.

    A call of a script has the id of the script, and what the script shows of its result.
    """

    call: ToolCall
    content: str | None
    flag: ResultFlag = _NO_FLAG
    index: int = -1  # of the result in `Trace.messages`
    polled: str = ""  # the command that a poll asks about
    is_running: bool = False  # the command continues, and a later poll has its outcome

    @property
    def is_missing(self) -> bool:
        """Return whether the session has neither a result nor a flag for this call."""
        return self.content is None and self.flag is _NO_FLAG

    @cached_property
    def family(self) -> str:
        """The family of the tool: shell, edit, read, web, agent, ask, poll, bookkeeping, finish, script or other."""
        return family_of_tool(self.call.name, self.call.arguments)

    @cached_property
    def path(self) -> str:
        """The path that the call is about, "" if it names none."""
        return path_of(self.call)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Every path that the call is about: a patch may name many."""
        return paths_of(self.call)

    @cached_property
    def command(self) -> str:
        """The shell text that the call runs or, of a poll, asks about; "" if there is none."""
        return self.polled or command_of(self.call)

    @property
    def commands(self) -> tuple[SimpleCommand, ...]:
        """The simple commands of the shell text; it is parsed only now."""
        return commands_in(self.command)

    @property
    def cwd(self) -> str:
        """The directory that the call names for its command, "" for the session's."""
        return cwd_of(self.call)


def actions_of(trace: Trace, flags: Mapping[int, ResultFlag] | None = None) -> Actions:
    """Return the actions of every step."""
    reader = _ActionReader(trace, flags or {})
    return tuple(tuple(reader.actions(step)) for step in trace.steps)


def action_at(site: ErrorSite, actions: Sequence[Action]) -> Action | None:
    """Return the action of a step that a site is about: of several calls of one script, the one with its words."""
    named = [one for one in actions if (one.call.call_id, one.call.name) == (site.call_id, site.tool)]
    words = site.message.split("\n", 1)[0]
    return next((one for one in named if words in (one.content or "")), named[0] if named else None)


class _ActionReader:
    """Reads the steps of a trace in order, because a poll shows the outcome of an earlier command."""

    def __init__(self, trace: Trace, flags: Mapping[int, ResultFlag]) -> None:
        self.trace, self.flags = trace, flags
        self.running: dict[str, str] = {}  # the id of a command in the background -> the command
        # the id of a script in the background -> its calls
        self.cells: dict[str, tuple[PlainScript, list[Action]]] = {}

    def actions(self, step: Step) -> Iterator[Action]:
        for call, index in self._answered(step):
            content = None if index is None else self.trace.messages[index].content
            flag = _NO_FLAG if index is None else self.flags.get(index, _NO_FLAG)
            action = Action(call, content, flag, -1 if index is None else index)
            shown = output_of(content) if content is not None else None
            if shown and is_script(call.name, call.arguments):
                yield from self._script(action, shown)
            elif shown and isinstance(call.arguments, Mapping) and "cell_id" in call.arguments:
                yield from self._waited(action, shown, str(call.arguments["cell_id"]))
            else:
                yield self._polling(action)

    def _answered(self, step: Step) -> list[tuple[ToolCall, int | None]]:
        """Pair the step's calls with their results by call id, or by position if the harness keeps no ids.

        In text protocols the message itself contains the call, and its observations are the results.
        """
        messages, calls = self.trace.messages, self.trace.messages[step.action].tool_calls
        if not calls and step.results:
            spelled = call_in_text(messages[step.action].content)
            return [(spelled, index) for index in step.results]
        by_id = {messages[index].tool_call_id: index for index in step.results}
        ids_known = all(call.call_id for call in calls) and any(call.call_id in by_id for call in calls)
        in_order = [*step.results, *[None] * len(calls)]
        indices = [by_id.get(call.call_id) for call in calls] if ids_known else in_order[: len(calls)]
        return list(zip(calls, indices, strict=True))

    def _polling(self, action: Action) -> Action:
        """Name the command that a poll is about, and remember commands that continue in the background."""
        if action.family not in ("shell", "poll"):
            return action
        name = running_id(action.content or "")
        if action.family == "shell" and name:
            self.running[name] = command_of(action.call)
        elif action.family == "poll":
            action = self._about(action)
        return action if name is None else replace(action, is_running=True)

    def _about(self, poll: Action) -> Action:
        arguments = poll.call.arguments if isinstance(poll.call.arguments, Mapping) else {}
        asked = (self.running.get(str(arguments[key])) for key in _POLL_KEYS if key in arguments)
        return replace(poll, polled=next(filter(None, asked), ""))

    # ---- scripts

    def _script(self, whole: Action, shown: ScriptOutput) -> Iterator[Action]:
        """Yield an action per call of a script; the script itself if it is not plain, or failed by itself."""
        script = script_of(str(whole.call.arguments["input"]))
        calls = [ToolCall(name, arguments, whole.call.call_id) for name, arguments in (script.calls if script else ())]
        inner = [Action(call, "", whole.flag, whole.index) for call in calls]
        inner = [self._about(one) if one.family == "poll" else one for one in inner]
        if shown.is_failed:
            # A call that its tool refused has the tool's words; a script that broke by itself has the harness's.
            failed = _failed_in(shown.error, inner)
            words = shown.error if failed else f"Script error:\n{shown.error}"
            yield replace(failed or whole, content=words, flag=replace(whole.flag, is_error=True))
        elif script is None or not inner:
            yield replace(whole, content=shown.body)
        elif shown.cell_id:
            self.cells[shown.cell_id] = script, inner
            yield from (replace(one, content=shown.body, is_running=True) for one in inner)
        else:
            yield from self._returned(script, inner, shown)

    def _waited(self, wait: Action, shown: ScriptOutput, cell_id: str) -> Iterator[Action]:
        """Yield the results, shown by a wait, of a script's commands that continued in the background."""
        script, inner = self.cells.get(cell_id, (None, []))
        commands = [one for one in inner if one.command]
        if shown.cell_id or shown.is_failed or script is None or not commands:
            flag = replace(wait.flag, is_error=True) if shown.is_failed else wait.flag
            polled = "\n".join(one.command for one in commands)
            text = shown.error or shown.body
            yield replace(wait, content=text, flag=flag, polled=polled, is_running=bool(shown.cell_id))
            return
        for one in self._returned(script, inner, shown):
            if one.command:
                yield replace(one, call=wait.call, index=wait.index, polled=one.command)

    def _returned(self, script: PlainScript, inner: Sequence[Action], shown: ScriptOutput) -> Iterator[Action]:
        results = results_of(script, shown.body)
        if results is None:
            # The output cannot be split by command, so all commands are read as the lines of a single one.
            results = [CallResult() for _ in inner]
            if commands := [one for one in inner if one.command]:
                yield replace(_as_one(commands), content=shown.body)
                inner = [one for one in inner if not one.command]
        for action, result in zip(inner, results, strict=False):
            if result.session_id:
                self.running[result.session_id] = action.command
            flag = ResultFlag(is_error=result.is_error, exit_code=result.exit_code)
            is_running = bool(result.session_id) and result.exit_code is None
            yield replace(action, content=result.output, flag=flag or action.flag, is_running=is_running)


_OWN_ERROR = re.compile(r"(?:Uncaught )?\w{0,40}Error\b")
_TOOL_ERROR = re.compile(r"(\w{1,80})(?: verification)? failed\b")


def _failed_in(error: str, calls: Sequence[Action]) -> Action | None:
    """Return the call that a script's error is about, None if the script itself is wrong."""
    if _OWN_ERROR.match(error):
        return None
    named = _TOOL_ERROR.match(error)
    own = [one for one in calls if not named or one.call.name == named[1]]
    return own[0] if len(own) == 1 else None


def _as_one(commands: Sequence[Action]) -> Action:
    first = next((one for one in commands if one.family == "shell"), commands[0])
    text = "\n".join(one.command for one in commands)
    if first.family != "shell":
        return replace(first, polled=text)
    folders = {one.cwd for one in commands}
    arguments = {"cmd": text, **({"workdir": first.cwd} if len(folders) == 1 and first.cwd else {})}
    return replace(first, call=replace(first.call, arguments=arguments))
