"""The words of an action beyond its target: the loose comparison of code and commands.

In: the arguments of a call. Out: its words, without the spelling of paths, context lines, spacing between words, and
what only shapes or labels the output. Two edits of a file with the same words are most likely the same edit; with other
words, or the same words in another order, one of them may be wrong. Only calls of one style are compared: nothing is
claimed about `sed -i` and an `Edit`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from composer_hub.actions import programs

_CODE = re.compile(r"(?m)^[ \t]+(?=\S)|\w+|[^\w\s'\"`,;]")
_ASKED = frozenset(
    "what where which when does that this with from into code file files the and for are how find".split()
)
_STATUS = re.compile(r"'status': '(\w+)'")
_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s",:]+')
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))(?:#|//) [^\n]*|/\*[\s\S]*?\*/")
_OPTION = re.compile(r"--(?P<name>[A-Za-z][\w-]*)(?P<value>=.*)?|-(?P<letters>[A-Za-z]+)(?P<rest>.*)", re.DOTALL)
_PORTS = re.compile(r"\d+:\d+")
_NUMBER = re.compile(r"0*(\d+)s?")  # 0755 is 755, and 60s, to `timeout`, is 60
_PROSE = frozenset(("description", "explanation", "instruction", "prompt", "reason", "thought", "activeForm"))
_HOST = re.compile(r"([\w@.-]+):(?=[/~])(?!//)")
_NO_PATH = re.compile(r"[\s*?]|\.\.\.")
_MAX_ROTATED = 400
FROM_END = 10**9  # the first line of the last ones, whose number is not known

# The text, and what it is: placed (its place matters), loose, option, or `-x`: the word behind that option.
_Token = tuple[str, str]


class Substance(NamedTuple):
    """The words of a call, or () for a call that its target describes well enough."""

    style: str = ""  # of the arguments: shell, read, search, edit, …
    words: tuple[tuple[str, int], ...] = ()  # with their number
    options: tuple[str, ...] = ()  # of programs that are not known
    order: tuple[str, ...] = ()  # those whose order matters; () if it is not known
    lines: tuple[int, int | None] | None = None  # of a read: the first, and how many
    bound: tuple[tuple[str, str], ...] = ()  # options of unknown programs, by first letter, and the word behind each


def differ(one: Iterable[Substance], other: Iterable[Substance]) -> bool:
    """Return whether two actions in the same styles have other words, or read other lines."""
    ours, theirs = (sorted(calls, key=lambda call: call[:4]) for calls in (one, other))
    if [call.style for call in ours] != [call.style for call in theirs]:
        return len(ours) == len(theirs) == 1 and (_adds_more(ours[0], theirs[0]) or _adds_more(theirs[0], ours[0]))
    return any(_differs(a, b) for a, b in zip(ours, theirs, strict=True))


def _adds_more(edit: Substance, script: Substance) -> bool:
    """Return whether an edit adds words that a command does not name."""
    if edit.style != "edit" or script.style != "shell" or "+" not in edit.order or not script.words:
        return False
    return not set(edit.order[edit.order.index("+") + 1 :]) <= {word for word, _ in script.words}


def _differs(a: Substance, b: Substance) -> bool:
    if a.style == "status":
        return a.order != b.order
    if a.style.lower() in programs.ASKERS:
        ours, theirs = set(a.words), set(b.words)
        return 2 * len(ours & theirs) < min(len(ours), len(theirs))
    renamed = a.words == b.words and _renamed(a, b)
    if a.words != b.words or not (renamed or same_options(a.options, b.options)) or _ordered_apart(a.order, b.order):
        return True
    if any(_behind(a.bound, name) != _behind(b.bound, name) for name in dict(a.bound).keys() & dict(b.bound).keys()):
        return True
    return bool(a.lines and b.lines) and _apart(a.lines, b.lines)  # type: ignore[arg-type]


def _behind(bound: Iterable[tuple[str, str]], name: str) -> list[str]:
    return [word for option, word in bound if option == name]


def _ordered_apart(a: Sequence[str], b: Sequence[str]) -> bool:
    """Return whether the words that have a place in both stand in another order."""
    in_both = set(a) & set(b)
    return [word for word in a if word in in_both] != [word for word in b if word in in_both]


def same_options(ours: Iterable[str], theirs: Iterable[str]) -> bool:
    """Return whether options of unknown programs may be the same ones: a letter may stand for a name."""
    one, other = Counter(ours), Counter(theirs)
    left, right = sorted((one - other).elements()), sorted((other - one).elements())
    for option in left:
        match = next((name for name in right if _may_mean(option, name) or _may_mean(name, option)), None)
        if match is None:
            return False
        right.remove(match)
    return not right


def _renamed(a: Substance, b: Substance) -> bool:
    """Return whether the options differ in one letter and one name with the same value behind: `-j 8`, `--jobs 8`."""
    ours, theirs = Counter(a.options) - Counter(b.options), Counter(b.options) - Counter(a.options)
    names = [*ours.elements(), *theirs.elements()]
    if (
        sum(ours.values()) != 1
        or sum(theirs.values()) != 1
        or sorted(len(name) == 1 for name in names) != [False, True]
    ):
        return False
    mine, yours = (_behind(call.bound, f"-{name[0].lower()}") for call, name in zip((a, b), names, strict=True))
    return mine == yours != []


def _may_mean(letter: str, name: str) -> bool:
    return (len(letter) == 1 and len(name) > 1 and name.startswith(letter)) or {letter, name} == {"r", "R"}


def _apart(a: tuple[int, int | None], b: tuple[int, int | None]) -> bool:
    """Return whether two windows of a file share few lines; the whole file and a part of it are one look."""
    (first, count), (other, more) = sorted((a, b), key=lambda lines: lines[0])
    if other >= FROM_END > first:
        return first > 1 or count is not None
    if count is None:
        return False
    return 2 * (first + count - other) < (count if more is None else min(count, more))


def words_of_code(text: str, file: str = "") -> list[str]:
    """Return the words of a text in their order, without comments; with indentation where the language reads it."""
    code = _COMMENT.sub("", text)
    words = _CODE.findall(code if code.strip() else text)
    if not file.endswith(programs.BRACES):
        return words
    # A block of one statement may do without its braces.
    return [word for word in words if not word.isspace() and word not in "{}"]


def of_edit(changes: Iterable[tuple[str, str]], details: Sequence[Any] = (), file: str = "") -> Substance:
    """Return what replacements add and remove; lines that only locate them are in the old and in the new text."""
    balance: Counter[str] = Counter(map(str, details))
    changes = list(changes)
    tokens = [(words_of_code(old, file), words_of_code(new, file)) for old, new in changes]
    if all(old == new for old, new in tokens):
        tokens = [(_CODE.findall(old), _CODE.findall(new)) for old, new in changes]  # It edits comments.
    for old, new in tokens:
        balance.update(new)
        balance.subtract(old)
    words = tuple(sorted((word, count) for word, count in balance.items() if count))
    return Substance("edit", words, (), _changed(*tokens[0]) if len(tokens) == 1 else ())


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


def of_file(content: str, file: str = "") -> Substance:
    """Return the words of a written file, with the indentation where a language reads it."""
    words = _JSON.findall(content) if file.endswith(".json") else words_of_code(content, file)
    return _substance("write", ((word, "placed") for word in words))


def of_lines(first: int, count: int | None) -> Substance:
    """Return the window of a read."""
    return Substance("read", lines=(first, count))


def of_arguments(style: str, arguments: Any) -> Substance:
    """Return the words of arguments without prose, such as those of a search or of an unknown tool."""
    if style.lower() in programs.PLANNERS and (statuses := _STATUS.findall(str(arguments))):
        # How far the tasks are is a claim; how they are worded is not.
        return Substance("status", order=tuple(statuses))
    if style.lower() in programs.ASKERS:
        stems = {word.lower()[:5] for text, _ in _in_arguments(arguments) for word in [text.partition("=")[2]]}
        return Substance(style, tuple((stem, 1) for stem in sorted(stems - _ASKED) if len(stem) > 2))
    return _substance(style, _in_arguments(arguments))


def of_listing(value: Any) -> Substance:
    """Return what a listing shows: the folder itself, all below it, or its entries; the rest is no other opinion."""
    options = value.get("opts", ()) if isinstance(value, dict) else ()
    return Substance("list", options=tuple(sorted(one[0] for one in options if one[0] in ("d", "R"))))


def of_shell(value: Any, *, settled: bool) -> Substance:
    """Return the words of a shell command's form; unless the directory is `settled`, a `cd` may lead to where it is."""
    silent = programs.SILENT - {"export", "unset"}
    return _substance("shell", _in_shell(value, silent - programs.MOVERS if settled else silent))


def _substance(style: str, tokens: Iterable[_Token]) -> Substance:
    listed = list(tokens)
    words = tuple(sorted(Counter(text for text, kind in listed if kind != "option").items()))
    options, order = (tuple(text for text, own in listed if own == kind) for kind in ("option", "placed"))
    bound = tuple(sorted((kind, text) for text, kind in listed if kind.startswith("-")))
    return Substance(style, words, tuple(sorted(options)), order, bound=bound)


def _in_arguments(value: Any, name: str = "") -> Iterator[_Token]:
    if isinstance(value, dict):
        for key in sorted(value):
            if key not in _PROSE:
                yield from _in_arguments(value[key], f"{name}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from _in_arguments(one, name)
    else:
        # A number or a switch means nothing without its name.
        words = _words(value) if isinstance(value, str) else [str(value)]
        yield from ((f"{name}={word}", "placed") for word in words)


def _words(text: str) -> list[str]:
    """Return the words of a text; of a path its name, since the same file has many."""
    if (host := _HOST.match(text)) and not text.startswith("/"):
        return [host[1] + ":", *_words(text[host.end() :])]
    if _PORTS.fullmatch(text):
        return [text]
    is_path = "/" in text and not _NO_PATH.search(text)
    words = _CODE.findall(text.rstrip("/").rpartition("/")[2] if is_path else text)
    return [number[1] if (number := _NUMBER.fullmatch(word)) else word for word in words]


def _in_shell(value: Any, silent: Collection[str]) -> Iterator[_Token]:
    if isinstance(value, dict):
        yield from _in_part(value, silent)
    elif isinstance(value, list):
        yield from _in_list([(";", one) for one in value], silent)
    else:
        yield from ((word, "placed") for word in _words(str(value)))


def _in_part(value: dict[str, Any], silent: Collection[str]) -> Iterator[_Token]:
    if "chain" in value:
        parts = value["chain"]
        yield from _in_list(list(zip(["", *parts[1::2]], parts[::2], strict=True)), silent)
    elif "pipe" in value:
        first, *rest = value["pipe"][::2]
        shaped = [one for one in rest if not _runs(one, programs.SHAPERS)]
        yield from _in_list([("", first), *(("|", one) for one in shaped)], silent)
    elif "run" in value:
        yield from _in_call(value)
    else:
        for key, one in value.items():
            if key in ("do", "group", "bodies"):
                yield from _in_shell(one, silent)
            elif key == "to":
                yield from _in_redirects(one)
            else:
                yield key, "placed"
                yield from _in_shell(one, silent)


def _in_list(parts: Sequence[tuple[str, Any]], silent: Collection[str]) -> Iterator[_Token]:
    told = [(op, one) for op, one in parts if "to" in one or not _runs(one, silent)] if len(parts) > 1 else parts
    for number, (op, one) in enumerate(told or parts):
        if number:
            yield op, "placed"
        yield from _in_shell(one, silent)


def _in_call(value: dict[str, Any]) -> Iterator[_Token]:
    yield from ((word, "placed") for word in _plain(value["run"]))
    spec = programs.SPECS.get(value["run"]) if isinstance(value["run"], str) else None
    for name, *values in (*value.get("opts", ()), *value.get("rest", ())):
        if spec and name in spec.detail:
            continue  # It is no other opinion.
        # Letters in one word, of a program without a table, are options each.
        yield from ((one, "option") for one in (name[1:] if name[0] == "-" else [name]))
        yield from ((word, f"-{name.lstrip('-')[:1].lower()}") for word in _plain(values))
    if "call" in value:
        yield from _in_call(value["call"])
    yield from ((word, "placed") for word in _CODE.findall(value.get("code", "")))
    yield from ((word, "loose") for word in _plain(value.get("env", ())))
    yield from ((word, "placed") for word in _plain(value.get("in", ())))
    behind = ""
    for one in value.get("args", ()):
        # A word behind an option of an unknown program may be its value, and moves with it.
        kind, behind = behind or "placed", ""
        if isinstance(one, str) and (option := _OPTION.fullmatch(one)):
            # Where an option of an unknown program stands hardly ever matters.
            long, letters = option["name"], option["letters"]
            rest = option["value"] or option["rest"] or ""
            own = "placed" if one == "-delete" else "option"
            yield from (
                (name, own) for name in ([long] if long else ["".join(letters)] if own == "placed" else letters)
            )
            # The tests of `find` are an expression: its words keep their place.
            behind = "placed" if str(value["run"]) in programs.FINDERS else f"-{(long or letters)[0].lower()}"
            yield from ((word, behind) for word in _plain(rest.removeprefix("=")))
            behind = "" if rest else behind
        else:
            yield from ((word, kind) for word in _plain(one))
            if value["run"] == "rsync" and str(one).endswith("/"):
                yield "/", kind  # What is in the folder, not the folder.
    yield from _in_redirects(value.get("to", ()))


def _in_redirects(redirects: Iterable[Any]) -> Iterator[_Token]:
    """Yield what is read from a heredoc and written to a file; where errors go is no opinion, but for their order."""
    redirects = list(redirects)
    if [one[:2] for one in redirects] == [["2", ">&"], ["", ">"]]:
        yield "2>&1", "placed"  # Errors are not written to that file.
    for fd, op, target, *expands in redirects:
        if op in ("<<", "<<<") or (op in (">", ">>") and not fd and target != {"path": "/dev/null"}):
            yield op, "placed"
            yield from ((word, "placed") for word in _plain([target, *expands]))


def _plain(value: Any) -> Iterator[str]:
    """Yield the words in the form of a word, path or option."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        if value and value[0] in ("dvar", "dsub", "darith"):
            value = [value[0][1:], *value[1:]]  # Whether an expansion is in quotes is no other opinion.
        for one in value:
            yield from _plain(one)
    else:
        yield from _words(str(value))


def _runs(value: Any, names: Collection[str]) -> bool:
    return isinstance(value, dict) and isinstance(value.get("run"), str) and value["run"] in names
