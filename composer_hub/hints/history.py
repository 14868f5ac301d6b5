"""What a session did with a file around a failed call: facts that make a true hint useless.

In: a trace, the failed step, a path. Out: whether the session makes the file itself, so that its path was right all
along; whether the lines were read again after such an edit had failed before, so that reading them is no news.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping

from composer_hub.actions.calls import command_of, path_of
from composer_hub.actions.scripts import calls_in
from composer_hub.actions.tools import family_of_tool
from composer_hub.errors.rules import canonical_kind
from composer_hub.records import Step, ToolCall, Trace

MAX_STEPS = 100  # that are looked at in each direction
MAX_RETRIES = 12  # steps between two tries of an edit


def is_made(trace: Trace, step: Step, path: str) -> bool:
    """Tell whether another call near a step writes a file of this name, or names it as its output."""
    name = os.path.basename(path.rstrip("/"))
    written = re.compile(
        rf"(?:>|\btee(?: -\w+)*|(?<!\S)-o|(?<!\S)--[\w-]*(?:out(?:put)?|xml|log|report)[\w-]*)[ =]*['\"]?"
        rf"(?:[^\s'\"]*/)?{re.escape(name)}(?![\w.-])"
    )
    near = trace.steps[max(0, step.index - MAX_STEPS) : step.index + MAX_STEPS]
    others = (one for one in near if one is not step)
    return bool(name) and any(_makes(call, name, written) for one in others for call in _calls(trace, one))


def _makes(call: ToolCall, name: str, written: re.Pattern[str]) -> bool:
    family = family_of_tool(call.name, call.arguments)
    if family == "shell":
        command = command_of(call)
        return name in command and written.search(command) is not None
    return family == "edit" and os.path.basename(path_of(call)) == name and not _replaces(call)


def _replaces(call: ToolCall) -> bool:
    """Tell whether an edit needs an old text, so that it can make no file."""
    return isinstance(call.arguments, Mapping) and any("old" in str(key).lower() for key in call.arguments)


def was_read_again(trace: Trace, step: Step, path: str) -> bool:
    """Tell whether an edit of this file failed before in the same way, and the file was read since."""
    name, was_read = os.path.basename(path), False
    for earlier in reversed(trace.steps[max(0, step.index - MAX_RETRIES) : step.index]):
        calls = list(_calls(trace, earlier))
        was_read = was_read or any(_reads(call, name) for call in calls)
        failed = {site.call_id for site in earlier.error_sites if canonical_kind(site.kind) == "edit_no_match"}
        if was_read and any(call.call_id in failed and os.path.basename(path_of(call)) == name for call in calls):
            return True
    return False


def _reads(call: ToolCall, name: str) -> bool:
    family = family_of_tool(call.name, call.arguments)
    return (family == "read" and os.path.basename(path_of(call)) == name) or (
        family == "shell" and name in command_of(call)
    )


def _calls(trace: Trace, step: Step) -> Iterable[ToolCall]:
    return (inner for call in trace.messages[step.action].tool_calls for inner in calls_in(call))
