"""One spelling for one search pattern: what `grep`, `grep -E`, `grep -F`, `rg` and search tools read -> extended.

A pattern that is not plainly the same in another dialect keeps its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"[\\.\[\]{}()*+?^$|]")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_SWAPPED = frozenset("(){}|+?")
_NEEDLESS = frozenset("\"'/-_:;,<>=!@#%&~` ")  # an escape in front of them means nothing
_CLASSES = {"[[:space:]]": r"\s", "[[:digit:]]": r"\d", "[0-9]": r"\d"}


def extended(pattern: str, dialect: str = "E") -> str:
    """Return a pattern of a dialect (E extended, G basic, F fixed) in extended syntax."""
    if dialect == "F":
        return _SPECIAL.sub(lambda found: "\\" + found[0], pattern)
    if dialect == "G":
        pattern = _from_basic(pattern)
    pattern = _ESCAPED.sub(lambda found: found[1] if found[1] in _NEEDLESS else found[0], pattern)
    for spelling, plain in _CLASSES.items():
        pattern = pattern.replace(spelling, plain)
    return pattern


def _from_basic(pattern: str) -> str:
    r"""Swap what is special with and without a backslash: `\|` is `|`, and `(` is `\(`."""
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\" and at + 1 < len(pattern):
            after = pattern[at + 1]
            parts.append(after if after in _SWAPPED else char + after)
            at += 2
        elif char == "[":
            end = pattern.find("]", at + 2)
            end = len(pattern) - 1 if end < 0 else end
            parts.append(pattern[at : end + 1])
            at = end + 1
        else:
            parts.append("\\" + char if char in _SWAPPED or (char == "*" and not parts) else char)
            at += 1
    return "".join(parts)


def either(patterns: Sequence[str]) -> str:
    """Return one pattern that finds what any of several finds."""
    return "|".join(sorted(branch for pattern in patterns for branch in _branches(pattern)))


def _branches(pattern: str) -> Iterable[str]:
    """Split a pattern at its outer bars."""
    depth, start, at, inside = 0, 0, 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif inside:
            inside = char != "]"
        elif char == "[":
            inside = True
            at += pattern[at + 1 : at + 2] in ("]", "^")
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and not depth:
            yield pattern[start:at]
            start = at + 1
        at += 1
    yield pattern[start:]


def literal(pattern: str) -> str | None:
    r"""Return the text that a pattern finds, `.` taken for a dot; None if it finds more than one text."""
    plain = _ESCAPED.sub(lambda found: "" if not found[1].isalnum() else found[0], pattern)
    if re.search(r"[\\\[\]{}()*+?^$|]", plain):
        return None
    return _ESCAPED.sub(lambda found: found[1], pattern)
