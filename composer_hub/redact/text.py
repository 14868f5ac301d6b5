"""Redact one text: find every value, replace each by its placeholder, leave everything around it as it was.

In: a text, the name (JSON key) it stands under, and a function that makes placeholders. Out: the redacted text. JSON
inside the text stays valid: string literals are decoded, redacted and encoded one by one, and nothing between them is
touched.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

import orjson

from composer_hub.redact.commands import COMMAND_WORDS, command_spans
from composer_hub.redact.context import CONTEXT_TRIGGERS, context_spans
from composer_hub.redact.digits import number_spans
from composer_hub.redact.named import Span, named_spans, named_value
from composer_hub.redact.names import NAME_TRIGGERS
from composer_hub.redact.network import network_spans
from composer_hub.redact.people import PEOPLE_TRIGGERS, mail_spans, name_spans
from composer_hub.redact.phrases import PHRASE_TRIGGERS, phrase_spans
from composer_hub.redact.shapes import SHAPE_TRIGGERS, broken_spans, shape_spans
from composer_hub.redact.tables import table_spans
from composer_hub.redact.words import Triggers

Place = Callable[[str, str, str], str]
"""Make the placeholder of (label, value, rule)."""

PLACEHOLDER = re.compile(r"\[(?:[A-Z]+_(?:\d+|x[0-9a-f]{16})|IMAGE)\]")
MAX_PASSES = 6
MAX_DEPTH = 6
MIN_IMAGE = 2048
"""Base64 characters from which an inline image is a picture rather than an icon in a style sheet."""

_DATA_URL = re.compile(rf"data:image/[\w.+-]{{1,40}}(?:;[\w=-]{{1,40}})*;base64,[A-Za-z0-9+/=\r\n]{{{MIN_IMAGE},}}")
_IMAGE = re.compile(rf"(?:iVBORw0KGgo|/9j/4|R0lGOD|UklGR)[A-Za-z0-9+/=\r\n]{{{MIN_IMAGE},}}")
_IMAGE_MAGIC = ("iVBORw0KGgo", "/9j/4", "R0lGOD", "UklGR")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
_NAME_BEHIND = re.compile(r'[^{}\[\]]{0,200}?"(?:name|key|label|Name|Key)"\s*:\s*"([^"\\]{1,80})"')
_JWK_PRIVATE = frozenset(("d", "k", "p", "q", "dp", "dq", "qi"))
_ANSI = re.compile(r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033|\\e)\[[0-9;?]*[A-Za-z]")
_LEAD = re.compile(
    r"\n(?P<lead>)(?:[ \t]*\d{1,6}[\t→][ \t]?|[\w.@+-]{0,60}/[\w./@+-]{1,120}:\d{1,6}[:-]"
    r"|[\w.@+-]{1,60}\.(?:[cm]?[jt]sx?|py|go|rs|java|kt|rb|php|cc?|cpp|h|cs|sh|sql|md|txt|json|ya?ml|toml|ini|cfg|conf|env|xml|tf|log)"
    r":\d{1,6}[:-]|> "
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:+]*Z?\]?[ \t])"
)
Cut = tuple[int, int]
_PEM = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d:")
_PEM_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----|Private-MAC: [0-9a-f]+")
_PEM_BODY = re.compile(
    r"(?:(?:[ \t>+|\"'#*-]|\d+[\t→:]|\\[nrt]|[\r\n]|(?:Proc-Type|DEK-Info|Version|Comment|Hash"
    r"|Charset)[^\n\\]{0,80})*[A-Za-z0-9+/=]{16,})+"
)


_TRIGGERS = Triggers(
    (*NAME_TRIGGERS.values(), *CONTEXT_TRIGGERS, *PHRASE_TRIGGERS, *SHAPE_TRIGGERS, *PEOPLE_TRIGGERS), COMMAND_WORDS
)


def redact_text(text: str, place: Place, name: str = "", depth: int = 0) -> str:
    """Return the text with every secret and personal value replaced; doing it again changes nothing."""
    for _ in range(MAX_PASSES):
        redacted = redact_once(text, place, name, depth)
        if redacted == text:
            break
        text = redacted
    return text


def redact_once(text: str, place: Place, name: str = "", depth: int = 0) -> str:
    """Return the text after one pass; what a placeholder makes visible is found by the next."""
    if len(text) < 6:
        return text
    if name and (rule := named_value(name, text)):
        return place("SECRET", text, rule)
    if depth < MAX_DEPTH and _is_json(text):
        return _redact_literals(text, place, depth)
    if depth < MAX_DEPTH and (text[0] == "{" or "\n{" in text):
        text = _redact_json_lines(text, place, depth)
    text = _without_images(text)
    return _replace(text, list(spans(text)), place)


def spans(text: str) -> Iterator[Span]:
    """Yield every value to replace, as places in the text."""
    codes = "\x1b[" in text or "[0m" in text or "\\u001b" in text
    cuts = sorted({*(found.span() for found in _ANSI.finditer(text))} if codes else ())
    cuts = _with_leads(text, cuts)
    if not cuts:
        yield from _plain_spans(text)
        return
    plain, starts, shifts = _without(text, cuts)
    for start, end, label, rule in _plain_spans(plain):
        yield (
            start + shifts[bisect_right(starts, start) - 1],
            end + shifts[bisect_right(starts, end - 1) - 1],
            label,
            rule,
        )


def _with_leads(text: str, cuts: list[Cut]) -> list[Cut]:
    """Add what tools write before each line: a number, a file and a number, a time, a sign of quotation."""
    if "\n" not in text and not _LEAD.match("\n" + text[:200]):
        return cuts
    first = _LEAD.match("\n" + text[:200])
    leads = [(found.start("lead"), found.end()) for found in _LEAD.finditer(text)]
    if first and first.end() > 1:
        leads.insert(0, (0, first.end() - 1))
    return _merged(sorted([*cuts, *leads])) if leads else cuts


def _merged(cuts: list[Cut]) -> list[Cut]:
    merged: list[Cut] = []
    for start, end in cuts:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(text: str, cuts: list[Cut]) -> tuple[str, list[int], list[int]]:
    """Return the text without the cuts, where its pieces begin, and by how much each was moved."""
    parts, starts, shifts = [], [0], [0]
    last = length = cut = 0
    for start, end in cuts:
        parts.append(text[last:start])
        length += start - last
        cut += end - start
        starts.append(length)
        shifts.append(cut)
        last = end
    parts.append(text[last:])
    return "".join(parts), starts, shifts


def same_length_lower(text: str) -> str:
    """Return the text in lower case, each character at its place: only İ would take two."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.replace("İ", "I").lower()


def _plain_spans(text: str) -> Iterator[Span]:
    lowered = same_length_lower(text)
    yield from _pem_spans(text)
    yield from shape_spans(text)
    words = _TRIGGERS.of(lowered)
    yield from broken_spans(text, words)
    yield from context_spans(text, lowered, words)
    yield from command_spans(text, words)
    if words:
        yield from named_spans(text, lowered, words)
        yield from phrase_spans(text, lowered, words)
        yield from table_spans(text, lowered, words)
    yield from mail_spans(text)
    yield from network_spans(text)
    yield from number_spans(text)
    yield from name_spans(text, lowered, words)


def _pem_spans(text: str) -> Iterator[Span]:
    if "PRIVATE KEY" not in text and "PuTTY-User-Key" not in text:
        return
    covered = -1
    for begin in _PEM.finditer(text):
        end = _PEM_END.search(text, begin.end(), begin.end() + 20_000)
        stop = end.end() if end else begin.end()
        if not end and (body := _PEM_BODY.match(text, begin.end(), begin.end() + 20_000)):
            stop = body.end()
        if sum(c.isalnum() for c in text[begin.end() : stop]) >= 60 and "..." not in text[begin.end() : stop]:
            covered = stop
            yield begin.start(), stop, "SECRET", "private_key"
    for end in _PEM_END.finditer(text):
        if end.start() >= covered:
            yield from _pem_tail(text, end)


def _pem_tail(text: str, end: re.Match[str]) -> Iterator[Span]:
    """Yield what is left of a key whose beginning was cut off."""
    head = text[max(0, end.start() - 8000) : end.start()]
    lines = re.split(r"(\n|\\n)", head)
    kept = 0
    while lines and (
        not lines[-1].strip()
        or lines[-1] == "\\n"
        or re.fullmatch(r"[\s\d→:+>|\"'-]*[A-Za-z0-9+/=]{16,}\s*", lines[-1])
    ):
        kept += len(lines.pop())
    if kept > 60:
        yield end.start() - kept, end.end(), "SECRET", "private_key"


def _without_images(text: str) -> str:
    if len(text) < MIN_IMAGE:
        return text
    if "data:image/" in text:
        text = _DATA_URL.sub("[IMAGE]", text)
    return _IMAGE.sub("[IMAGE]", text) if any(magic in text for magic in _IMAGE_MAGIC) else text


def _replace(text: str, found: list[Span], place: Place) -> str:
    if not found:
        return text
    found.sort(key=lambda span: (span[0], -span[1]))
    parts: list[str] = []
    last = 0
    for start, end, label, rule in found:
        if start < last or _touches_placeholder(text, start, end):
            continue
        parts += [text[last:start], place(label, text[start:end], rule)]
        last = end
    return "".join([*parts, text[last:]])


def _touches_placeholder(text: str, start: int, end: int) -> bool:
    found = PLACEHOLDER.search(text, max(0, start - 1), end + 32)
    return found is not None and found.start() < end


# ----------------------------------------------------------------------------------------------------- JSON inside text


def _is_json(text: str) -> bool:
    head, tail = text.lstrip()[:1], text.rstrip()[-1:]
    if (head, tail) not in (("{", "}"), ("[", "]")) or '"' not in text:
        return False
    try:
        orjson.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _redact_json_lines(text: str, place: Place, depth: int) -> str:
    """Redact the lines of a text that are JSON documents, as `cat` of a log shows them."""
    lines = text.split("\n")
    changed = False
    for i, line in enumerate(lines):
        if line[:1] == "{" and _is_json(line):
            lines[i] = _redact_literals(line, place, depth)
            changed = changed or lines[i] != line
    return "\n".join(lines) if changed else text


def _redact_literals(text: str, place: Place, depth: int) -> str:
    """Redact each string literal of a JSON text on its own, with its key as its name."""
    parts: list[str] = []
    last = 0
    key = label = ""
    parent = ""
    is_jwk = '"kty"' in text
    for literal in _LITERAL.finditer(text):
        raw, is_key = literal[1], literal[2] is not None
        value = json.loads(f'"{raw}"', strict=False) if "\\" in raw else raw
        if is_key:
            key = value
            if text[literal.end() : literal.end() + 4].lstrip()[:1] == "{":
                parent = key
        name = "" if is_key else key
        if name.lower().endswith("value"):
            name = label or _label_behind(text, literal.end()) or parent or name
        elif is_jwk and name in _JWK_PRIVATE:
            name = "private_key"
        redacted = redact_text(value, place, name, depth + 1)
        if redacted != value:
            parts += [text[last : literal.start(1)], json.dumps(redacted, ensure_ascii=raw.isascii())[1:-1]]
            last = literal.end(1)
        if not is_key:
            label = value if _names_a_value(key) else label if key.lower() in ("type", "secret") else ""
    return "".join([*parts, text[last:]])


def _names_a_value(key: str) -> bool:
    """Tell whether what stands under this key names the value beside it."""
    return key.lower().endswith(("name", "key", "label", "field", "variable"))


def _label_behind(text: str, at: int) -> str:
    """Return the name that follows its value in the same object."""
    found = _NAME_BEHIND.match(text, at)
    return found[1] if found else ""
