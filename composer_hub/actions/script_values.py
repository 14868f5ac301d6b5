"""What a script works with and prints, as far as it is known without running it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SCRIPT_CHARS = 1 << 18
MAX_ITEMS = 1000  # of a list, or pieces of a text


class NotPlain(Exception):
    """The script calls a tool in a way that only a run would show."""


@dataclass(frozen=True, slots=True)
class ResultField:
    """A part of the result of a call, by its place among the calls; all of it without a name."""

    call: int
    name: str = ""


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()
"""A value that only a run of the script would show."""

SOME = _Unknown()
"""In a list, any number of such values."""


@dataclass(frozen=True, slots=True)
class Json:
    """The JSON text of a value that holds `ResultField`s."""

    value: Any
    is_indented: bool = False


@dataclass(frozen=True, slots=True)
class Print:
    """One text that the script prints: literal text, `ResultField`, `Json` and UNKNOWN, in order."""

    pieces: tuple[Any, ...]
    is_certain: bool = True


@dataclass(frozen=True, slots=True)
class PlainScript:
    """A plain script: the name and arguments of each call, and the texts it prints."""

    calls: tuple[tuple[str, Any], ...]
    prints: tuple[Print, ...]


@dataclass(frozen=True, slots=True)
class Joined:
    """A text of which parts are known."""

    pieces: tuple[Any, ...]


def is_scalar(value: Any) -> bool:
    """Return whether a value is known and has no parts: text, a number, a boolean, or None for null."""
    return value is None or isinstance(value, (str, int, float, bool))


def is_plain(value: Any) -> bool:
    """Return whether the script writes out the whole value."""
    if isinstance(value, (list, dict)):
        return all(map(is_plain, value.values() if isinstance(value, dict) else value))
    return is_scalar(value)


def are_all(values: Sequence[Any], kind: type) -> bool:
    """Return whether all values are of a type."""
    return all(isinstance(one, kind) for one in values)


def flat(lists: Iterable[list[Any]]) -> list[Any]:
    """Return the items of all lists in order; raise NotPlain for more than MAX_ITEMS."""
    values = [inner for one in lists for inner in one]
    if len(values) > MAX_ITEMS:
        raise NotPlain
    return values


def pieces_of(value: Any) -> tuple[Any, ...]:
    """Return the output of `text(value)`."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Joined):
        return value.pieces
    if isinstance(value, ResultField):
        return (value,)
    return (Json(value),) if isinstance(value, (dict, list)) else (UNKNOWN,)


def joined(parts: Sequence[Any]) -> Any:
    """Join values as JavaScript does: `Joined` if a part is unknown; raise NotPlain for a long text."""
    pieces: list[Any] = []
    for part in parts:
        if isinstance(part, bool):
            part = str(part).lower()
        if part is None or isinstance(part, (dict, list)) or (isinstance(part, ResultField) and not part.name):
            part = UNKNOWN  # "null", "undefined" or nothing; "[object Object]", or the items of a list
        if isinstance(part, (int, float)):  # of very large and small ones, JavaScript writes other digits
            part = str(part) if part == 0 or 1e-6 < abs(part) < 1e16 else UNKNOWN
        for piece in pieces_of(part):
            if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
                pieces[-1] += piece
            else:
                pieces.append(piece)
    if len(pieces) > MAX_ITEMS or sum(len(piece) for piece in pieces if isinstance(piece, str)) > MAX_SCRIPT_CHARS:
        raise NotPlain
    if are_all(pieces, str):
        return "".join(pieces)
    return Joined(tuple(pieces))


def sum_of(left: Any, right: Any) -> Any:
    """Return `left + right` as JavaScript adds texts and numbers; UNKNOWN for anything else."""
    if any(isinstance(one, (str, Joined)) for one in (left, right)):
        return joined([left, right])
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return number_of(float(left + right))
    return UNKNOWN


def number_of(value: float) -> float:
    """Return a number, whole ones as `int`: in JavaScript there is no other difference."""
    return int(value) if value.is_integer() else value
