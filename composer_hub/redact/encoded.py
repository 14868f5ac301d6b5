"""Documents inside a text that base64 or hexadecimal hides.

In: a text. Out: the runs of it that decode to text, with that text. Certificates, pictures and random bytes do not.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

from composer_hub.redact.judge import is_hex
from composer_hub.redact.match import long_words
from composer_hub.redact.triggers import MAX_REMEMBERED, MAX_WORDS

MAX_RUN = 200_000

_RUN = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_LINES = re.compile(
    r"(?<![^\s\"'|>])[A-Za-z0-9+/]{56,76}\r?\n(?:[ \t>|]*[A-Za-z0-9+/]{56,76}\r?\n)*[ \t>|]*[A-Za-z0-9+/]{1,76}={0,2}"
)
_LINE = re.compile(r"[A-Za-z0-9+/]{55,76}\Z")
"""The end of a word that may be a line of them."""
_BREAKS = re.compile(r"[\s>|]+")
_WITHOUT: set[str] = set()
"""Words that hide no text."""


class Hidden(NamedTuple):
    """A run of a text and the text that it decodes to."""

    start: int
    end: int
    text: str


def hidden_texts(text: str) -> Iterator[Hidden]:
    """Yield the encoded documents of a text."""
    words = long_words(text) - _WITHOUT
    wrapped = False
    for word in words:
        wrapped = wrapped or (56 <= len(word) <= 76 and bool(_LINE.search(word)))
        if not _hides(word):
            if len(word) <= MAX_REMEMBERED and len(_WITHOUT) < MAX_WORDS and not 56 <= len(word) <= 76:
                _WITHOUT.add(word)
            continue
        at = text.find(word)
        while at >= 0:
            for run in _RUN.finditer(word):
                if (plain := decoded(run[0])) is not None:
                    yield Hidden(at + run.start(), at + run.end(), plain)
            at = text.find(word, at + len(word))
    for run in _LINES.finditer(text) if wrapped and "\n" in text else ():
        if (plain := decoded(_BREAKS.sub("", run[0]))) is not None:
            yield Hidden(*run.span(), plain)


def _hides(word: str) -> bool:
    return any(decoded(run[0]) is not None for run in _RUN.finditer(word))


def decoded(run: str) -> str | None:
    """Return the text that a run decodes to, or None if it decodes to bytes."""
    if len(run) > MAX_RUN:
        return None
    try:
        if is_hex(run) and len(run) % 2 == 0:
            data = bytes.fromhex(run)
        else:
            # Paths and identifiers are cheap to rule out: three of their bytes are rarely text.
            code = run.rstrip("=").replace("-", "+").replace("_", "/")
            if len(code) % 4 == 1 or not base64.b64decode(code[:16]).isascii():
                return None
            data = base64.b64decode(code + "=" * (-len(code) % 4))
        text = data.decode("utf-8")
        if text.count("\0") == 2 and text[:1] == "\0":
            text = text[1:].replace("\0", ":")  # the user and the password of SMTP
    except (ValueError, binascii.Error):
        return None
    plain = text.replace("\n", "").replace("\t", "").replace("\r", "").replace("\x1b", "")
    return text if plain.isprintable() and len(plain) >= 8 else None
