"""What worked later: an error site and the session's next calls in, the call that succeeded on the same target out.

The target of a file call is its path (its file name where the path was the mistake); the target of a shell call is its
program together with a word of its arguments. Only what changed between the two calls is told, each value on one short
line.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from composer_hub.actions.calls import command_of, path_of
from composer_hub.actions.commands import SimpleCommand, commands_in
from composer_hub.actions.tools import bare_name, family_of_tool
from composer_hub.errors.exits import main_command
from composer_hub.errors.rules import canonical_kind
from composer_hub.hints.templates import LaterCall, SiteContext, clipped
from composer_hub.records import ToolCall, canonical_json

MAX_VALUE_CHARS = 80
MAX_COMMAND_CHARS = 240
MAX_CHANGES = 3

# The same call again works for these: what was missing is a step before it.
_NEEDS_A_READ = frozenset({"stale_read", "edit_no_match", "edit_ambiguous"})
# The place was the mistake, so the right one has another path.
_WRONG_PLACE = frozenset({"path_not_found", "is_directory"})


@dataclass(frozen=True, slots=True)
class Found:
    """A sentence about the call that worked, and the rule that found it."""

    text: str
    rule: str


def what_worked(context: SiteContext) -> Found | None:
    """Return what the session itself found out within its next calls, or None."""
    if context.call is None or context.site.blame != "model" or context.site.kind.startswith("repeated_"):
        return None
    for position, later in enumerate(context.later):
        if later.ok and (found := _compare(context, context.call, later.call, context.later[:position])):
            return found
    return None


def _compare(context: SiteContext, failed: ToolCall, worked: ToolCall, between: tuple[LaterCall, ...]) -> Found | None:
    kind = canonical_kind(context.site.kind)
    if kind == "tool_not_found":
        return _other_tool(failed, worked)
    if bare_name(failed.name) != bare_name(worked.name):
        return None
    if family_of_tool(failed.name, failed.arguments) == "shell":
        return _other_command(context, failed, worked)
    return _other_arguments(kind, failed, worked, between)


def _other_tool(failed: ToolCall, worked: ToolCall) -> Found | None:
    """A tool that is not there: another one that took the same path or command."""
    target = path_of(failed) or command_of(failed)
    if not target or target != (path_of(worked) or command_of(worked)) or failed.name == worked.name:
        return None
    return Found(f"There is no `{failed.name}` here; `{worked.name}` does this: {clipped(target, 120)}", "other_tool")


def _other_arguments(kind: str, failed: ToolCall, worked: ToolCall, between: tuple[LaterCall, ...]) -> Found | None:
    before, after = path_of(failed), path_of(worked)
    if not after or not _same_place(kind, before, after):
        return None
    if kind in _WRONG_PLACE:
        return (
            Found(f"The right path is {after} (not {clipped(before, 120)}).", "other_path") if before != after else None
        )
    read_first = kind in _NEEDS_A_READ and any(_reads(later, after) for later in between)
    changes = list(_changes(failed.arguments, worked.arguments))[:MAX_CHANGES]
    if not changes and not read_first:
        return None
    first = f"First read {clipped(after, 120)}; then " if read_first else f"On {clipped(after, 120)} "
    how = f" with {'; '.join(changes)}" if changes else ""
    return Found(f"{first}`{worked.name}` works{how}.", "read_first" if read_first else "other_arguments")


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
    """Yield the arguments that changed, each short and on one line: a long text only by its first words."""
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


def _other_command(context: SiteContext, failed: ToolCall, worked: ToolCall) -> Found | None:
    before, after = command_of(failed), command_of(worked)
    if not after or before.strip() == after.strip():
        return None  # the same command works once something else has changed; that is no hint
    if not _same_target(context, before, after):
        return None
    return Found(f"This command works instead: {clipped(after, MAX_COMMAND_CHARS)}", "other_command")


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
    """Return the words that say what a command is about; paths by their last part, options left out."""
    return {part for word in command.words[1:] if not word.startswith("-") and len(part := _last_part(word)) > 2}


def _last_part(path: str) -> str:
    return os.path.basename(path.rstrip("/"))
