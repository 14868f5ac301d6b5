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

import itertools
import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from composer_hub.actions.edits import FileChange, Replacement, after_change, inserted, parse_patch, replaced
from composer_hub.actions.paths import enter, normal_path, tidy, without_slash
from composer_hub.actions.shell_form import argv_text, shell_form
from composer_hub.actions.substance import Substance, differ, of_arguments, of_edit, of_file, of_lines, of_shell
from composer_hub.actions.tools import kind_of, known_tool, tool_of_kind
from composer_hub.records import Message, ToolCall, canonical_json, stable_id

LEVELS = ("L0", "L1", "L2", "L3", "L4")

_PATCH_HEREDOC = re.compile(r"\s*apply_patch\s*<<\s*(['\"])(\w+)\1\n(.*)\n\2\s*", re.DOTALL)
_EDIT_ARGUMENTS = tool_of_kind("edit").arguments
_FRESH_SHELLS = tool_of_kind("shell").fresh
_PLACES = ("file_path", "path", "url")  # arguments of unknown tools that name a target
_AROUND_HITS = frozenset(("after", "before", "around"))
_READ_LIMIT = 2000  # lines that `Read` of Claude Code and `read` of Pi show without a limit
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


@dataclass(frozen=True, slots=True)
class NormalForm:
    """An action at every level, with the reason if it cannot be compared at all."""

    levels: tuple[str, str, str, str, str]
    problem: str = ""  # text_only, invalid_args or unknown_tool
    results: str = ""  # the files it leaves behind, if it only writes files and their texts are known
    calls: tuple[tuple[str, ...], ...] = ()  # each call alone, at every level
    substance: tuple[Substance, ...] = ()  # of each call

    def at(self, level: str) -> str:
        return self.levels[LEVELS.index(level)]

    @property
    def text(self) -> str:
        """The form at L2, as in `Vote.normal_form`."""
        return self.levels[2]


class CallForm(NamedTuple):
    """One call: its effect, its kind of tool, the targets, and the file texts it leaves (None if they are unknown)."""

    value: Any
    kind: str
    targets: tuple[Any, ...] = ()
    results: dict[str, str] | None = None
    reads_only: bool = False  # it changes neither a file nor the directory of the shell
    substance: Substance = Substance()


def same(a: NormalForm, b: NormalForm, level: str = "L2") -> bool:
    """Return whether two actions are the same at a level."""
    return a.at(level) == b.at(level)


def close(a: NormalForm, b: NormalForm, level: str = "L3") -> bool:
    """Return whether two actions are the same at a level; at L3, not if their code or commands differ in words."""
    if not same(a, b, level):
        return False
    return level != "L3" or same(a, b) or not differ(a.substance, b.substance)


def part_of(part: NormalForm, whole: NormalForm, level: str = "L2") -> bool:
    """Return whether an action makes some of another's calls, but not all, and no other ones."""
    place = LEVELS.index(level)
    calls, others = (Counter(call[place] for call in form.calls) for form in (part, whole))
    return bool(calls) and calls < others


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
    arguments = [parsed_arguments(call) for call in action.tool_calls]
    raw = [f"{call.name} {_raw(call.arguments)}" for call in action.tool_calls]
    canonical = [
        [call.name, call.arguments if args is None else args]
        for call, args in zip(action.tool_calls, arguments, strict=True)
    ]
    forms = [
        CallForm({"tool": call.name, "text": call.arguments}, call.name)
        if args is None
        else call_form(call.name, args, context)
        for call, args in zip(action.tool_calls, arguments, strict=True)
    ]
    targets = [[form.kind, *_targets(form, context)] for form in forms]
    levels = (
        "\n".join([action.content, *raw]),
        canonical_json(canonical),
        canonical_json(_in_order(forms)),
        canonical_json(sorted(targets, key=canonical_json)),
        "+".join(sorted(form.kind for form in forms)),
    )
    calls = tuple(
        (text, canonical_json(call), canonical_json(form.value), canonical_json(target), form.kind)
        for text, call, form, target in zip(raw, canonical, forms, targets, strict=True)
    )
    problem = _problem(action.tool_calls, arguments, context.tools)
    return NormalForm(levels, problem, _results(forms), calls, tuple(form.substance for form in forms))


def _in_order(forms: Sequence[CallForm]) -> list[Any]:
    """Return the effects in order; consecutive calls that only read, or change a known file each, are sorted."""
    values: list[Any] = []
    for _, run in itertools.groupby(forms, key=lambda form: "read" if form.reads_only else _changes_a_file(form)):
        calls = list(run)
        effects = [form.value for form in calls]
        files = [str(target) for form in calls for target in form.targets]
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


def parsed_arguments(call: ToolCall) -> dict[str, Any] | None:
    """Return a call's arguments as an object; None if they are not one."""
    arguments = call.arguments
    if isinstance(arguments, str):
        if call.name.lower() in ("apply_patch", "applypatch") and arguments.lstrip().startswith("*** Begin Patch"):
            return {"input": arguments}
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return {} if arguments is None else arguments if isinstance(arguments, dict) else None


def _raw(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def _results(forms: Sequence[CallForm]) -> str:
    merged: dict[str, str] = {}
    for form in forms:
        if form.results is None or merged.keys() & form.results.keys():
            return ""
        merged.update(form.results)
    return canonical_json(merged)


# ---------------------------------------------------------------------------------------------------- valid calls


def _problem(
    calls: Sequence[ToolCall], arguments: Sequence[dict[str, Any] | None], tools: Mapping[str, Mapping[str, Any]]
) -> str:
    if tools and any(call.name not in tools for call in calls):
        return "unknown_tool"
    pairs = zip(calls, arguments, strict=True)
    if any(args is None or _misfits(args, tools.get(call.name, {})) for call, args in pairs):
        return "invalid_args"
    return ""


def _misfits(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Return whether a required argument is missing or one has a plainly wrong type."""
    if any(name not in arguments for name in schema.get("required") or ()):
        return True
    properties = schema.get("properties") or {}
    return any(
        value is not None and not _fits(typed(value, properties[name]), properties[name])
        for name, value in arguments.items()
        if isinstance(properties.get(name), Mapping)
    )


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        return True
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def typed(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a value in the type of its schema: "true" as true, "5" and 5.0 as 5."""
    kind = schema.get("type")
    if isinstance(value, str) and kind == "boolean" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if isinstance(value, str) and kind in ("integer", "number") and re.fullmatch(r"-?\d{1,15}", value):
        return int(value)
    return _number(value)


def _number(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_number(one) for one in value]
    return {name: _number(one) for name, one in value.items()} if isinstance(value, dict) else value


# -------------------------------------------------------------------------------------------------- forms of calls


def call_form(name: str, arguments: Mapping[str, Any], context: ActionContext) -> CallForm:
    """Return the form of one call; an unknown tool or argument leaves the arguments as they are."""
    arguments = _stated(arguments, context.tools.get(name, {}))
    known = known_tool(name, arguments)
    if known:
        tool, own = known
        if (form := _FORMS[tool.kind](name.lower(), own, context)) is not None:
            return form
    return _unknown(name, arguments, context)


def _stated(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Type the arguments and drop those that are None or equal to the schema's default."""
    properties = schema.get("properties") or {}
    stated: dict[str, Any] = {}
    for name, value in arguments.items():
        about = properties.get(name)
        about = about if isinstance(about, Mapping) else {}
        value = typed(value, about)
        if value is not None and not ("default" in about and canonical_json(about["default"]) == canonical_json(value)):
            stated[name] = value
    return stated


def _unknown(name: str, arguments: Mapping[str, Any], context: ActionContext) -> CallForm:
    named = (arguments.get(key) for key in _PLACES)
    targets = tuple(_file(value, context) for value in named if isinstance(value, str))
    words = of_arguments(name, {key: value for key, value in arguments.items() if key not in _PLACES})
    return CallForm({"tool": name, "args": arguments}, kind_of(name, arguments), targets[:1], substance=words)


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
    reads_only = form.read_only and not form.moves and not own
    # Other options of a listing, or another part of the same file, are no other opinion.
    words = Substance("shell") if form.kind in ("read", "list") else of_shell(form.value, settled=bool(where))
    return CallForm({"shell": form.value, **own}, form.kind, form.targets, reads_only=reads_only, substance=words)


def _read(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path = own.pop("path")
    if not isinstance(path, str) or not (window := _window(name, own)):
        return None
    file = _file(path, context)
    first, count = window
    return CallForm(
        {"read": file, "lines": window, **own}, "read", (file,), reads_only=True, substance=of_lines(first or 1, count)
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
    value = {"write": file, "text": stable_id(content), **fails}
    results = None if fails else {file: stable_id(content)}
    return CallForm(value, "write", (file,), results, substance=of_file(content))


def _edit(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path = own["path"]
    edits = replacements(own)
    if not isinstance(path, str) or edits is None:
        return None
    file = _file(path, context)
    counted = "expected_replacements" in own
    after = None if counted or file not in context.files else replaced(context.files[file], edits)
    details = {"changes": [[one.old, one.new, one.replace_all] for one in edits]}
    words = of_edit([(one.old, one.new) for one in edits], ["everywhere" for one in edits if one.replace_all])
    if counted:
        details["expected"] = own["expected_replacements"]
    return _edited(file, after, details, words)


def _edited(file: str, after: str | None, details: Mapping[str, Any], words: Substance) -> CallForm:
    """Return the form of an edit: the text it leaves if that is known, else its arguments."""
    if after is None:
        return CallForm({"edit": file, **details}, "edit", (file,), substance=words)
    text = stable_id(after)
    return CallForm({"edit": file, "text": text}, "edit", (file,), {file: text}, substance=words)


def replacements(own: Mapping[str, Any]) -> list[Replacement] | None:
    """Read the replacements of an edit call, one or a list; None if one is not understood."""
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
    results = _results(forms)
    return CallForm(
        {"patch": [form.value for form in forms]},
        "patch",
        tuple(sorted({target for form in forms for target in form.targets})),
        json.loads(results) if results else None,
        substance=of_edit(_replaced_lines(changes)),
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
        return CallForm(value, "edit", (file,), substance=words)
    known = {change.path: context.files[file]} if file in context.files else {}
    return _edited(file, after_change(change, known), {"hunks": hunks}, words)


def _search(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    paths = own.pop("path", ".")
    paths = paths if isinstance(paths, list) else [paths]
    if not all(isinstance(path, str) for path in paths):
        return None
    files = tuple(sorted({_folder(path, context) for path in paths}))
    pattern = own.pop("pattern")
    # How much is shown around a hit does not change what is searched.
    words = of_arguments("search", {"pattern": pattern, **{key: own[key] for key in own if key not in _AROUND_HITS}})
    return CallForm({"search": pattern, "paths": files, **own}, "search", files, reads_only=True, substance=words)


def _glob(name: str, own: dict[str, Any], context: ActionContext) -> CallForm | None:
    path = own.get("path", ".")
    if not isinstance(path, str):
        return None
    file = _folder(path, context)
    words = of_arguments("glob", own["pattern"])
    return CallForm({"glob": own["pattern"], "path": file}, "glob", (file,), reads_only=True, substance=words)


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
}
