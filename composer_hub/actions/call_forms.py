"""The form of one tool call: its name and arguments, as any harness spells them -> its effect, targets and words.

A tool or argument that is not known leaves the arguments as they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from composer_hub.actions.arguments import stated_arguments
from composer_hub.actions.edits import (
    FileChange,
    Replacement,
    after_change,
    inserted,
    parse_patch,
    replaced,
    searched_blocks,
)
from composer_hub.actions.paths import enter, normal_path, tidy, without_slash
from composer_hub.actions.shell_form import argv_text, shell_form
from composer_hub.actions.tools import kind_of, known_tool, tool_named, tool_of_kind
from composer_hub.actions.words import NO_WORDS, Words, of_arguments, of_edit, of_file, of_lines, of_shell
from composer_hub.records import canonical_json, stable_id

_PATCH_HEREDOC = re.compile(r"\s*apply_patch\s*<<\s*(['\"])(\w+)\1\n(.*)\n\2\s*", re.DOTALL)
_LINES = re.compile(r"(?<!\d)(\d{1,9}),(\d{1,9})p")
_EDIT_ARGUMENTS = tool_of_kind("edit").arguments
_FRESH_SHELLS = tool_of_kind("shell").fresh
PATH_KEYS = frozenset(("file_path", "filePath", "path", "notebook_path", "target_file", "absolute_path"))
_PLACES = ("file_path", "path", "url")  # arguments of unknown tools that name a target
_AROUND_HITS = frozenset(("after", "before", "around"))
_READ_LIMIT = 2000  # lines that `Read` of Claude Code and `read` of Pi show without a limit
_COMMON_DEFAULTS = (("edit_mode", "replace"), ("cell_type", "code"))
_GLOB_FOLDERS = re.compile(r"(?:[^*?{\[]*/)+")
_CREATORS = tool_of_kind("write").creates


@dataclass(frozen=True, slots=True)
class ActionContext:
    """The state in which an action runs, as far as its effect depends on it."""

    cwd: str = ""  # of the session; file tools start from here
    shell_cwd: str = ""  # the directory of the shell, "" if an earlier command may have changed it
    keeps_cwd: bool = True  # a `cd` lasts until the next call
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> JSON schema of its arguments
    files: Mapping[str, str] = field(
        default_factory=dict
    )  # normal path -> text, for the files that the trace shows in full


class CallForm(NamedTuple):
    """One call: its effect, its kind of tool, the targets, and the file texts it leaves (None if they are unknown)."""

    value: Any
    kind: str
    targets: tuple[Any, ...] = ()
    results: dict[str, str] | None = None
    reads_only: bool = False  # it changes neither a file nor the directory of the shell
    words: Words = NO_WORDS
    parts: tuple[CallForm, ...] = ()  # the calls of file tools that a shell command amounts to
    changes: tuple[Replacement, ...] = ()  # of an edit that is nothing else


def texts_left(forms: Sequence[CallForm]) -> str:
    """Return the file texts that calls leave, as JSON; "" if one is unknown or two leave one file."""
    merged: dict[str, str] = {}
    for form in forms:
        if form.results is None or merged.keys() & form.results.keys():
            return ""
        merged.update(form.results)
    return canonical_json(merged)


def call_form(name: str, arguments: Mapping[str, Any], context: ActionContext) -> CallForm:
    """Return the form of one call; an unknown tool or argument leaves the arguments as they are."""
    arguments = stated_arguments(arguments, context.tools.get(name, {}))
    known = known_tool(name, arguments)
    if known:
        tool, own = known
        if (form := _FORMS[tool.kind](name.lower(), own, context)) is not None:
            return form
    return _unknown(name, arguments, context)


def _unknown(name: str, arguments: Mapping[str, Any], context: ActionContext) -> CallForm:
    named = (arguments.get(key) for key in _PLACES)
    targets = tuple(_file(value, context) for value in named if isinstance(value, str))
    words = of_arguments(name, {key: value for key, value in arguments.items() if key not in _PLACES})
    if isinstance(url := arguments.get("url"), str):
        arguments = {**arguments, "url": url.rstrip("/")}
    if tool_named(name):
        arguments = _without_remarks(arguments, context)
    return CallForm({"tool": name, "args": arguments}, kind_of(name, arguments), targets[:1], words=words)


def _without_remarks(arguments: Mapping[str, Any], context: ActionContext) -> dict[str, Any]:
    """Return the arguments of a tool of which only the family is known: its paths in their normal form, no remarks."""
    plain: dict[str, Any] = {}
    for key, value in arguments.items():
        if key in ("activeForm", "description", "explanation") or (key, value) in _COMMON_DEFAULTS:
            continue
        if isinstance(value, list):
            items = [
                {k: v for k, v in one.items() if k not in ("activeForm", "id")} if isinstance(one, dict) else one
                for one in value
            ]
            plain[key] = items
        else:
            plain[key] = _file(value, context) if key in PATH_KEYS and isinstance(value, str) else value
    return plain


def _file(path: str, context: ActionContext) -> str:
    """Return a file tool's path in its normal form, with a mark if its directory is unknown."""
    normal = normal_path(path, base=context.cwd)
    return f"?/{tidy(path)}" if normal is None else normal


def _folder(path: str, context: ActionContext) -> str:
    return _file(without_slash(path) or ".", context)


def _shell(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    command = own.pop("command")
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        if command[0] == "apply_patch" and len(command) == 2:
            return _patch(name, {"patch": command[1]}, context)
        command = argv_text(command)
    if not isinstance(command, str):
        return None
    if own.pop("is_input", False):
        # Input to a program that is already running is not read by a shell.
        return CallForm({"input": command, **own}, "shell", ("input",))
    if patch := _PATCH_HEREDOC.fullmatch(command):
        return _patch(name, {"patch": patch.group(3)}, context)
    fresh = name in _FRESH_SHELLS or "cwd" in own
    where = context.cwd if fresh else context.shell_cwd
    if isinstance(asked := own.pop("cwd", None), str) and asked:
        where = enter(asked, base=context.cwd, cwd=context.cwd)
    form = shell_form(command, base=context.cwd, cwd=where, keeps_cwd=context.keeps_cwd and not fresh)
    value = form.value.get("do", form.value)
    if own == {"background": True}:
        own, value = {}, {"bg": value}
    reads_only = form.read_only and not form.moves and not own
    # How a command shows a file, and a part of it, are not another opinion.
    words = _look(command) if form.kind == "read" else of_shell([value])
    return CallForm({"shell": value, **own}, form.kind, form.targets, reads_only=reads_only, words=words)


def _look(command: str) -> Words:
    """Return the words of a command that only shows files: the lines that it names, if it names a range."""
    ranges = _LINES.findall(command)
    if len(ranges) != 1:
        return Words("shell")
    first, last = map(int, ranges[0])
    return Words("shell", lines=(first, last - first + 1))


def _search_words(call: Mapping[str, Any]) -> Words:
    # How much is shown around a hit does not change what is searched.
    shown = {*_AROUND_HITS, "search", "paths", *(["limit"] if "offset" not in call else [])}
    words = {key: call[key] for key in call if key not in shown}
    if words.get("output_mode") == "content":
        del words["output_mode"]  # The files with hits, or the hits: one question.
    return of_arguments("search", {"pattern": call["search"], **words})


def _read(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path = own.pop("path")
    if not isinstance(path, str) or not (window := _window(name, own)):
        return None
    file = _file(path, context)
    first, count = window
    return CallForm(
        {"read": file, "lines": window, **own}, "read", (file,), reads_only=True, words=of_lines(first or 1, count)
    )


def _window(name: str, own: dict[str, Any]) -> list[int | None] | None:
    """Remove the window of a read from its arguments; return its first line, counted from 1, and its length."""
    bounds = own.pop("view_range", None) or [own.pop("start_line", 1), own.pop("end_line", -1)]
    offset, limit = own.pop("offset", None), own.pop("limit", None)
    limit = None if name == "read" and limit == _READ_LIMIT else limit
    if not isinstance(bounds, list) or len(bounds) != 2 or not _whole([*bounds, offset, limit]):
        return None
    first, last = bounds
    if offset is not None:
        # Gemini's `read_file` counts from 0; the other tools count from 1 and read 0 as 1.
        first = offset + 1 if name == "read_file" else max(offset, 1)
    return [first, limit if limit is not None or last == -1 else last - first + 1]


def _whole(values: Sequence[Any]) -> bool:
    return all(value is None or (isinstance(value, int) and not isinstance(value, bool)) for value in values)


def _write(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path, content = own["path"], own["content"]
    if not isinstance(path, str) or not isinstance(content, str):
        return None
    file = _file(path, context)
    # A tool that only creates fails if the file exists.
    fails = {"creates": True} if name in _CREATORS and file in context.files else {}
    text = stable_id(content)
    value = {"write": file, "text": text, **fails}
    results = None if fails else {file: text}
    return CallForm(value, "write", (file,), results, words=of_file(content))


def _edit(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path = own["path"]
    edits = replacements(own)
    if not isinstance(path, str) or edits is None:
        return None
    file = _file(path, context)
    if "expected_replacements" not in own:
        return _edit_form(file, edits, context)
    words = of_edit([(one.old, one.new) for one in edits])
    details = {"changes": [[one.old, one.new, one.replace_all] for one in edits]}
    return _edited(file, None, {**details, "expected": own["expected_replacements"]}, words)


def _edit_form(file: str, edits: Sequence[Replacement], context: ActionContext) -> CallForm:
    """Return the form of replacements in a file."""
    after = replaced(context.files[file], edits) if file in context.files else None
    details = {"changes": [[one.old, one.new, one.replace_all] for one in edits]}
    words = of_edit([(one.old, one.new) for one in edits], ["everywhere" for one in edits if one.replace_all])
    return _edited(file, after, details, words)._replace(changes=tuple(edits))


def _edited(file: str, after: str | None, details: Mapping[str, Any], words: Words) -> CallForm:
    """Return the form of an edit: the text it leaves if that is known, else its arguments."""
    if after is None:
        return CallForm({"edit": file, **details}, "edit", (file,), words=words)
    text = stable_id(after)
    return CallForm({"edit": file, "text": text}, "edit", (file,), {file: text}, words=words)


def replacements(own: Mapping[str, Any]) -> list[Replacement] | None:
    """Read the replacements of an edit call, one or a list; None if one is not understood."""
    if isinstance(own.get("diff"), str) and own.keys() <= {"path", "diff"}:
        return searched_blocks(own["diff"])
    listed = own.get("edits", [own])
    if not isinstance(listed, list) or not listed or ("edits" in own and {"old", "new"} & own.keys()):
        return None
    edits = []
    for one in listed:
        if not isinstance(one, Mapping) or any(name not in _EDIT_ARGUMENTS for name in one):
            return None
        plain = {_EDIT_ARGUMENTS[name]: value for name, value in one.items() if value is not None}
        old, new, replace_all = plain.get("old"), plain.get("new"), plain.get("replace_all", False)
        if not isinstance(old, str) or not isinstance(new, str) or not isinstance(replace_all, bool):
            return None
        edits.append(Replacement(old, new, replace_all))
    return edits


def _insert(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path, line, new = own["path"], own["line"], own["new"]
    if not isinstance(path, str) or not isinstance(new, str) or not _whole([line]):
        return None
    file = _file(path, context)
    after = inserted(context.files[file], line, new) if file in context.files else None
    return _edited(file, after, {"line": line, "new": new}, of_edit([("", new)], [f"behind {line}"]))


def _patch(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    changes = parse_patch(own["patch"]) if isinstance(own["patch"], str) else None
    if not changes:
        return None
    forms = [_change(change, context) for change in changes]
    if len(forms) == 1:
        return forms[0]
    results = texts_left(forms)
    parts = tuple(forms) if len({one.targets for one in forms}) == len(forms) else ()
    return CallForm(
        {"patch": [form.value for form in forms]},
        "patch",
        tuple(sorted({target for form in forms for target in form.targets})),
        json.loads(results) if results else None,
        words=of_edit(_replaced_lines(changes)),
        parts=parts,
    )


def _replaced_lines(changes: Iterable[FileChange]) -> Iterator[tuple[str, str]]:
    for change in changes:
        yield "", change.content
        yield from (("\n".join(hunk.old), "\n".join(hunk.new)) for hunk in change.hunks)


def _change(change: FileChange, context: ActionContext) -> CallForm:
    file = _file(change.path, context)
    if change.act == "delete":
        return CallForm({"delete": file}, "delete", (file,))
    if change.act == "add":
        return _write("", {"path": change.path, "content": change.content}, context) or CallForm({}, "write")
    hunks = [[list(hunk.anchors), list(hunk.old), list(hunk.new), hunk.at_end] for hunk in change.hunks]
    words = of_edit(_replaced_lines([change]))
    if change.moved_to:
        value = {"edit": file, "to": _file(change.moved_to, context), "hunks": hunks}
        return CallForm(value, "edit", (file,), words=words)
    known = {change.path: context.files[file]} if file in context.files else {}
    form = _edited(file, after_change(change, known), {"hunks": hunks}, words)
    if any(hunk.at_end for hunk in change.hunks):
        return form
    lines = (("\n".join(hunk.old), "\n".join(hunk.new), hunk.anchors) for hunk in change.hunks)
    return form._replace(
        changes=tuple(Replacement(f"{old}\n", f"{new}\n" if new else "", anchors=at) for old, new, at in lines)
    )


def _search(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    paths = own.pop("path", ".")
    paths = paths if isinstance(paths, list) else [paths]
    if not all(isinstance(path, str) for path in paths):
        return None
    files = sorted({_folder(path, context) for path in paths})
    pattern = own.pop("pattern")
    if not isinstance(pattern, str):
        return None
    words = _search_words({"search": pattern, **own})
    return CallForm({"search": pattern, "paths": files, **own}, "search", tuple(files), reads_only=True, words=words)


def _reads(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    paths = own.pop("paths")
    if not isinstance(paths, list) or not paths or own:
        return None
    parts = [_read("read", {"path": path}, context) for path in paths]
    if not all(parts):
        return None
    forms = tuple(part for part in parts if part)
    files = tuple(sorted({str(part.targets[0]) for part in forms}))
    return CallForm([part.value for part in forms], "read", files, reads_only=True, words=Words("shell"), parts=forms)


def _delete(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    if not isinstance(own["path"], str):
        return None
    file = _file(own["path"], context)
    return CallForm({"delete": file}, "delete", (file,))


def _glob(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path = own.get("path", ".")
    if not isinstance(path, str):
        return None
    pattern = own["pattern"]
    if isinstance(pattern, str) and (start := _GLOB_FOLDERS.match(pattern)):
        pattern, path = pattern[start.end() :], start[0] if start[0][0] == "/" else f"{path.rstrip('/')}/{start[0]}"
    file = _folder(path, context)
    words = of_arguments("glob", pattern)
    return CallForm({"glob": pattern, "path": file}, "glob", (file,), reads_only=True, words=words)


def _list(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path = own.pop("path", ".")
    if not isinstance(path, str):
        return None
    file = _folder(path, context)
    return CallForm({"list": file, **own}, "list", (file,), reads_only=True)


_Form = Callable[[str, dict[str, Any], ActionContext], CallForm | None]
_FORMS: Mapping[str, _Form] = {
    "shell": _shell,
    "read": _read,
    "write": _write,
    "edit": _edit,
    "insert": _insert,
    "patch": _patch,
    "search": _search,
    "glob": _glob,
    "list": _list,
    "reads": _reads,
    "delete": _delete,
}
