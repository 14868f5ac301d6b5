"""Find the tokens that give themselves away, wherever they stand in a text.

In: a text. Out: spans of values with the rule that found them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from composer_hub.ingest.redact_named import MAX_JUDGED, Span
from composer_hub.ingest.redact_rules import (
    BY_CAPITAL,
    BY_SEPARATOR,
    BY_WORD,
    CAPITALS,
    LENGTHS,
    SEPARATOR,
    TAILS,
    Rule,
    prefixed_token,
)
from composer_hub.ingest.redact_words import LongWords

_ESCAPED_BEFORE = re.compile(r"(?:(?<!\\)(?:\\\\)*\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9A-F]{2})$")
_ACROSS_WORDS = ("FlyV1 ", "LS0tLS1CRUdJTi")
"""Anchors of tokens that hold white space."""
_WORDS = LongWords()


def shape_spans(text: str) -> Iterator[Span]:
    """Yield the tokens in a text: all but a few shapes lie within one word, and most words have been seen before."""
    if any(anchor in text for anchor in _ACROSS_WORDS):
        yield from _in_word(text)
        return
    for word in _WORDS.unknown(text):
        found = list(_in_word(word))
        if not found:
            _WORDS.holds_nothing(word)
        for at in _whole(text, word) if found else ():
            yield from ((at + start, at + end, label, rule) for start, end, label, rule in found)


def _whole(text: str, word: str) -> Iterator[int]:
    """Yield where the word stands between white space."""
    at = text.find(word)
    while at >= 0:
        end = at + len(word)
        if (at == 0 or text[at - 1].isspace()) and (end == len(text) or text[end].isspace()):
            yield at
        at = text.find(word, end)


def _in_word(text: str) -> Iterator[Span]:
    # What a rule has taken is not looked at again, or a text of nothing but prefixes would cost its length squared.
    after = 0
    for separator in SEPARATOR.finditer(text):
        end = separator.end()
        if end <= after:
            continue
        for anchor in _endings(text, end):
            for found in _shapes_at(text, BY_SEPARATOR[anchor], end - len(anchor)):
                after = max(after, found[1])
                yield found
        if end > after and (token := prefixed_token(text, end - 1)) and _free(text, token[0]):
            after = token[1]
            yield *token, "SECRET", "prefixed"
    after = 0
    for capital in CAPITALS.finditer(text):
        if capital.start() >= after:
            for found in _shapes_at(text, BY_CAPITAL[capital[0]], capital.start()):
                after = max(after, found[1])
                yield found
    for anchor in [anchor for anchor in BY_WORD if anchor in text]:
        at = text.find(anchor)
        while at >= 0:
            after = at + len(anchor)
            for found in _shapes_at(text, BY_WORD[anchor], at):
                after = max(after, found[1])
                yield found
            at = text.find(anchor, after)


def _endings(text: str, end: int) -> list[str]:
    """Return the anchors that end here, the shortest first."""
    if text[max(0, end - 2) : end] not in TAILS and text[end - 1] not in TAILS:
        return []
    return [anchor for length in LENGTHS if length <= end and (anchor := text[end - length : end]) in BY_SEPARATOR]


def _shapes_at(text: str, rules: tuple[Rule, ...], at: int) -> Iterator[Span]:
    for rule in rules:
        if not rule.before and rule.bounded and not _free(text, at):
            continue
        if found := rule.pattern.match(text, at):
            yield from _judged(text, rule, at, *(found.span("v") if "v" in rule.pattern.groupindex else found.span()))


def _judged(text: str, rule: Rule, at: int, start: int, end: int) -> Iterator[Span]:
    """Yield the value unless its beginning is missing or the rule keeps it."""
    if rule.before:
        begin = max(0, at - 64)
        head = rule.before.search(text[begin:at])
        if not head:
            return
        start = begin + head.start()
    if not rule.keep(text[start : min(end, start + MAX_JUDGED)]):
        yield start, end, rule.label, rule.name


def _free(text: str, at: int) -> bool:
    """Tell whether a token may begin here: nothing alphanumeric before it, or only an escape."""
    return at == 0 or not text[at - 1].isalnum() or bool(_ESCAPED_BEFORE.search(text, max(0, at - 8), at))
