"""Find the tokens that give themselves away, wherever they stand in a text.

In: a text. Out: spans of values with the rule that found them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from composer_hub.redact.entropy import is_worded, looks_random, num_classes
from composer_hub.redact.named import MAX_JUDGED, Span
from composer_hub.redact.rules import BY_CAPITAL, BY_SEPARATOR, BY_WORD, CAPITALS, LENGTHS, SEPARATOR, TAILS, Rule
from composer_hub.redact.unknown import prefixed_token
from composer_hub.redact.words import LongWords

_ESCAPED_BEFORE = re.compile(r"(?:(?<!\\)(?:\\\\)*\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9A-F]{2})$")
_ACROSS_WORDS = ("FlyV1 ", "LS0tLS1CRUdJTi")
"""Anchors of tokens that hold white space."""
_WORDS = LongWords()
_BREAKABLE = {
    prefix: re.split(r"[0-9.]", prefix)[0].lower().replace("-", "_")
    for prefix in [
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "sk-ant-",
        "sk-proj-",
        "sk-or-",
        "sk_live_",
        "sk_test_",
        "rk_live_",
        "xoxb-",
        "xoxp-",
        "xapp-",
        "hf_",
        "npm_",
        "pypi-",
        "AIza",
        "eyJ",
        "hvs.",
        "dckr_pat_",
        "lin_api_",
        "shpat_",
        "gsk_",
        "xai-",
        "dapi",
        "dop_v1_",
        "glsa_",
        "sntrys_",
        "figd_",
        "ntn_",
        "nvapi-",
        "whsec_",
    ]
}
"""Prefixes of long tokens, and the trigger of each: a terminal may have broken the token over lines."""
SHAPE_TRIGGERS = tuple(_BREAKABLE.values())
MAX_BROKEN = 24
"""Lines over which a token is followed."""
_HEAD = re.compile(r"[\w.+/=-]{8,4000}(?=\r?\n)")
_NEXT = re.compile(r"\r?\n[ \t]*(?:\d{1,6}[\t:→|][ \t]?)?[+>|]?[ \t]*(?P<v>[\w.+/=-]{3,4000})(?=[\s\"'`,;)\\]|\Z)")


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


def broken_spans(text: str, words: Set[str]) -> Iterator[Span]:
    """Yield the parts of tokens that go on where the next line begins."""
    if "\n" not in text:
        return
    for prefix, trigger in _BREAKABLE.items():
        at = text.find(prefix) if trigger in words else -1
        while at >= 0:
            if _free(text, at) and (head := _HEAD.match(text, at)):
                yield from _parts(text, head)
            at = text.find(prefix, at + len(prefix))


def _parts(text: str, head: re.Match[str]) -> Iterator[Span]:
    token, parts, at = head[0], [head.span()], head.end()
    while len(parts) < MAX_BROKEN and (more := _NEXT.match(text, at)) and _goes_on(token, more["v"]):
        token += more["v"]
        parts.append(more.span("v"))
        at = more.end()
    if len(parts) > 1:
        yield from ((start, end, "SECRET", "broken_over_lines") for start, end in parts)


def _goes_on(token: str, more: str) -> bool:
    """Tell whether a token takes up what the next line begins with: together they are one, and it is no word."""
    joined = next((end for start, end, _, _ in _in_word(token + more) if start == 0), 0)
    if joined <= len(token) or is_worded(more):
        return False
    alone = any(start == 0 and end == len(token) for start, end, _, _ in _in_word(token))
    return looks_random(more) or (num_classes(more) >= (3 if alone else 2) and any(c.isdigit() for c in more))


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
