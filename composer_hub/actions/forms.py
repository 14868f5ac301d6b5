"""The normal form of an action: an assistant message -> five levels, each coarser than the one before.

    L0  the same text
    L1  the same calls, as canonical JSON
    L2  the same effect, as far as it is certain (the default)
    L3  the same tools on the same targets: files, or the programs a shell command calls with their files (`close` also
        compares the words of code and commands)
    L4  the same tools

Two actions that are equal at one level are equal at every later one. L2 never guesses: an unknown tool, argument or
shell construct is compared as it is written. docs/pairs.md lists the actions that count as the same.
"""

from __future__ import annotations

import functools
import itertools
import json
import posixpath
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from composer_hub.actions.arguments import misfit_of, parsed_arguments
from composer_hub.actions.call_forms import ActionContext, CallForm, call_form, texts_left
from composer_hub.actions.edits import (
    Replacement,
    in_two_places,
    results_of_both,
    same_changes,
)
from composer_hub.actions.scripts import calls_in
from composer_hub.actions.words import NO_WORDS, Words, differ, makes_edit, of_shell, same_words, words_of_code
from composer_hub.records import Message, canonical_json

LEVELS = ("L0", "L1", "L2", "L3", "L4")


class EditRun(NamedTuple):
    """Consecutive edits of one file."""

    changes: tuple[Replacement, ...]
    text: str = ""  # the file's new text, if the old one is known
    file: str = ""


@dataclass(frozen=True, slots=True)
class NormalForm:
    """An action at every level, with the reason if it cannot be compared at all."""

    levels: tuple[str, str, str, str, str]
    problem: str = ""  # text_only, invalid_args or unknown_tool
    results: str = ""  # the files it leaves behind, if it only writes files and their texts are known
    calls: tuple[tuple[str, ...], ...] = ()  # each call alone, at every level
    words: tuple[Words, ...] = ()  # of each call
    outline: str = ""  # the form at L2 without what its edits change
    edits: tuple[EditRun, ...] = ()  # what they change, in the order of the outline
    commands: Words = NO_WORDS  # of its shell commands, if it calls nothing else

    def at(self, level: str) -> str:
        return self.levels[LEVELS.index(level)]

    @property
    def text(self) -> str:
        """The form at L2, as in `Vote.normal_form`."""
        return self.levels[2]


def same(a: NormalForm, b: NormalForm, level: str = "L2") -> bool:
    """Return whether two actions are the same at a level."""
    return a.at(level) == b.at(level) or (level >= "L2" and (a.text == b.text or _same_edits(a, b)))


def _same_edits(a: NormalForm, b: NormalForm) -> bool:
    """Return whether two actions do the same apart from edits, and their edits leave the same texts."""
    if not a.outline or a.outline != b.outline:
        return False
    runs = zip(a.edits, b.edits, strict=True)
    return all(
        one.text == other.text if one.text or other.text else same_changes(one.changes, other.changes)
        for one, other in runs
    )


def groups(forms: Sequence[NormalForm], agree: Callable[[NormalForm, NormalForm], bool] = same) -> list[list[int]]:
    """Return the places of the forms that agree; all of a group agree with each other."""
    found: list[list[int]] = []
    for at, form in enumerate(forms):
        group = next((one for one in found if all(agree(forms[other], form) for other in one)), None)
        if group is None:
            found.append([at])
        else:
            group.append(at)
    return found


def shared_levels(forms: Sequence[NormalForm]) -> list[tuple[str, ...]]:
    """Return the levels of forms, with one text for all that are the same, so that texts can be compared alone."""
    levels = [list(form.levels) for form in forms]
    for place, level in enumerate(LEVELS):
        for group in groups(forms, functools.partial(same, level=level)):
            for at in group:
                levels[at][place] = levels[group[0]][place]
    return [tuple(one) for one in levels]


def close(a: NormalForm, b: NormalForm, level: str = "L3") -> bool:
    """Return whether two actions are the same at a level; at L3, not if their code or commands differ in words."""
    if not same(a, b, level):
        return False
    return level != "L3" or same(a, b) or not (differ(a.words, b.words) or _edits_differ(a, b))


def _edits_differ(a: NormalForm, b: NormalForm) -> bool:
    """Return whether two actions change the same texts, and leave other words or the same in another order."""
    if not a.outline or a.outline != b.outline:
        return False
    for one, other in zip(a.edits, b.edits, strict=True):
        if in_two_places(one.changes, other.changes):
            return True
        texts = results_of_both(one.changes, other.changes)
        if texts and words_of_code(texts[0]) != words_of_code(texts[1]):
            return len(one.changes) == len(other.changes)
    return False


def same_aim(a: NormalForm, b: NormalForm) -> bool:
    """Return whether no difference of two actions is certain to matter: same words, or a script that makes an edit."""
    return same_words(a.commands, b.commands) or _scripted(a, b) or _scripted(b, a)


def _scripted(edit: NormalForm, script: NormalForm) -> bool:
    files = {run.file for run in edit.edits}
    return len(files) == 1 and len(edit.words) == 1 and makes_edit(script.commands, files.pop(), edit.words[0])


def is_part_of(part: NormalForm, whole: NormalForm, level: str = "L2") -> bool:
    """Return whether an action makes some of another's calls, but not all, and no other ones."""
    place = LEVELS.index(level)
    calls, others = (Counter(call[place] for call in form.calls) for form in (part, whole))
    if not calls or not calls < others:
        return False
    return level < "L3" or all(
        any(call[place] == other[place] and not differ([words], [theirs]) for other, theirs in _calls(whole))
        for call, words in _calls(part)
    )


def _calls(form: NormalForm) -> list[tuple[tuple[str, ...], Words]]:
    return list(zip(form.calls, form.words, strict=True))


def normalize(action: Message, context: ActionContext) -> NormalForm:
    """Return the normal form of an assistant message."""
    if not action.tool_calls:
        talk = canonical_json(["say", action.content])
        return NormalForm((action.content, talk, talk, '["say"]', "say"), problem="text_only")
    try:
        return _called(action, context)
    except RecursionError:
        # No honest answer nests its arguments a thousand levels deep.
        return NormalForm(("too deep",) * 5, problem="invalid_args")


def _called(action: Message, context: ActionContext) -> NormalForm:
    # A script is compared by what it does: it acts like the calls that it makes.
    made = [inner for call in action.tool_calls for inner in calls_in(call)]
    arguments = [parsed_arguments(call) for call in made]
    raw = [f"{call.name} {_raw(call.arguments)}" for call in made]
    canonical = [
        [call.name, call.arguments if args is None else args] for call, args in zip(made, arguments, strict=True)
    ]
    forms = [
        CallForm({"tool": call.name, "text": call.arguments}, call.name)
        if args is None
        else call_form(call.name, args, context)
        for call, args in zip(made, arguments, strict=True)
    ]
    targets = [[form.kind, *_targets(form, context)] for form in forms]
    levels = (
        "\n".join([action.content, *(f"{call.name} {_raw(call.arguments)}" for call in action.tool_calls)]),
        canonical_json(canonical),
        canonical_json(_in_order(forms)),
        canonical_json(sorted(targets, key=canonical_json)),
        "+".join(sorted(form.kind for form in forms)),
    )
    calls = tuple(
        (text, canonical_json(call), canonical_json(form.value), canonical_json(target), form.kind)
        for text, call, form, target in zip(raw, canonical, forms, targets, strict=True)
    )
    problem = misfit_of(action.tool_calls, list(map(parsed_arguments, action.tool_calls)), context.tools)
    outline, edits = _outlined(forms)
    return NormalForm(
        levels,
        problem,
        texts_left(forms),
        calls,
        tuple(form.words for form in forms),
        outline,
        edits,
        of_shell(form.value["shell"] for form in forms) if all(map(_is_shell, forms)) else NO_WORDS,
    )


def _is_shell(form: CallForm) -> bool:
    return isinstance(form.value, dict) and "shell" in form.value


def _outlined(forms: Sequence[CallForm]) -> tuple[str, tuple[EditRun, ...]]:
    """Return the effects without what edits change, and the edits: of each file its own, in the order of the files."""
    values: list[Any] = []
    runs: list[EditRun] = []
    parts = [part for form in forms for part in form.parts or (form,)]
    for is_edit, run in itertools.groupby(parts, key=lambda form: bool(form.changes)):
        calls = list(run)
        if not is_edit:
            values += _in_order(calls)
            continue
        by_file: dict[str, list[CallForm]] = {}
        for call in calls:
            by_file.setdefault(str(call.value["edit"]), []).append(call)
        for file, own in sorted(by_file.items()):
            values.append({"edit": file})
            last = own[-1].results or {}
            text = last.get(file, "") if len(own) == 1 else ""
            runs.append(EditRun(tuple(change for call in own for change in call.changes), text, file))
    return (canonical_json(values), tuple(runs)) if runs else ("", ())


def _in_order(forms: Sequence[CallForm]) -> list[Any]:
    """Return the effects in order; consecutive calls that only read, or change a known file each, are sorted."""
    values: list[Any] = []
    forms = [part for form in forms for part in form.parts or (form,)]
    for _, run in itertools.groupby(forms, key=lambda form: "read" if form.reads_only else _changes_a_file(form)):
        calls = list(run)
        effects = [form.value for form in calls]
        files = [str(target) for form in calls for target in form.targets]
        if calls[0].reads_only:
            # A second look at the same is no other action.
            effects = list({canonical_json(effect): effect for effect in effects}.values())
        apart = calls[0].reads_only or (_changes_a_file(calls[0]) and len(set(files)) == len(files))
        values += sorted(effects, key=canonical_json) if apart else effects
    return values


def _changes_a_file(form: CallForm) -> bool:
    """Return whether a call writes or edits a file whose place is known, and nothing else."""
    known = all(isinstance(one, str) and not one.startswith("?/") and "/../" not in one for one in form.targets)
    return (
        form.kind in ("write", "edit")
        and len(form.targets) == 1
        and known
        and isinstance(form.value, dict)
        and ("edit" in form.value or "write" in form.value)
    )


def _targets(form: CallForm, context: ActionContext) -> Sequence[Any]:
    """Return the targets of a call; only names if the directory is unknown, since `a.py` may be `/repo/a.py`."""
    if form.kind == "shell":
        return form.targets
    if context.cwd:
        # Through a link `src/../a.py` may be another file, but hardly another intention.
        return [_loose(one) if isinstance(one, str) else one for one in form.targets]
    return sorted(str(target).rstrip("/").rpartition("/")[2] for target in form.targets)


def _loose(target: str) -> str:
    return posixpath.normpath(target) if "/../" in target else target.rstrip("/") or target


def _raw(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
