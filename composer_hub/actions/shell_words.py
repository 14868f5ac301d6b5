"""Words of shell commands in one spelling: what the shell leaves of them, and which of them are the program's name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from composer_hub.actions import programs
from composer_hub.actions.tree import Command, Part, Redirect, Word

_OPTION = re.compile(r"--[a-z][a-z-]*=")
_ERRORS_TOO = Redirect("2", ">&", Word((Part("lit", "1"),)))


def without_pwd(word: Word, cwd: str) -> Word:
    """Return `$PWD/a` as the path it is."""
    first, *rest = word.parts or (Part("null", ""),)
    is_pwd = (
        first.kind in ("var", "dvar") and first.value == "$PWD" and cwd and (first.kind == "dvar" or " " not in cwd)
    )
    if not is_pwd or any(part.kind != "lit" for part in rest):
        return word
    return word._replace(parts=(Part("lit", cwd.rstrip("/") + "".join(str(part.value) for part in rest)),))


def seconds(value: Any) -> Any:
    """Return the limit of `timeout`, whose unit is the second."""
    return value[:-1] if isinstance(value, str) and re.fullmatch(r"\d+s", value) else value


def unexpanded(word: Word) -> Word:
    """Return a word such as `--include=*.py`, which no file matches, as its text."""
    first, *rest = word.parts or (Part("null", ""),)
    is_option = first.kind == "lit" and _OPTION.match(str(first.value))
    if not is_option or any(part.kind not in ("lit", "glob") for part in rest):
        return word
    return word._replace(parts=(Part("lit", "".join(str(part.value) for part in word.parts)),))


def name_set(assignment: str) -> str:
    """Return the variable that an assignment such as `PATH+=…` changes."""
    return assignment.partition("=")[0].removesuffix("+")


def of_both_streams(redirect: Redirect) -> tuple[Redirect, ...]:
    """Split `&> x` into `> x 2>&1`."""
    target = redirect.target.literal or ""
    if redirect.op in ("&>", "&>>"):
        op = redirect.op[1:]
    elif redirect.op == ">&" and redirect.fd in ("", "1") and target and not target.isdecimal() and target != "-":
        op = ">"
    else:
        return (redirect,)
    return Redirect("", op, redirect.target), _ERRORS_TOO


def with_errors(command: Command) -> Command:
    """Return the command before a `|&`, which is `2>&1 |`."""
    return replace(command, redirects=(*command.redirects, _ERRORS_TOO))


def program(words: Sequence[Word]) -> tuple[str, Sequence[Word]]:
    """Return the name of a program, with its subcommand if `SPECS` has it, and the words after it."""
    texts = [word.literal or "" for word in words[:3]]
    if len(texts) == 3 and texts[0].startswith("python") and texts[1] == "-m" and texts[2]:
        return " ".join(texts), words[3:]
    for count in (3, 2):
        if len(texts) >= count and " ".join(texts[:count]) in programs.SPECS and all(texts[:count]):
            return " ".join(texts[:count]), words[count:]
    return texts[0], words[1:]


def spec_of(name: str) -> programs.Spec | None:
    """Return how a program reads its words; ANY for an unknown one, None if they must stay as written."""
    # A guess about an option could take along an operand that has its place.
    has_places = name.partition(" ")[0] in programs.PLACED and name not in programs.SPECS
    if not name or name in programs.AS_WRITTEN or has_places:
        return None
    return programs.SPECS.get(name, programs.ANY)


def wrapped(words: Sequence[Word]) -> Sequence[Word]:
    """Return the call inside `timeout 60 …`, `uv run …` and the like, else nothing."""
    literals = [word.literal for word in words]
    if literals[0] in programs.WRAPPERS:
        return words[programs.after_own(literals, 1) :]
    is_runner = " ".join(filter(None, literals[:2])) in programs.RUNNERS
    return words[2:] if is_runner and programs.after_own(literals, 2) == 2 else ()


def renamed(words: list[Word], *, at_root: bool) -> list[Word]:
    """Return the words of a call with another name of its command in place of the one it has: `npm i`, `[ … ]`."""
    literals = [word.literal or "" for word in words]
    for count in (4, 3, 2, 1):
        if len(words) >= count and (plain := programs.ALIASES.get(" ".join(literals[:count]))):
            if plain == "test" and literals[-1] != "]":
                return words
            if plain == "git add ." and not (at_root and len(words) == count):
                return words  # `-A` takes the whole tree, or the paths that follow
            name = [Word((Part("lit", text),)) for text in plain.split()]
            return [*name, *(words[count:-1] if plain == "test" else words[count:])]
    return words
