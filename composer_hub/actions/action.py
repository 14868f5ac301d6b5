"""What each call of a session did: one `Action` per call, with its result, read once and passed along.

In: a trace and, if the reader has them, the flags of its results. Out: `actions_of` returns the actions of every step.
Errors, hints, the report and the comparison of actions ask an `Action` for its family, paths, commands, directory and
outcome.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from composer_hub.actions.calls import call_in_text, command_of, cwd_of, path_of, paths_of
from composer_hub.actions.commands import SimpleCommand, commands_in
from composer_hub.actions.tools import family_of_tool
from composer_hub.harnesses import running_id
from composer_hub.records import ErrorSite, Step, ToolCall, Trace
from composer_hub.session import ResultFlag

_NO_FLAG = ResultFlag()
_POLL_KEYS = ("session_id", "bash_id", "task_id", "shell_id", "id")

Actions = tuple[tuple["Action", ...], ...]
"""The actions of a trace, one tuple per step, in the order of the calls."""


@dataclass(frozen=True)
class Action:
    """A call as its tool got it, the text of its result (None without a result), and the flag of the result."""

    call: ToolCall
    content: str | None
    flag: ResultFlag = _NO_FLAG
    polled: str = ""  # the command that a poll asks about
    is_running: bool = False  # the command continues, and a later poll has its outcome

    @property
    def is_missing(self) -> bool:
        """Tell whether the session holds neither a result nor a word about it."""
        return self.content is None and self.flag is _NO_FLAG

    @cached_property
    def family(self) -> str:
        """The family of the tool: shell, edit, read, web, agent, ask, poll, finish or other."""
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
    running: dict[str, str] = {}  # the id of a command in the background -> the command
    return tuple(
        tuple(_polling(action, running) for action in _answered(trace, step, flags or {})) for step in trace.steps
    )


def action_at(site: ErrorSite, actions: Sequence[Action]) -> Action | None:
    """Return the action of a step that a site is about."""
    return next((one for one in actions if (one.call.call_id, one.call.name) == (site.call_id, site.tool)), None)


def _answered(trace: Trace, step: Step, flags: Mapping[int, ResultFlag]) -> Iterator[Action]:
    """Pair the step's calls with their results by call id, or by position if the harness keeps no ids.

    In text protocols the message itself contains the call, and its observations are the results.
    """
    calls = trace.messages[step.action].tool_calls
    if not calls and step.results:
        spelled = call_in_text(trace.messages[step.action].content)
        pairs: list[tuple[ToolCall, int | None]] = [(spelled, index) for index in step.results]
    else:
        by_id = {trace.messages[index].tool_call_id: index for index in step.results}
        ids_known = all(call.call_id for call in calls) and any(call.call_id in by_id for call in calls)
        in_order = [*step.results, *[None] * len(calls)]
        pairs = [
            (call, by_id.get(call.call_id) if ids_known else index)
            for call, index in zip(calls, in_order, strict=False)
        ]
    for call, index in pairs:
        if index is None:
            yield Action(call, None)
        else:
            yield Action(call, trace.messages[index].content, flags.get(index, _NO_FLAG))


def _polling(action: Action, running: dict[str, str]) -> Action:
    """Name the command that a poll is about, and remember commands that continue in the background."""
    if action.family not in ("shell", "poll"):
        return action
    arguments, name = action.call.arguments, running_id(action.content or "")
    if action.family == "shell" and name:
        running[name] = command_of(action.call)
    elif action.family == "poll" and isinstance(arguments, Mapping):
        asked = (running.get(str(arguments[key])) for key in _POLL_KEYS if key in arguments)
        action = replace(action, polled=next(filter(None, asked), ""))
    return action if name is None else replace(action, is_running=True)
