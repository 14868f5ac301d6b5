"""Invisible characters: untrusted text in, the same text with each of them named out.

A line can hold words that a person does not see and an agent reads, and one character can turn the order of the rest.
`visible` shows them where text is shown: on pages, on a terminal, in a log. What is published is never changed.

The Space has this file as well (`space/inspector/characters.py` is a link to it), so it imports nothing of the package.
"""

from __future__ import annotations

import json
import re
import unicodedata

UNICODE = "17.0"
_DEFAULT_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""The property Default_Ignorable_Code_Point, which has all Bidi_Control; Python's unicodedata lacks both."""
_CONTROLS = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"  # all but tab and newline; ends of lines; half pairs
_FORMATS = "\ufff9-\ufffb\U00013430-\U0001343f"  # of annotations and hieroglyphs
_BLANKS = "\u2800\U00016fe4\U0001d159"  # have no ink, and are not spaces: braille, Khitan filler, null notehead
_HIDDEN = re.compile(f"[{_DEFAULT_IGNORABLE}{_CONTROLS}{_FORMATS}{_BLANKS}]")

_ZWNJ, _ZWJ, _AS_TEXT, _AS_EMOJI, _KEYCAP = "\u200c\u200d\ufe0e\ufe0f\u20e3"
_OTHER_EMOJI = "\u203c\u2049\u2139\u3030\u303d"  # which are not symbols for Unicode
_JOINED = re.compile(
    "[\u0590-\u0dff\u0f00-\u109f\u1780-\u18af\u1a20-\u1cff\ua800-\uabff\ufb1d-\ufdff\ufe70-\ufefc"
    "\U00010a00-\U00011fff\U0001e800-\U0001eeff]"
)
"""Hebrew, Arabic, Indic and other scripts that spell with joiners."""


def visible(text: str) -> str:
    """Return text with every hidden character named: an escape becomes ␛, a right-to-left override ⟦U+202E⟧.

    Joiners inside words of the scripts that spell with them and inside emoji stay, and so does the variation selector
    of an emoji. Tags and the other selectors never stay, because they can carry text.
    """
    return _HIDDEN.sub(_named, text)


def spelled_out(document: str) -> str:
    r"""Return JSON text with every hidden character written as `\u202e`, which decodes to the same values."""
    return _HIDDEN.sub(lambda match: json.dumps(match.group())[1:-1], document)


def is_plain(text: str) -> bool:
    """Return whether a text is one line without any hidden character, also of those that `visible` keeps."""
    return not ("\n" in text or "\t" in text or _HIDDEN.search(text))


def _named(match: re.Match[str]) -> str:
    char = match.group()
    if char in (_ZWNJ, _ZWJ, _AS_TEXT, _AS_EMOJI) and _is_spelling(match.string, match.start()):
        return char
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟦U+{code:04X}⟧"


def _is_spelling(text: str, at: int) -> bool:
    """Return whether a joiner or selector belongs to the letters or the emoji around it."""
    char, before, after = text[at], text[max(0, at - 1) : at], text[at + 1 : at + 2]
    if char in (_AS_TEXT, _AS_EMOJI):
        return _is_emoji(before) or (after == _KEYCAP and before in tuple("0123456789#*"))
    if char == _ZWJ and _is_emoji(after):
        return _is_emoji(text[max(0, at - 2) : at - 1] if before == _AS_EMOJI else before)
    return _is_joined(before) and _is_joined(after)


def _is_emoji(char: str) -> bool:
    """Return whether a character may be drawn as a picture: new emoji have a block, the old ones are symbols."""
    if not char or char < "\xa9" or _HIDDEN.match(char):
        return False
    return char in _OTHER_EMOJI or "\U0001f000" <= char <= "\U0001faff" or unicodedata.category(char)[0] == "S"


def _is_joined(char: str) -> bool:
    return bool(char and _JOINED.match(char)) and unicodedata.category(char)[0] in "LM" and not _HIDDEN.match(char)
