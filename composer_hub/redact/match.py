"""Shared parts of finders: the text they search, the spans they yield, and ways to look around a place.

In: a text. Out: `Subject`, which a `Finder` turns into `Span`s.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Set
from typing import NamedTuple

MIN_TOKEN = 16
"""Characters from which a word may be a token."""

MAX_JUDGED = 160
"""Characters of a value that are enough to judge it."""

NEXT_FIELD = re.compile(r"(?!\A)[&;](?=[\w-]{1,40}=)")
"""Ends a field of a query, a form or a connection string."""

PLACEHOLDER = re.compile(r"\[(?:[A-Z]+_(?:\d+|x[0-9a-f]{16})|IMAGE)\]")


class Span(NamedTuple):
    """A value to replace."""

    start: int
    end: int
    label: str  # of the placeholder: SECRET, EMAIL, …
    rule: str  # and after a colon the stem, command or list entry that fired: `named:_pat`


class Subject(NamedTuple):
    """A text as finders need it."""

    text: str
    lowered: str  # of the same length
    words: Set[str]  # the triggers in the text


Finder = Callable[[Subject], Iterator[Span]]


@functools.lru_cache(maxsize=2)
def long_words(text: str) -> frozenset[str]:
    """Return the words that are long enough for a token; several finders ask for those of one text."""
    return frozenset([word for word in text.split() if len(word) >= MIN_TOKEN])


def places(text: str, word: str) -> Iterator[int]:
    """Yield the offsets at which the word begins, without overlaps."""
    at = text.find(word)
    while at >= 0:
        yield at
        at = text.find(word, at + len(word))


def matches(text: str, pattern: re.Pattern[str], rule: str, accept: Callable[[str], bool]) -> Iterator[Span]:
    """Yield the values `v` of a pattern whose beginnings are accepted."""
    for match in pattern.finditer(text):
        if accept(match["v"][:MAX_JUDGED]):
            yield Span(*match.span("v"), "SECRET", rule)


def matches_at(
    text: str, searched: str, word: str, pattern: re.Pattern[str], rule: str, accept: Callable[[str], bool]
) -> Iterator[Span]:
    """Yield the accepted values of a pattern that begins with a word; `searched` is the text, or it in lower case."""
    after = 0
    for at in places(searched, word):
        if at >= after and (match := pattern.match(text, at)):
            after = match.end()
            if accept(match["v"][:MAX_JUDGED]):
                yield Span(*match.span("v"), "SECRET", rule)


def holds(text: str, words: Iterable[str]) -> bool:
    """Return whether a text has one of some words; a loop, because every text is asked for many."""
    for word in words:  # noqa: SIM110
        if word in text:
            return True
    return False


def line_before(text: str, at: int, reach: int = 60) -> str:
    """Return the part of the line before this place, at most `reach` characters."""
    begin = max(0, at - reach)
    return text[max(begin, text.rfind("\n", begin, at) + 1) : at]


def is_escaped(text: str, start: int) -> bool:
    r"""Return whether the letter before this place belongs to an escape such as `\n`."""
    return text[max(0, start - 2) : start] in ("\\n", "\\t", "\\r")


def is_inside(text: str, start: int) -> bool:
    """Return whether a word or a longer number continues at this place."""
    return start < 0 or (
        bool(start and (text[start - 1].isalnum() or text[start - 1] in "_.:")) and not is_escaped(text, start)
    )


def same_length_lower(text: str) -> str:
    """Return the text in lower case, each character in its place: only İ would become two."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.replace("İ", "I").lower()


def fold(text: str) -> str:
    """Return the letters in lower case without accents."""
    if text.isascii():
        return text.lower()
    lowered = text.lower().translate(_FOLDED)
    if not _CYRILLIC.search(lowered):  # where й and и are different letters
        lowered = unicodedata.normalize("NFD", lowered)
    return "".join(c for c in lowered if not unicodedata.combining(c))


_CYRILLIC = re.compile("[\u0400-\u04ff]")
_FOLDED = str.maketrans({"ß": "ss", "ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th", "\u2019": "'"})  # fmt: skip  # noqa: E501, RUF001
