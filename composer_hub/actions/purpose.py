"""The purpose of shell commands: their strict forms -> what they name, without how they are put together.

A pair needs a difference that is certain to matter. Two actions whose commands run the same programs on the same words
may differ in the order of options, in long and short names, in loops, chains, pipes from `cat` or parallel calls. Where
none of this is known to change the effect, they have the same purpose, and there is no pair.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from composer_hub.actions import programs
from composer_hub.actions.substance import same_options, words_of_code

_OPTION = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)(?:=(?P<value>.*))?", re.DOTALL)
_LETTERS = re.compile(r"-[A-Za-z]{2,}")
_ATTACHED = re.compile(r"-([A-Za-z])(\d+)")
_SHAPE_WORDS = frozenset(("cat", "true", ":", "export"))
_LIMITS = frozenset(("timeout", "nohup", "time", "stdbuf", "command", "nice"))
_SCRIPTED = frozenset(("python", "python3", "node", "ed"))
_NUMBERED = frozenset(("n", "H", "h"))
_FORMATS = (["json"], ["yaml"], ["text"], ["table"], ["wide"], ["minimal"], ["documentation"], ["false"])
_FILE = re.compile(r"[^./]\.[A-Za-z]\w{0,4}$")
_START = re.compile(r"\./|:(?=\w)")

# The text, and how it is used: program, word, value (its option may stand anywhere), flag or joint.
_Token = tuple[str, str]


class Purpose(NamedTuple):
    """What the commands of an action name; empty if it calls no program."""

    words: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    order: tuple[str, ...] = ()  # words whose place may matter, each where it is named first
    names: frozenset[str] = frozenset()  # of programs and their subcommands
    joints: frozenset[str] = frozenset()  # how its commands follow each other
    bound: tuple[tuple[str, str], ...] = ()  # flags with their values
    looks: bool = False  # its commands only show something
    script: str = ""  # code for an interpreter
    others: frozenset[str] = frozenset()  # the effects of its other calls


NO_PURPOSE = Purpose()


def purpose_of(commands: Iterable[Any], others: Iterable[str], *, looks: bool = False) -> Purpose:
    """Return the purpose of the forms of shell commands, beside the effects of other calls."""
    tokens = [token for command in commands for token in _tokens(command)]
    if not tokens:
        return NO_PURPOSE
    flags, names, joints = (
        frozenset(text for text, own in tokens if own == kind) for kind in ("flag", "program", "joint")
    )
    words = frozenset(text for text, kind in tokens if kind not in ("flag", "joint", "script"))
    order = dict.fromkeys(text for text, kind in tokens if kind in ("program", "word"))
    return Purpose(words, flags, tuple(order), names, joints, _bound(tokens), looks, _script(tokens), frozenset(others))


def _script(tokens: Sequence[_Token]) -> str:
    return "\n".join(text for text, kind in tokens if kind == "script")


def _bound(tokens: Sequence[_Token]) -> tuple[tuple[str, str], ...]:
    pairs = itertools.pairwise(tokens)
    return tuple((flag, value) for (flag, kind), (value, own) in pairs if (kind, own) == ("flag", "value"))


def writes_words(purpose: Purpose, file: str, words: Iterable[str]) -> bool:
    """Return whether a script names a file and all words that an edit of it adds: most likely it makes that edit."""
    name = file.rpartition("/")[2]
    return bool(purpose.script) and name in purpose.script and set(words) <= set(words_of_code(purpose.script))


def same_purpose(one: Purpose, other: Purpose) -> bool:
    """Return whether nothing that two actions name is certain to make a difference."""
    if not one.words or one.others != other.others:
        return False
    if one.looks and other.looks and one.names == other.names and one.flags == other.flags:
        fewer, more = sorted((one.words, other.words), key=len)
        if fewer < more and all(map(_FILE.search, more - fewer)):
            return True  # What one program shows of all files, and of some.
    if not _same_words(one, other):
        return False
    if one.joints != other.joints:
        return False
    common = set(one.order) & set(other.order)
    if [word for word in one.order if word in common] != [word for word in other.order if word in common]:
        return False
    return same_options(one.flags, other.flags) or _renamed(one, other)


def _renamed(one: Purpose, other: Purpose) -> bool:
    """Return whether one letter stands for one long name with the same value: `-j 8`, `--parallel 8`."""
    left, right = one.flags - other.flags, other.flags - one.flags
    if len(left) != 1 or len(right) != 1:
        return False
    (ours,), (theirs,) = left, right
    values = [value for name, value in one.bound if name == ours]
    return (len(ours) == 1) != (len(theirs) == 1) and values == [v for name, v in other.bound if name == theirs] != []


def _same_words(one: Purpose, other: Purpose) -> bool:
    """Return whether two sets are the same but for a program's word that is short for another: `npm i`, `get po`."""
    left, right = one.words - other.words, other.words - one.words
    if not left and not right:
        return True
    if len(left) != 1 or len(right) != 1:
        return False
    if not (left <= one.names and right <= other.names) and "/" not in min(left):
        return False
    (short, _, tail), (long, _, other_tail) = (one.partition("/") for one in sorted((*left, *right), key=len))
    return short.isalpha() and long.startswith(short) and tail == other_tail


def _tokens(value: Any) -> Iterator[_Token]:
    if isinstance(value, list):
        yield from _joined([(";", one) for one in value])
    elif not isinstance(value, dict):
        yield str(value), "word"
    elif "run" in value:
        yield from _call(value)
    elif "chain" in value:
        yield from _joined(list(zip(["", *value["chain"][1::2]], value["chain"][::2], strict=True)))
    elif "pipe" in value:
        first, *rest = value["pipe"][::2]
        rest = [one for one in rest if not _only_shapes(one)]
        shown = isinstance(first, dict) and first.get("run") == "cat" and not first.get("opts") and rest
        # `cat x | jq .a` is `jq .a x`.
        for one in [rest[0], first, *rest[1:]] if shown else [first, *rest]:
            yield from _tokens(one)
        yield from _redirects(value.get("to", ()))
    else:
        for key, one in value.items():
            if key == "to":
                yield from _redirects(one)
            elif key in ("do", "group", "bodies"):
                yield from _tokens(one)
            else:
                yield key, "program"
                yield from _tokens(one) if key == "sub" else ((text, "word") for text in _texts(one))


def _joined(parts: Sequence[tuple[str, Any]]) -> Iterator[_Token]:
    """Yield the tokens of commands, and whether one is for the failure of another."""
    acts = [(joint, one) for joint, one in parts if not _is_silent(one)] or parts
    for number, (joint, one) in enumerate(acts):
        if number and joint == "||":
            yield joint, "joint"
        yield from _tokens(one)


def _only_shapes(value: Any) -> bool:
    """Return whether a filter shows a part of what it reads, or shows it otherwise."""
    name = _program(value)
    return name in programs.SHAPERS and not (isinstance(value, dict) and value.get("to"))


def _is_silent(value: Any) -> bool:
    sets = programs.MOVERS | {"export", "set", "unset"}
    return isinstance(value, dict) and "to" not in value and _program(value) in programs.SILENT - sets


def _program(value: Any) -> str:
    return str(value.get("run", "")) if isinstance(value, dict) else ""


def _call(value: dict[str, Any]) -> Iterator[_Token]:
    if "call" in value and (str(value["run"]) in _LIMITS or _first_words(value) == ["bundle", "exec"]):
        yield from _call(value["call"])
        return
    run = value["run"] if isinstance(value["run"], str) else " ".join(_texts(value["run"]))
    names = run.split(" ")
    plain = names[2:] if run.startswith("python -m ") else [one for one in names if one not in _SHAPE_WORDS]
    if run in programs.INTERPRETERS and any(_runs_file(one) for one in value.get("args", ())[:1]):
        plain = []  # `python a.py` is `./a.py`.
    yield from ((one, "program") for one in plain)
    spec = programs.SPECS.get(run)
    # An option of an unknown program may take the word behind it along.
    if names[0] in _SCRIPTED:
        heredocs = [one[2] for one in value.get("to", ()) if one[1] == "<<"]
        yield from ((text, "script") for text in (value.get("code", ""), *heredocs, *_texts(value.get("args", ()))))
    has_options = value.get("opts") or any(str(one).startswith("-") for one in value.get("args", ()))
    placed = "value" if has_options and names[0] not in programs.PLACED else "word"
    for name, *values in (*value.get("opts", ()), *value.get("rest", ())):
        if _is_output(name, spec) or (name in _NUMBERED and run in programs.SEARCHERS) or values[:1] in _FORMATS:
            continue
        yield from ((one, "flag") for one in (name[1:] if name[:1] == "-" else [name]))
        yield from ((text, "value") for one in values for text in _texts(one))
    if "call" in value:
        yield from _call(value["call"])
    for key in ("code", "env", "in"):
        yield from ((text, "value") for text in _texts(value.get(key, [])))
    behind = False
    subcommand = len(names) == 1 and run in programs.SUBCOMMANDS
    for one in value.get("args", ()):
        if isinstance(one, str) and (option := _OPTION.fullmatch(one)):
            if _is_output(option["name"], spec):
                continue
            if run in programs.FINDERS:
                yield one, "program"
                continue
            yield from _option(one, option)
            behind = option["value"] is None
            continue
        for text in _texts(one if one != "--" or (spec and spec.passes_on) else []):
            yield text, "program" if subcommand and text.isalpha() else "value" if behind else placed
        subcommand = behind = False
    yield from _redirects(value.get("to", ()))


def _is_output(name: str, spec: programs.Spec | None) -> bool:
    """Return whether an option only changes what is printed; one letter says that of unknown programs only."""
    return (name in programs.OUTPUT and (spec is None or len(name) > 1)) or bool(spec and name in spec.detail)


def _first_words(value: dict[str, Any]) -> list[str]:
    return [str(value["run"]), *map(str, value.get("args", ())[:1])]


def _runs_file(word: Any) -> bool:
    return any("." in text.rpartition("/")[2] for text in _texts(word))


def _option(word: str, option: re.Match[str]) -> Iterator[_Token]:
    if attached := _ATTACHED.fullmatch(word):
        yield attached[1], "flag"
        yield attached[2], "value"
    elif _LETTERS.fullmatch(word):
        yield from ((letter, "flag") for letter in word[1:])
    else:
        yield option["name"], "flag"
        if option["value"] is not None:
            yield option["value"], "value"


def _redirects(redirects: Iterable[Any]) -> Iterator[_Token]:
    redirects = list(redirects)
    if [one[:2] for one in redirects] == [["2", ">&"], ["", ">"]]:
        yield "2>&1", "program"  # Errors are not written to that file.
    for fd, op, target, *expands in redirects:
        if op in ("<<", "<<<", "<") or (op in (">", ">>") and not fd and target != {"path": "/dev/null"}):
            if op != "<":
                yield op, "program"
            yield from ((text, "word") for text in _texts([target, *expands]))


def _texts(value: Any) -> Iterator[str]:
    """Yield the words of a form; a path in its normal form, or as it is written if its folder is unknown."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)
    elif str(value):
        start = _START.match(str(value))
        yield str(value)[start.end() if start else 0 :] or str(value)
