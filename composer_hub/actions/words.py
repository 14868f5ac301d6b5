"""The words of an action: a loose comparison, if the strict one cannot show that two actions do the same.

In: the form of a shell command, or the arguments of a tool. Out: `Words`. Two actions whose words are the same most
likely do the same, however they are put together: loops, chains, pipes, quotes, layout, the order of options,
short and long names. If words have a place (an edit, the operands of `mv`), their order counts. No program is
known here except for a few whose words mean nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from composer_hub.actions import programs

_CODE = re.compile(r"(?m)^[ \t]+(?=\S)|\w+|[^\w\s'\"`,;\\]")
_WORD = re.compile(r"\d+:\d+|\w+|\.\.\.?|[^\w\s'\"`,;\\./:(){}\[\]|&]")
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))(?:#|//) [^\n]*|/\*[\s\S]*?\*/")
_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?:=(?P<value>.*))?", re.DOTALL)
_LETTERS = re.compile(r"-[A-Za-z]{2,4}")
_ATTACHED = re.compile(r"-([A-Za-z])(\d+)")
_NUMBER = re.compile(r"-?0*(\d+)s?")  # 0755 is 755, and 60s, to `timeout`, is 60
_PROSE = frozenset(("description", "explanation", "instruction", "prompt", "reason", "thought", "activeForm"))
_IDLE = frozenset(("cat", "true", ":", "export", "echo", "printf", "tee", "env", "python", "python3"))
_LIMITS = programs.WRAPPERS | {"time"}
_OUTPUT = frozenset(
    "verbose quiet silent color colour no-color no-pager progress no-progress no-header s q vv yes "
    "plain pretty line-number no-heading print print0 verbosity".split()
)
"""Options of any program that change what is printed, or who answers questions."""
_WRITTEN_IN_DIALECTS = programs.SEARCHERS | programs.INTERPRETERS | {"sed"}
_NOTATION = frozenset("EeFGcnH")
"""Options of these programs that introduce a pattern or code, or name its dialect."""
_MAX_ROTATED = 400

# The text, and how it is used: program, placed (its place counts), word, flag, joint or code.
_Token = tuple[str, str]


class Words(NamedTuple):
    """The words of one call, or of all shell commands of an action."""

    style: str = ""  # of the arguments: shell, edit, write, read, list, search, or the name of an unknown tool
    words: tuple[tuple[str, int], ...] = ()  # with their number, which counts for an edit only
    flags: tuple[str, ...] = ()
    order: tuple[str, ...] = ()  # those whose place counts
    joints: frozenset[str] = frozenset()  # `||` and redirections, between commands
    lines: tuple[int, int | None] | None = None  # of a read: the first, and how many

    @property
    def names(self) -> frozenset[str]:
        return frozenset(word for word, _ in self.words)


NO_WORDS = Words()


def of_shell(values: Iterable[Any]) -> Words:
    """Return the words of the forms of shell commands."""
    tokens = [token for value in values for token in _tokens(value)]
    texts = Counter(text for text, kind in tokens if kind in ("program", "placed", "word"))
    placed = dict.fromkeys(text for text, kind in tokens if kind in ("program", "placed"))
    flags = tuple(sorted({text for text, kind in tokens if kind == "flag"}))
    joints = frozenset(text for text, kind in tokens if kind == "joint")
    return Words("shell", _counted(texts), flags, tuple(placed), joints)


def of_edit(changes: Iterable[tuple[str, str]], details: Sequence[Any] = ()) -> Words:
    """Return the words that replacements add and remove; lines that only locate them cancel out."""
    balance: Counter[str] = Counter(map(str, details))
    changes = list(changes)
    tokens = [(words_of_code(old), words_of_code(new)) for old, new in changes]
    if all(old == new for old, new in tokens):
        tokens = [(_CODE.findall(old), _CODE.findall(new)) for old, new in changes]  # It edits comments.
    for old, new in tokens:
        balance.update(new)
        balance.subtract(old)
    return Words("edit", _counted(balance), order=_changed(*tokens[0]) if len(tokens) == 1 else ())


def of_file(content: str) -> Words:
    """Return the words of a written file."""
    words = words_of_code(content)
    return Words("write", _counted(Counter(words)), order=tuple(words))


def of_lines(first: int, count: int | None) -> Words:
    """Return the window of a read."""
    return Words("read", lines=(first, count))


def of_arguments(style: str, arguments: Any) -> Words:
    """Return the words of arguments without prose, such as those of a search or of an unknown tool."""
    words = list(_in_arguments(arguments))
    return Words(style, _counted(Counter(words)), order=tuple(words))


def words_of_code(text: str) -> list[str]:
    """Return the words of a text in their order, with the indentation, without comments."""
    code = _COMMENT.sub("", text)
    return _CODE.findall(code if code.strip() else text)


def _counted(words: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((word, count) for word, count in words.items() if count))


# --------------------------------------------------------------------------------------------------------- comparison


def differ(one: Sequence[Words], other: Sequence[Words]) -> bool:
    """Return whether the calls of two actions on the same targets have other words, or read other lines."""
    ours, theirs = sorted(one, key=lambda call: call[:4]), sorted(other, key=lambda call: call[:4])
    return len(ours) != len(theirs) or any(_differs(a, b) for a, b in zip(ours, theirs, strict=True))


def _differs(a: Words, b: Words) -> bool:
    if a.lines or b.lines:  # The whole of a file and a part of it are one look.
        return bool(a.lines and b.lines) and _apart(a.lines, b.lines)  # type: ignore[arg-type]
    if a.style != b.style:
        tool, shell = (b, a) if a.style == "shell" else (a, b)
        # A tool and a command on the same target: only words that the command lacks are certain to differ.
        return shell.style == "shell" and bool(_added(tool) - shell.names)
    if a.style == "shell":
        return a != b and not same_words(a, b)
    return a.words != b.words or a.order != b.order


def _added(tool: Words) -> set[str]:
    """Return the words that a call names, or that an edit adds, in the words of a shell."""
    words = tool.order[tool.order.index("+") + 1 :] if tool.style == "edit" and "+" in tool.order else tool.names
    return {part for word in words for part in _WORD.findall(word.partition("=")[2] or word) if part.isalnum()}


def same_words(one: Words, other: Words) -> bool:
    """Return whether nothing that two shell commands name is certain to make a difference."""
    if not one.words or one.joints != other.joints or one.names != other.names:
        return False
    common = set(one.order) & set(other.order)
    if [word for word in one.order if word in common] != [word for word in other.order if word in common]:
        return False
    return _same_flags(one.flags, other.flags)


def makes_edit(shell: Words, file: str, edit: Words) -> bool:
    """Return whether a command names a file and all words that an edit of it adds: most likely it makes that edit."""
    added = _added(edit) if edit.style == "edit" and "+" in edit.order else set()
    return bool(added) and set(_WORD.findall(file.rpartition("/")[2])) <= shell.names and added <= shell.names


def _same_flags(ours: Iterable[str], theirs: Iterable[str]) -> bool:
    """Return whether options may be the same ones: a letter may abbreviate a name."""
    left, right = set(ours) - set(theirs), set(theirs) - set(ours)
    for option in sorted(left):
        match = next((name for name in sorted(right) if _may_mean(option, name) or _may_mean(name, option)), None)
        if match is None:
            return False
        right.remove(match)
    return not right


def _may_mean(letter: str, name: str) -> bool:
    return (len(letter) == 1 and len(name) > 1 and name[0] == letter[0].lower()) or {letter, name} == {"r", "R"}


def _apart(a: tuple[int, int | None], b: tuple[int, int | None]) -> bool:
    """Return whether two windows of a file share few lines; the whole file and a part of it are one look."""
    (first, count), (other, more) = sorted((a, b), key=lambda lines: lines[0])
    if count is None:
        return False
    return 2 * (first + count - other) < (count if more is None else min(count, more))


# ------------------------------------------------------------------------------------------------------------- tokens


def _tokens(value: Any) -> Iterator[_Token]:
    if isinstance(value, list):
        yield from _joined([(";", one) for one in value])
    elif not isinstance(value, dict):
        yield from _spoken(str(value))
    elif "run" in value:
        yield from _call(value)
    elif "chain" in value:
        yield from _joined(list(zip(["", *value["chain"][1::2]], value["chain"][::2], strict=True)))
    elif "pipe" in value:
        first, *rest = value["pipe"][::2]
        rest = [one for one in rest if _program(one) not in programs.SHAPERS or list(_redirects(one.get("to", ())))]
        # `cat x | jq .a` is `jq .a x`.
        for one in [*rest[:1], first, *rest[1:]] if _program(first) == "cat" and rest else [first, *rest]:
            yield from _tokens(one)
        yield from _redirects(value.get("to", ()))
    else:
        for key, one in value.items():
            if key == "to":
                yield from _redirects(one)
            else:
                yield from ((key, "joint") for key in [key] if key in ("bg", "not"))
                yield from _tokens(one)


def _joined(parts: Sequence[tuple[str, Any]]) -> Iterator[_Token]:
    """Yield the tokens of commands, and whether one is for the failure of another."""
    acts = [(joint, one) for joint, one in parts if not _is_silent(one)] or parts
    for number, (joint, one) in enumerate(acts):
        if number and joint == "||":
            yield joint, "joint"
        yield from _tokens(one)


def _is_silent(value: Any) -> bool:
    """Return whether a command only talks, or enters a known folder: each later call has that in its form."""
    if not isinstance(value, dict) or list(_redirects(value.get("to", ()))):
        return False
    name = _program(value)
    if name in programs.MOVERS:
        return all(isinstance(one, dict) and "path" in one for one in value.get("args", ()))
    return name in programs.SILENT - {"export", "set", "unset"}


def _program(value: Any) -> str:
    return str(value.get("run", "")) if isinstance(value, dict) else ""


def _call(value: dict[str, Any]) -> Iterator[_Token]:
    run = value["run"] if isinstance(value["run"], str) else " ".join(_texts(value["run"]))
    if "call" in value and run in _LIMITS:
        yield from _spoken([text for text in _texts(value.get("args", ())) if "=" in text and text[:1] != "-"])
        yield from _call(value["call"])
        return
    names = run.removeprefix("python -m ").removeprefix("python3 -m ").split(" ")
    names = ["grep"] if run in programs.SEARCHERS else [name.rpartition("/")[2] for name in names if name not in _IDLE]
    yield from ((name, "program") for name in names)
    # Without options, every operand of a program has its place; an option may take the next word along.
    has_options = value.get("opts") or any(str(one).startswith("-") for one in value.get("args", ()))
    kind = "word" if has_options and not (names[:1] and names[0] in programs.PLACED) else "placed"
    for name, *values in (*value.get("opts", ()), *value.get("rest", ())):
        yield from _flags(name, run)
        yield from _spoken(values)
    if "call" in value:
        yield from _call(value["call"])
    yield from _spoken([value.get("env", []), value.get("in", [])])
    for one in value.get("args", ()):
        option = _OPTION.fullmatch(one) if isinstance(one, str) else None
        yield from _option(option, run) if option else _operand(one, kind)
    yield from _redirects(value.get("to", ()))


def _option(option: re.Match[str], run: str) -> Iterator[_Token]:
    """Yield the flags of a word that looks like an option, and the words of its value."""
    word = option[0]
    if attached := _ATTACHED.fullmatch(word):
        yield from (*_flags(attached[1]), (attached[2], "word"))
    elif _LETTERS.fullmatch(word) and run not in programs.FINDERS:
        yield from (token for letter in word[1:] for token in _flags(letter, run))
    else:
        yield from _flags(option["name"], run)
        yield from _spoken(option["value"] or "")


def _operand(value: Any, kind: str) -> Iterator[_Token]:
    for text in _texts(value) if value != "--" else ():
        number = _NUMBER.fullmatch(text)
        yield from ((word, kind) for word in ([number[1]] if number else _WORD.findall(text)))


def _spoken(value: Any) -> Iterator[_Token]:
    """Yield the words of a form whose places do not count."""
    return ((word, "word") for text in _texts(value) for word in _WORD.findall(text))


def _flags(name: str, run: str = "") -> Iterator[_Token]:
    if name not in _OUTPUT and not (name in _NOTATION and run in _WRITTEN_IN_DIALECTS):
        yield name, "flag"


def _redirects(redirects: Iterable[Any]) -> Iterator[_Token]:
    redirects = list(redirects)
    if [one[:2] for one in redirects] == [["2", ">&"], ["", ">"]]:
        yield "2>&1", "joint"  # Errors are not written to that file.
    for fd, op, target, *expands in redirects:
        if op in ("<<", "<<<", "<") or (op in (">", ">>") and not fd and target != {"path": "/dev/null"}):
            if op in (">", ">>"):
                yield op, "joint"
            if "expands" in expands:
                yield "$", "joint"
            yield from _spoken(target)


def _texts(value: Any) -> Iterator[str]:
    """Yield the words of a form; a path in its normal form, or as it is written if its folder is unknown."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
    elif str(value):
        yield str(value)


def _in_arguments(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key in sorted(value):
            if key not in _PROSE:
                yield from _in_arguments(value[key], f"{name}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from _in_arguments(one, name)
    else:
        # A number or a switch means nothing without its name.
        yield from (f"{name}={word}" for word in (_CODE.findall(value) if isinstance(value, str) else [str(value)]))


def _changed(old: list[str], new: list[str]) -> tuple[str, ...]:
    """Return the words removed, then those added, without the common beginning and end."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    if not removed or not added:
        # Where an insertion begins depends on the context: `b a` in `[a] b a [b]` may also be `a b`.
        only = removed or added
        if len(only) > _MAX_ROTATED:
            return ()
        removed, added = ([], only) if added else (only, [])
        return ("-" if removed else "+", *min(only[at:] + only[:at] for at in range(max(len(only), 1))))
    return ("-", *removed, "+", *added)
