"""Passwords that nothing announces: what the shape of a word alone gives away.

In: a text. Out: words that are made like a password: letters of both cases, digits and a sign inside, with no part that
code, a URL, a path, a version or a pattern would have.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from composer_hub.redact.judge import is_dummy, is_hex
from composer_hub.redact.match import Span, Subject

MIN_CHARS, MAX_CHARS = 9, 40
MAX_SIGNS = 6
_ALNUM = frozenset(string.ascii_letters + string.digits)
_INSIDE = re.compile(r"[!~^*$#](?=[A-Za-z0-9])")
_EDGE = re.compile(r"[\s\"'`=:(),;\[\]{}<>|/\\]")
_INNER = re.compile(r"[^\s\"'`=:(),;\[\]{}<>|/\\]*")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9!~^*$#@%+_-]*")
_CODE = re.compile(
    r"\*\*|&&|%[0-9A-Fa-f]{2}|%[sdifgx@]|#L\d|@v?\d|\$[A-Z_]{3,}|(?<![A-Za-z])\d+[*%]|\*\d+\Z|#[0-9A-Fa-f]{3,8}\Z|[A-Za-z]-[A-Za-z]|[&#$*]\w*_"
)
_PART = re.compile(r"[A-Za-z0-9]+")


def shaped_secrets(subject: Subject) -> Iterator[Span]:
    """Yield words that are made like a password."""
    text, last = subject.text, 0
    for sign in _INSIDE.finditer(text):
        at = sign.start()
        if at < last or not at or text[at - 1] not in _ALNUM:
            continue
        head = _INNER.match(text[max(0, at - MAX_CHARS) : at][::-1])
        start = at - (head.end() if head else 0)
        after = _EDGE.search(text, sign.end(), sign.end() + MAX_CHARS)
        last = after.start() if after else min(len(text), sign.end() + MAX_CHARS)
        if is_made_like_a_password(text[start:last]):
            yield Span(start, last, "SECRET", "shape")


def is_made_like_a_password(word: str) -> bool:
    """Tell whether a word has the shape of a password that a person or a generator made."""
    if not MIN_CHARS <= len(word) <= MAX_CHARS or not _WORD.fullmatch(word) or _CODE.search(word):
        return False
    if not (any(c.islower() for c in word) and any(c.isupper() for c in word) and any(c.isdigit() for c in word)):
        return False
    parts = _PART.findall(word)
    mixed = any(
        any(c.isalpha() for c in part) and any(c.isdigit() for c in part) and not is_hex(part) for part in parts
    )
    return mixed and len(parts) <= MAX_SIGNS and not is_dummy(word)
