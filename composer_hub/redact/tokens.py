"""Find tokens by their shape: a vendor's prefix, a hash with its scheme, or an unknown prefix with random characters.

In: a text. Out: spans of tokens. The shapes are in `data/tokens.txt`. A shape is tried only at its anchors, so that
the work stays linear on any text; sessions repeat their words, so a word without a token is searched once per process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from composer_hub.redact.data import lines
from composer_hub.redact.judge import (
    has_random_part,
    is_all_random,
    is_dummy,
    is_example_key,
    is_ordinary,
    is_prefixed_token,
    looks_random,
)
from composer_hub.redact.match import MAX_JUDGED, Span, Subject, places
from composer_hub.redact.needles import trie
from composer_hub.redact.triggers import WordsWith

# --------------------------------------------------------------------------------------------------------------- shapes

_CLASSES = {"<W>": "[A-Za-z0-9_-]", "<A>": "[A-Za-z0-9]", "<H>": "[0-9a-fA-F]", "<B>": "[A-Za-z0-9+/]"}
_ACCEPTS: dict[str, Callable[[str], bool]] = {
    "@random": has_random_part,
    "@random_end": lambda value: looks_random(value[26:]),
    "@all_random": lambda value: is_all_random(value) and not is_dummy(value),
    "@no_example": lambda value: not is_example_key(value),
    "@always": lambda value: True,
}


class Shape(NamedTuple):
    """The shape of one vendor's tokens."""

    name: str
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]  # of the anchor and what follows it; a group `v` limits the value
    accept: Callable[[str], bool]
    before: re.Pattern[str] | None  # of the part of the value in front of the anchor
    is_bounded: bool  # no letter or digit may precede the anchor


def _shape(line: str) -> Shape:
    name, *middle, tail = line.split()
    options = [word for word in middle if word.startswith("@")]
    anchors = tuple(word for word in middle if not word.startswith("@"))
    before = next((_pattern(option.removeprefix("@before=") + r"\Z") for option in options if "=" in option), None)
    accept = next((_ACCEPTS[option] for option in options if option in _ACCEPTS), lambda value: not is_dummy(value))
    # Longest first: `sk-ant-` must not be read as `sk-`.
    prefix = "|".join(re.escape(anchor) for anchor in sorted(anchors, key=len, reverse=True))
    pattern = _pattern(tail[1:] if tail[0] == "^" else f"(?:{prefix}){tail}")
    return Shape(name, anchors, pattern, accept, before, not before and "@anywhere" not in options)


def _pattern(written: str) -> re.Pattern[str]:
    for short, characters in _CLASSES.items():
        written = written.replace(short, characters)
    return re.compile(written, re.ASCII)


SHAPES = tuple(map(_shape, lines("tokens.txt")))


def _by_anchor(wanted: Callable[[str], bool]) -> dict[str, tuple[Shape, ...]]:
    anchors = [anchor for shape in SHAPES for anchor in shape.anchors if wanted(anchor)]
    return {anchor: tuple(shape for shape in SHAPES if anchor in shape.anchors) for anchor in anchors}


# Most prefixes end in a separator before a long run that is not a lower-case word: one search for such separators tries
# them all. One search for their capitals and signs, which are rare, finds most of the others; the rest go one by one.
_SEPARATOR = re.compile(r"[_\-.](?=[\w\-.+/=]{12})(?=[\w\-.+/=]{0,23}?(?:\d|[a-z][A-Z]|[A-Z][a-z]))", re.ASCII)
_BY_SEPARATOR = _by_anchor(lambda anchor: anchor[-1] in "_-.")
_BY_CAPITAL = _by_anchor(lambda anchor: anchor[-1] not in "_-." and not anchor[0].islower())
_BY_WORD = _by_anchor(lambda anchor: anchor[-1] not in "_-." and anchor[0].islower())
_ENDINGS = frozenset(anchor[-2:] for anchor in _BY_SEPARATOR)
_LENGTHS = sorted({len(anchor) for anchor in _BY_SEPARATOR})
_CAPITALS = re.compile(trie(_BY_CAPITAL))
_WORDS = re.compile(trie(_BY_WORD))
_ACROSS_WORDS = ("FlyV1 ", "LS0tLS1CRUdJTi")
"""Anchors of tokens that contain white space."""


def known_tokens(subject: Subject) -> Iterator[Span]:
    """Yield the tokens with a known shape or a telling prefix."""
    text = subject.text
    if any(anchor in text for anchor in _ACROSS_WORDS):
        yield from tokens_in(text)
        return
    for word in _WITH_TOKEN.of(text):
        spans = list(tokens_in(word))
        for at in _whole(text, word):
            yield from (Span(at + start, at + end, label, rule) for start, end, label, rule in spans)


def _whole(text: str, word: str) -> Iterator[int]:
    """Yield the offsets at which the word is between white space."""
    for at in places(text, word):
        end = at + len(word)
        if (at == 0 or text[at - 1].isspace()) and (end == len(text) or text[end].isspace()):
            yield at


def tokens_in(text: str) -> Iterator[Span]:
    """Yield the tokens of a text without remembering its words."""
    # A match of one shape is not searched again, or a text of prefixes alone would take quadratic time.
    after = 0
    for separator in _SEPARATOR.finditer(text):
        end = separator.end()
        if end <= after:
            continue
        for anchor in _anchors_ending(text, end):
            for span in _shaped(text, _BY_SEPARATOR[anchor], end - len(anchor)):
                after = max(after, span.end)
                yield span
        if end > after and (token := _prefixed(text, end - 1)) and _may_begin(text, token.start):
            after = token.end
            yield token
    after = 0
    for capital in _CAPITALS.finditer(text):
        if capital.start() >= after:
            for span in _shaped(text, _BY_CAPITAL[capital[0]], capital.start()):
                after = max(after, span.end)
                yield span
    for anchor in [anchor for anchor in _BY_WORD if anchor in text] if _WORDS.search(text) else ():
        after = 0
        for at in places(text, anchor):
            for span in _shaped(text, _BY_WORD[anchor], at) if at >= after else ():
                after = max(after, span.end)
                yield span


def _anchors_ending(text: str, end: int) -> list[str]:
    """Return the anchors that end here, the shortest first."""
    if text[max(0, end - 2) : end] not in _ENDINGS and text[end - 1] not in _ENDINGS:
        return []
    return [anchor for length in _LENGTHS if length <= end and (anchor := text[end - length : end]) in _BY_SEPARATOR]


def _shaped(text: str, shapes: tuple[Shape, ...], at: int) -> Iterator[Span]:
    for shape in shapes:
        if (shape.is_bounded and not _may_begin(text, at)) or not (match := shape.pattern.match(text, at)):
            continue
        start, end = match.span("v") if "v" in shape.pattern.groupindex else match.span()
        if shape.before:
            begin = max(0, at - 64)
            head = shape.before.search(text[begin:at])
            if not head:
                continue
            start = begin + head.start()
        if shape.accept(text[start : min(end, start + MAX_JUDGED)]):
            yield Span(start, end, "SECRET", shape.name)


_ESCAPED_BEFORE = re.compile(r"(?:(?<!\\)(?:\\\\)*\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9A-F]{2})$")


def _may_begin(text: str, at: int) -> bool:
    """Return whether a token may begin here: after a sign, or after an escape."""
    return at == 0 or not text[at - 1].isalnum() or bool(_ESCAPED_BEFORE.search(text, max(0, at - 8), at))


_WITH_TOKEN = WordsWith(lambda word: next(tokens_in(word), None))

# ----------------------------------------------------------------------------------------------------- unknown prefixes

_TAIL = re.compile(r"(?P<tail>[A-Za-z0-9]{24,200})(?![A-Za-z0-9/+=]|\.[a-z][a-z0-9]{1,4}\b)")
_SPLIT_TAIL = re.compile(r"(?P<tail>[A-Za-z0-9_-]{40,200}(?:\.[A-Za-z0-9_-]{16,200})*)(?![A-Za-z0-9/+=.])", re.ASCII)
"""URL-safe base64 has dashes and underscores among its random characters."""
_PREFIX = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z][A-Za-z0-9]{1,11}(?:[_-][A-Za-z0-9]{1,10}){0,3}\Z")


def _prefixed(text: str, at: int) -> Span | None:
    """Return the token of an unknown vendor: a short prefix and random characters around this separator."""
    tail = _TAIL.match(text, at + 1)
    if not tail:
        tail = _SPLIT_TAIL.match(text, at + 1)
        if not tail or not is_all_random(tail["tail"]) or is_ordinary(tail["tail"]):
            return None
    begin = max(0, at - 46)
    prefix = _PREFIX.search(text[begin:at])
    if not prefix or not is_prefixed_token(prefix[0], tail["tail"]):
        return None
    return Span(begin + prefix.start(), tail.end(), "SECRET", "prefixed")
