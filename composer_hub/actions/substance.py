"""The words of an action beyond its target: the loose comparison of code and commands.

In: the arguments of a call. Out: its words without order, spelling of paths, context lines and spacing. Two edits of a
file with the same words are most likely the same edit; with other words one of them may be wrong. Only calls of one
style are compared: nothing is claimed about `sed -i` and an `Edit`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from composer_hub.actions import programs

_CODE = re.compile(r"\w+|[^\w\s'\"`,;]")
_TEXT = re.compile(r"\w+")


class Substance(NamedTuple):
    """The words of a call, or () for a call that its target describes well enough, such as a read."""

    style: str = ""  # of the arguments: shell, search, edit or write
    words: tuple[tuple[str, int], ...] = ()


def differ(one: Iterable[Substance], other: Iterable[Substance]) -> bool:
    """Return whether two actions in the same styles have other words."""
    ours, theirs = sorted(one), sorted(other)
    return [call.style for call in ours] == [call.style for call in theirs] and ours != theirs


def of_edit(changes: Iterable[tuple[str, str]]) -> Substance:
    """Return what replacements add and remove; lines that only locate them are in the old and in the new text."""
    balance: Counter[str] = Counter()
    for old, new in changes:
        balance.update(_CODE.findall(new))
        balance.subtract(_CODE.findall(old))
    return Substance("edit", tuple(sorted((word, count) for word, count in balance.items() if count)))


def of_file(content: str) -> Substance:
    """Return the words of a written file."""
    return Substance("write", tuple(sorted(Counter(_CODE.findall(content)).items())))


def of_value(style: str, value: Any) -> Substance:
    """Return the words of the text in a normal form; of a path its name, since the same file has many."""
    words: Counter[str] = Counter()
    for text in _texts(value):
        plain = text.rstrip("/").rpartition("/")[2] if len(text.split()) == 1 else text
        words.update(_TEXT.findall(plain))
    return Substance(style, tuple(sorted(words.items())))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a normal form, without those that only shape or label the output of a command."""
    if isinstance(value, dict):
        shaped = value.get("pipe", ())
        value = {
            **value,
            "pipe": [one for one in shaped if one is shaped[0] or not _runs(one, programs.FILTERS)],
            "to": [one for one in value.get("to", ()) if one[1] in ("<<", "<<<")],
        }.values()
    elif isinstance(value, list) and any(_runs(one, programs.SILENT) and "to" not in one for one in value):
        value = [one for one in value if not _runs(one, programs.SILENT) or "to" in one]
    elif not isinstance(value, (list, tuple)):
        yield str(value)
        return
    for one in value:
        yield from _texts(one)


def _runs(value: Any, names: Collection[str]) -> bool:
    return isinstance(value, dict) and isinstance(value.get("run"), str) and value["run"] in names
