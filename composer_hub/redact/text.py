"""Redact one text: replace every value by its placeholder and leave everything around it as it was.

In: a text, the JSON key it was under, and a function that makes placeholders. Out: the redacted text. JSON inside the
text stays valid: string literals are decoded, redacted and encoded one by one, and nothing between them changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from composer_hub.redact.assignments import named_value
from composer_hub.redact.fields import personal_value
from composer_hub.redact.finders import FINDERS, find
from composer_hub.redact.judge import is_private
from composer_hub.redact.match import Finder
from composer_hub.redact.siblings import sibling_values
from composer_hub.redact.structure import replaced

Place = Callable[[str, str, str], str]
"""Make the placeholder of (label, value, rule)."""

MAX_PASSES = 6
MAX_DEPTH = 6
MIN_IMAGE = 2048
"""Base64 characters of the smallest picture; shorter ones are icons in a style sheet."""

_DATA_URL = re.compile(rf"data:image/[\w.+-]{{1,40}}(?:;[\w=-]{{1,40}})*;base64,[A-Za-z0-9+/=\r\n]{{{MIN_IMAGE},}}")
_IMAGE = re.compile(rf"(?:iVBORw0KGgo|/9j/4|R0lGOD|UklGR)[A-Za-z0-9+/=\r\n]{{{MIN_IMAGE},}}")
_IMAGE_MAGIC = ("iVBORw0KGgo", "/9j/4", "R0lGOD", "UklGR")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
_NAME_BEHIND = re.compile(r'[^{}\[\]]{0,200}?"(?:name|key|label|Name|Key)"\s*:\s*"([^"\\]{1,80})"')
_HEADERS = frozenset(("cookie", "set-cookie", "authorization", "proxy-authorization"))
"""Keys that are a part of how their value is recognized."""
_PARTS_OF = frozenset(("number", "line", "no", "nr", "key"))
"""Keys that say something only with the key of the object around them."""
_JWK_PRIVATE = frozenset(("d", "k", "p", "q", "dp", "dq", "qi"))


def redact_text(text: str, place: Place, name: str = "", depth: int = 0, finders: Sequence[Finder] = FINDERS) -> str:
    """Return the text with every secret and personal value replaced; repeating this changes nothing."""
    for _ in range(MAX_PASSES):
        redacted = redact_once(text, place, name, depth, finders)
        if redacted == text:
            break
        text = redacted
    return text


def redact_once(text: str, place: Place, name: str = "", depth: int = 0, finders: Sequence[Finder] = FINDERS) -> str:
    """Return the text after one pass; a placeholder may reveal a value to the next."""
    if name and (personal := personal_value(name, text))[0]:
        return place(personal[0], text, personal[1])
    if name and (rule := named_value(name, text)) and is_private(text):
        return place("SECRET", text, rule)
    if len(text) < 6:
        return text
    if depth < MAX_DEPTH and (document := _parsed(text)) is not None:
        return _redact_literals(text, document, place, depth, finders)
    if depth < MAX_DEPTH and (text[0] == "{" or "\n{" in text):
        text = _redact_json_lines(text, place, depth, finders)
    text = _without_images(text)
    head = f"{name}: " if name.lower() in _HEADERS and "\n" not in text else ""
    spans = ((span.start - len(head), span.end - len(head), span) for span in find(head + text, finders))
    return replaced(text, spans, lambda span, value: place(span.label, value, span.rule))


def _without_images(text: str) -> str:
    if len(text) < MIN_IMAGE:
        return text
    if "data:image/" in text:
        text = _DATA_URL.sub("[IMAGE]", text)
    return _IMAGE.sub("[IMAGE]", text) if any(magic in text for magic in _IMAGE_MAGIC) else text


# ----------------------------------------------------------------------------------------------------- JSON inside text


def _parsed(text: str) -> Any:
    """Return the object or list that a text is, or None."""
    head, tail = text.lstrip()[:1], text.rstrip()[-1:]
    if (head, tail) not in (("{", "}"), ("[", "]")) or '"' not in text:
        return None
    try:
        return orjson.loads(text)
    except (ValueError, RecursionError):
        return None


def _redact_json_lines(text: str, place: Place, depth: int, finders: Sequence[Finder]) -> str:
    """Redact the lines of a text that are JSON documents, as in a log."""
    lines = text.split("\n")
    changed = False
    for i, line in enumerate(lines):
        if line[:1] == "{" and (document := _parsed(line)) is not None:
            lines[i] = _redact_literals(line, document, place, depth, finders)
            changed = changed or lines[i] != line
    return "\n".join(lines) if changed else text


def _redact_literals(text: str, document: Any, place: Place, depth: int, finders: Sequence[Finder]) -> str:
    """Redact each string literal of a JSON text by itself, with its key as its name."""
    parts: list[str] = []
    last = 0
    key = label = ""
    parent = ""
    is_jwk = '"kty"' in text
    siblings = {
        value: (label, rule)
        for value, label, rule in sibling_values(document)
        if label != "SECRET" or is_private(value)
    }
    for literal in _LITERAL.finditer(text):
        raw, is_key = literal[1], literal[2] is not None
        value = json.loads(f'"{raw}"', strict=False) if "\\" in raw else raw
        if is_key:
            key = value
            if text[literal.end() : literal.end() + 6].lstrip(" [\n")[:1] == "{":
                parent = key
        name = "" if is_key else key
        if name.lower().endswith("value"):
            name = label or _label_behind(text, literal.end()) or parent or name
        else:
            name = _name_within(parent, name, is_jwk)
        if value in siblings and not is_key:
            redacted = place(siblings[value][0], value, siblings[value][1])
        else:
            redacted = redact_text(value, place, name, depth + 1, finders)
        if redacted != value:
            parts += [text[last : literal.start(1)], json.dumps(redacted, ensure_ascii=raw.isascii())[1:-1]]
            last = literal.end(1)
        if not is_key:
            label = value if _names_a_value(key) else label if key.lower() in ("type", "secret") else ""
    return "".join([*parts, text[last:]])


def _name_within(parent: str, key: str, is_jwk: bool) -> str:
    """Return what a key means in its object: `number` in a `passport` is a `passport_number`."""
    if parent and key.lower() in _PARTS_OF:
        return f"{parent}_{key}"
    return "private_key" if is_jwk and key in _JWK_PRIVATE else key


def _names_a_value(key: str) -> bool:
    """Return whether the string under this key names the value beside it."""
    return key.lower().endswith(("name", "key", "label", "field", "variable"))


def _label_behind(text: str, at: int) -> str:
    """Return the name that follows its value in the same object."""
    match = _NAME_BEHIND.match(text, at)
    return match[1] if match else ""
