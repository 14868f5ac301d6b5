"""Lines of settings: a name, a value and how they are written, judged together.

In: a text, or a name with its value. Out: spans of values. In a file of settings, a form or a command line a literal
beside the name of a secret is a secret even if it is a word or a number. Code is left to `assignments.py`, which asks
for more proof.
"""

from __future__ import annotations

import functools
import re

from composer_hub.redact.data import words
from composer_hub.redact.judge import (
    TRIVIAL,
    is_dummy,
    is_hex,
    is_ordinary,
    is_uuid,
    looks_random,
    reads_as_words,
)
from composer_hub.redact.match import PLACEHOLDER, fold

PASSWORD, TOKEN, KEY, CODE, LICENSE = "password", "token", "key", "code", "license"

_NOUNS = {noun: kind for kind in (PASSWORD, TOKEN, KEY, CODE, LICENSE) for noun in words(f"settings with {kind}s")}
_ENDINGS = tuple(sorted((noun for noun in _NOUNS if len(noun) >= 5), key=len, reverse=True))
_LOCKED = frozenset(words("what codes open"))
_PUBLIC = frozenset(words("public keys and tokens"))
_FILLERS = frozenset(("value", "val", "plain", "plaintext", "old", "new", "current", "prod", "production", "staging", "raw", "text", "string", "encoded", "base64", "b64", "hex", "default", "main", "primary", "secondary", "temp", "initial", "base"))  # fmt: skip  # noqa: E501
_VOCABULARY = (
    frozenset(words("words that are no names"))
    | frozenset(words("words of settings"))
    | frozenset(words("words about passwords"))
    | frozenset(words("users of no one"))
    | TRIVIAL
)

_SMALL = frozenset(("a", "am", "an", "and", "con", "das", "de", "der", "die", "e", "el", "im", "in", "la", "las", "le", "les", "los", "of", "para", "por", "the", "und", "y"))  # fmt: skip  # noqa: E501
"""Words that join the words of a phrase."""

_NAME_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_REFERENCE = re.compile(
    r"[$<{\[(%@~&*!|`>/\\#=]|\.{1,2}/|\w+://|(?:process|import|os|env|secrets|vars?|data|module|local|self|this|config|settings|args|req|params|options)[.\[]"
    r"|(?i:op|vault|ssm|sops|ref\+\w+|file|env|arn|enc|sm)[:\[]|v?\d+(?:\.\d+)+(?:[-+~].*)?\Z|[\^~><=]+\d"
)
_CALL = re.compile(r"\w\(|\)|\$\{|\{\{|\$\(|=>|<[a-zA-Z]|\.\.\.|…|\*{3}|[•●]{2}|::|\w\[|%s|\\[wdsnt]")
_FILE = re.compile(r"(?:[\w.~-]*/)*[\w.-]+\.[a-z][a-z0-9]{1,4}|(?:[\w.-]+/){2,}[\w.-]*")
_CODE_VALUE = re.compile(r"\d{2,4}[ -]\d{2,4}(?:[ -]\d{2,4})?|\d{4,8}[#*]?")
_ROUND = re.compile(r"0+|1234(?:5\d*)?|(?:19|20)\d\d|(\d)\1+|\d{1,2}0{2,}")
_PARTS = re.compile(r"[^\W\d_]+")
_PHRASE = re.compile(r"[^\W_]+(?:[ ,/+&!-]{1,2}[^\W_]+)*!?")
_LICENSE_KEY = re.compile(r"(?=.*\d)[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){2,}")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_UNIT = re.compile(r"[<>~]?-?\d[\d.,:_-]*(?:[a-zA-Z%]{1,7}|/\w+)?")


@functools.lru_cache(maxsize=8192)
def kind_of(name: str) -> str:
    """Return what a setting of this name holds: a password, a token, a key, a code, or nothing that is secret."""
    parts = [fold(part) for part in _NAME_PART.findall(name)]
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _FILLERS):
        parts.pop()
    if not parts:
        return ""
    last, before = parts[-1], parts[:-1]
    for size in (3, 2, 1):
        if kind := _NOUNS.get("".join(parts[-size:])) if len(parts) >= size else None:
            before = parts[:-size]
            break
    else:
        ending = next((noun for noun in _ENDINGS if last.endswith(noun)), "")
        kind = _NOUNS.get(ending, "")
        before = [*before, last.removesuffix(ending)]
    if kind in (TOKEN, KEY) and _PUBLIC.intersection(before):
        return ""
    if kind == KEY and not before:
        return ""
    if kind == CODE and last in ("code", "number", "nummer") and not _LOCKED.intersection(before):
        return ""
    return kind or ""


def is_setting_secret(value: str, kind: str, notation: str) -> bool:
    """Judge a value by what its name promises and how both are written."""
    if PLACEHOLDER.search(value) or not 3 <= len(value) <= 200:
        return False
    if kind == CODE:
        return bool(_CODE_VALUE.fullmatch(value)) and not _ROUND.fullmatch(value.replace(" ", "").replace("-", ""))
    if kind == LICENSE:
        return bool(_LICENSE_KEY.fullmatch(value)) and not is_dummy(value)
    if is_dummy(value) or value.lower() in _VOCABULARY or _REFERENCE.match(value) or _CALL.search(value):
        return False
    if kind == PASSWORD and value.isdigit():
        return "line" in notation and 5 <= len(value) <= 10 and not _ROUND.fullmatch(value)
    if _FILE.fullmatch(value) or _UNIT.fullmatch(value) or is_ordinary(value):
        return False
    if notation.endswith("code"):
        return kind != PASSWORD and len(value) >= 32 and " " not in value and looks_random(value) and not is_uuid(value)
    if kind == PASSWORD:
        return _is_chosen(value, notation)
    if " " in value:
        return False
    if kind == TOKEN and value.count("-") >= 2 and _is_chosen(value, notation):
        return True
    if kind == KEY:
        random = len(value) >= 16 and (looks_random(value) or (is_hex(value) and len(value) >= 32))
        return random and not is_uuid(value) and not (is_hex(value) and len(value) in (16, 40))
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return (
        len(value) >= 8
        and (looks_random(value) or (mixed and len(value) >= 10 and not reads_as_words(value)))
        and not is_uuid(value)
    )


def _is_chosen(value: str, notation: str) -> bool:
    """Tell a password that a person chose, perhaps of words, from words about passwords and names of things."""
    parts = [fold(part) for part in _PARTS.findall(value)]
    if " " in value:
        return _is_phrase(value, parts) and ("quoted" in notation or notation == "line")
    plain = value.isalpha()
    if _VOCABULARY.intersection(parts if len(parts) < 3 else set(parts) - _SMALL) and not (
        any(c.isdigit() for c in value) and looks_random(value)
    ):
        return False
    if plain:
        return len(value) >= 6 and (value.islower() or value.istitle())
    if _IDENTIFIER.fullmatch(value) and not any(c.isdigit() for c in value):
        return False
    return len(value) >= 5 and bool(parts)


def is_vocabulary(value: str) -> bool:
    """Tell words about secrets and programs, perhaps with dashes, from others."""
    parts = [part for part in _PARTS.findall(value.lower()) if len(part) > 1]
    return (
        sum(c.isdigit() for c in value) <= 1
        and bool(_IDENTIFIER.fullmatch(value.replace("-", "_")))
        and _VOCABULARY.issuperset(parts)
    )


def is_chosen_word(value: str) -> bool:
    """Tell a word that a person may have chosen as a password from the words of commands."""
    return is_setting_secret(value, PASSWORD, "flag")


def _is_phrase(value: str, parts: list[str]) -> bool:
    if not 2 + value.islower() <= value.count(" ") + 1 <= 12 or not _PHRASE.fullmatch(value):
        return False
    if not parts:
        return value.count(" ") >= 3 and len(value) >= 16  # groups of digits
    if len(value) < 12 or 2 * sum(part in _VOCABULARY for part in parts) >= len(parts):
        return False
    return value.islower() or any(c.isdigit() for c in value)
