"""The call that worked later: an error site and the session's next calls in, the successful call out.

Both calls must have the same target: the path of a file call (its file name if the path was the mistake), or the
program of a shell call together with a word of its arguments. A hint names only the changes between the two calls, each
value on one short line.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from composer_hub.actions.calls import command_of, path_of
from composer_hub.actions.commands import SimpleCommand, commands_in
from composer_hub.actions.tools import bare_name, family_of_tool
from composer_hub.errors.exits import main_command
from composer_hub.errors.rules import canonical_kind
from composer_hub.hints.templates import LaterCall, SiteContext, clipped
from composer_hub.records import Step, ToolCall, Trace, canonical_json

MAX_VALUE_CHARS = 80
MAX_COMMAND_CHARS = 240
MAX_CHANGES = 3

# The same call works later for these, because a step before it was missing.
_NEEDS_A_READ = frozenset({"stale_read", "edit_no_match", "edit_ambiguous"})
# The place was the mistake, so the right one has another path.
_WRONG_PLACE = frozenset({"path_not_found", "is_directory"})


@dataclass(frozen=True, slots=True)
class WorkingCall:
    """A sentence about the call that worked, and its rule."""

    text: str
    rule: str


def steps_after(trace: Trace, position: int) -> Iterator[Step]:
    """Yield the later steps whose prompt contains this one, so that rewound branches are left out."""
    action = trace.steps[position].action
    for step in trace.steps[position + 1 :]:
        if any(start <= action < stop for start, stop in step.prompt):
            yield step


def next_success(trace: Trace, steps: Iterable[Step]) -> Step | None:
    """Return the first of some steps that made calls and had no error."""
    return next((step for step in steps if trace.messages[step.action].tool_calls and not step.error_sites), None)


def what_worked(context: SiteContext) -> WorkingCall | None:
    """Return the solution that the session itself found within its next calls, or None."""
    if context.call is None or context.site.blame != "model" or context.site.kind.startswith("repeated_"):
        return None
    for position, later in enumerate(context.later):
        if later.ok and (found := _compare(context, context.call, later.call, context.later[:position])):
            return found
    return None


def _compare(
    context: SiteContext, failed: ToolCall, worked: ToolCall, between: tuple[LaterCall, ...]
) -> WorkingCall | None:
    kind = canonical_kind(context.site.kind)
    if kind == "tool_not_found":
        return _other_tool(failed, worked)
    if bare_name(failed.name) != bare_name(worked.name):
        return None
    if family_of_tool(failed.name, failed.arguments) == "shell":
        return _other_command(context, failed, worked)
    return _other_arguments(kind, failed, worked, between)


def _other_tool(failed: ToolCall, worked: ToolCall) -> WorkingCall | None:
    """Find another tool that took the same path or command as one that does not exist."""
    target = path_of(failed) or command_of(failed)
    if not target or target != (path_of(worked) or command_of(worked)) or failed.name == worked.name:
        return None
    return WorkingCall(
        f"There is no `{failed.name}` here; `{worked.name}` does this: {clipped(target, 120)}", "other_tool"
    )


def _other_arguments(
    kind: str, failed: ToolCall, worked: ToolCall, between: tuple[LaterCall, ...]
) -> WorkingCall | None:
    before, after = path_of(failed), path_of(worked)
    if not after or not _same_place(kind, before, after):
        return None
    if kind in _WRONG_PLACE:
        return (
            WorkingCall(f"The right path is {after} (not {clipped(before, 120)}).", "other_path")
            if before != after
            else None
        )
    read_first = kind in _NEEDS_A_READ and any(_reads(later, after) for later in between)
    changes = list(_changes(failed.arguments, worked.arguments))[:MAX_CHANGES]
    if not changes and not read_first:
        return None
    first = f"First read {clipped(after, 120)}; then " if read_first else f"On {clipped(after, 120)} "
    how = f" with {'; '.join(changes)}" if changes else ""
    return WorkingCall(f"{first}`{worked.name}` works{how}.", "read_first" if read_first else "other_arguments")


def _same_place(kind: str, before: str, after: str) -> bool:
    if os.path.normpath(before) == os.path.normpath(after):
        return True
    return kind in _WRONG_PLACE and _last_part(before) == _last_part(after)


def _reads(later: LaterCall, path: str) -> bool:
    family = family_of_tool(later.call.name, later.call.arguments)
    if not later.ok or family not in ("read", "shell"):
        return False
    return path_of(later.call) == path or os.path.basename(path) in command_of(later.call)


def _changes(before: Any, after: Any) -> Iterator[str]:
    """Yield the changed arguments, each on one short line with the first words of a long text."""
    if not isinstance(after, Mapping):
        return
    earlier = before if isinstance(before, Mapping) else {}
    for name, value in after.items():
        if name not in earlier or earlier[name] != value:
            text = value if isinstance(value, str) else canonical_json(value)
            yield f"{name} = {clipped(text.strip(), MAX_VALUE_CHARS)}"
    for name in earlier:
        if name not in after:
            yield f"no {name}"


def _other_command(context: SiteContext, failed: ToolCall, worked: ToolCall) -> WorkingCall | None:
    before, after = command_of(failed), command_of(worked)
    if not after or before.strip() == after.strip():
        return None  # the same command works after some other change, so it is not a hint
    if not _same_target(context, before, after):
        return None
    return WorkingCall(f"This command works instead: {clipped(after, MAX_COMMAND_CHARS)}", "other_command")


def _same_target(context: SiteContext, before: str, after: str) -> bool:
    kind = canonical_kind(context.site.kind)
    if kind in _WRONG_PLACE:
        return _last_part(context.path) in _words_of(after)
    main, later = main_command(commands_in(before)), main_command(commands_in(after))
    if not main or not later:
        return False
    shared = _target_words(main) & _target_words(later)
    return bool(shared) and (main.program != later.program) == (kind == "command_not_found")


def _words_of(command: str) -> set[str]:
    return {_last_part(word) for simple in commands_in(command) for word in simple.words} - {""}


def _target_words(command: SimpleCommand) -> set[str]:
    """Return the words that name the target of a command: paths by their last part, no options."""
    return {part for word in command.words[1:] if not word.startswith("-") and len(part := _last_part(word)) > 2}


def _last_part(path: str) -> str:
    return os.path.basename(path.rstrip("/"))
