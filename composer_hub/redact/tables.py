"""Secrets under or beside their name: columns of tables, XML siblings, the values of a Kubernetes secret.

In: a text. Out: spans of values.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from composer_hub.redact.data import words
from composer_hub.redact.fields import beside, fields_of, key_places, personal_value
from composer_hub.redact.judge import is_secret, looks_random, what_is
from composer_hub.redact.match import MAX_JUDGED, Span, Subject
from composer_hub.redact.names import promise_of
from composer_hub.redact.settings import kind_of

MAX_ROWS = 200
"""Rows of a table that are read below its head."""

_COLUMNS = {name: name.replace("_", " ").split()[0] for name in words("columns of secrets")}
"""Names of columns of secrets, and the trigger of each."""
_HEAD_CELL = re.compile(r"[ \t\"'`*]{0,40}([^\W\d_][\w ./()°'-]{0,40}?)[ \t\"'`*]{0,40}")
_COLUMN = re.compile(r"\S+(?: \S+)*?(?=\s{1,}|\Z)")
_COLUMNED = re.compile(r"\s*[A-Za-z_][\w.]*(?:\s+[A-Za-z_][\w.]*){2,20}\s*")
_DELIMITERS = "|\t;,"
_QUOTED_CELL = re.compile(r"[ \t]*(?:\"(?:[^\"\\\n]|\"\"|\\.)*\"|'(?:[^'\\\n]|''|\\.)*')[ \t]*")
_INSERT = re.compile(r"(?i)insert\s+into\s+[\w.`\"\[\]]{1,80}\s*\((?P<columns>[^()]{3,800})\)\s*values\s*")
_TUPLE = re.compile(r"\((?P<row>(?:[^()'\n]|'(?:[^'\\]|''|\\.)*'){3,4000})\)")
MAX_INSERT = 20_000
_GAP = r"(?:\s|\\n|\d{1,6}[\t:→|]|[>+-](?=[ \t<])|(?<=\n)[+>-]){0,60}"
_PAIR = re.compile(
    rf"<(?P<tag>[\w:.-]{{1,40}})>\s{{0,8}}(?P<name>[^<>\n]{{2,80}}?)\s{{0,8}}</(?P=tag)>{_GAP}"
    r"<[\w:.-]{1,40}>\s{0,8}(?P<v>[^<>\n]{4,512}?)\s{0,8}</"
)
_ELEMENT = re.compile(
    r"<(?P<tag>[\w:.-]{1,60})(?P<attributes>(?:\s[^<>]{1,300})?)>\s{0,8}(?P<v>[^<>\n]{4,512}?)\s{0,8}</(?P=tag)>"
)
_ATTRIBUTES = re.compile(r"<[\w:.-]{1,60}\s[^<>]{1,600}>")
_NAME_OF = re.compile(r"(?i)\b(?:name|key|id|property)=\\?[\"']([^\"'<>\\]{2,80})")
_VALUE_OF = re.compile(r"(?i)\bvalue=\\?[\"'](?P<v>[^\"'<>\\]{4,512})")
_VALUE_FIRST = re.compile(
    r"\"[vV]alue\\*\"\s{0,4}:\s{0,4}\\*\"(?P<v>[^\"\\\n]{4,512})\\*\"\s{0,4},\s{0,16}\\*\"(?:[nN]ame|[kK]ey|label)\\*\"\s{0,4}:\s{0,4}\\*\""
    r"(?P<name>[^\"\\\n]{2,80})"
)
_NESTED = re.compile(
    r"\"(?P<name>[\w./-]{2,60})\\*\"\s{0,4}:\s{0,4}\{[^{}]{0,200}?"
    r"\"value\\*\"\s{0,4}:\s{0,4}\\*\"(?P<v>[^\"\\\n]{4,512})\\*\""
)
_KUBERNETES = re.compile(r"(?:^|[\s\"+>n])kind:\s{0,4}[\"']?Secret\b")
_ENTRY = re.compile(
    r"(?:[ \t]*\d{1,6}[\t:→|])?[+>-]?(?P<indent>[ \t]*)(?P<name>[\w.-]{1,120}):"
    r"(?:[ \t]+(?P<v>[^\s#&*|>{][^\n]*?))?[ \t]*"
)


def table_secrets(subject: Subject) -> Iterator[Span]:
    """Yield the secrets in tables, elements and Kubernetes objects."""
    text = subject.text
    if not subject.words:
        return
    if "\n" in text:
        yield from _column_spans(subject)
    if "insert" in subject.lowered:
        yield from _inserted(text)
    if "</" in text or "/>" in text:
        yield from _xml_spans(text)
    if '"value' in text or '"Value' in text:
        for match in _VALUE_FIRST.finditer(text):
            yield from _if_secret(match["name"], match)
        for match in _NESTED.finditer(text):
            yield from _if_secret(match["name"], match)
    if "kind:" in text and "Secret" in text:
        yield from _kubernetes_spans(text)


def _heads(subject: Subject) -> dict[int, int]:
    """Return the beginnings and ends of the lines that may be the head of a table."""
    text, lowered, triggers = subject
    heads = {}
    for begin, end in key_places(text, lowered, frozenset(trigger for trigger in triggers if trigger[0] == "\0")):
        if (stop := text.find("\n", end)) >= 0:
            heads[text.rfind("\n", 0, begin) + 1] = stop
    for name in [name for name, trigger in _COLUMNS.items() if trigger in triggers]:
        at = lowered.find(name)
        while at >= 0 and (end := text.find("\n", at)) >= 0:
            heads[text.rfind("\n", 0, at) + 1] = end
            at = lowered.find(name, end)
    return heads


def _column_spans(subject: Subject) -> Iterator[Span]:
    """Yield the private values of tables, also of those that only spaces align."""
    text, after = subject.text, 0
    for begin, end in sorted(_heads(subject).items()):
        head = text[begin:end]
        if begin < after or len(head) > 600:
            continue
        delimiter = next((sign for sign in _DELIMITERS if sign in head), "")
        if not delimiter and _COLUMNED.fullmatch(head):
            spans, after = _aligned(text, begin, end)
            yield from spans
        if delimiter and (delimiter == "|" or _may_be_cells(head, delimiter)):
            cells = [cell for cell, _ in cells_of(head, delimiter)]
            if delimiter == "|" or all(_HEAD_CELL.fullmatch(cell) for cell in cells):
                for span in _below(text, end + 1, cells, delimiter):
                    after = span.end
                    yield span


def _aligned(text: str, begin: int, at: int) -> tuple[list[Span], int]:
    """Return the private values in a table that only spaces align, and the offset of its end."""
    spans: list[Span] = []
    heads = [(name[0], name.start()) for name in _COLUMN.finditer(text[begin:at])]
    if len(heads) < 3 or sum(bool(fields_of(name) or _promise(name)[0]) for name, _ in heads) < 2:
        return spans, begin
    edges = [start for _, start in heads[1:]] + [1_000]
    for _ in range(MAX_ROWS):
        begin, at = at + 1, text.find("\n", at + 1)
        line = text[begin : at if at >= 0 else len(text)]
        if any(start and line[start - 1 : start] not in (" ", "") for _, start in heads) or not line.strip():
            break
        cells = [line[start:edge] for (_, start), edge in zip(heads, edges, strict=True)]
        for (name, start), cell in zip(heads, cells, strict=True):
            value = cell.strip()
            label, rule = personal_value(name, value)
            if label:
                spans.append(Span(begin + start, begin + start + len(value), label, rule))
        if at < 0:
            break
    return spans, begin


def _may_be_cells(head: str, delimiter: str) -> bool:
    """Return whether the first cell of a line allows it to be the head of a table.

    A cell in quotes may hold the delimiter.
    """
    cell = head.partition(delimiter)[0]
    if cell.lstrip(" \t")[:1] in ("'", '"'):
        return True
    return bool(_HEAD_CELL.fullmatch(cell.lstrip(" \t`*\"'").rstrip(" \t`*\"'\r")))


def _inserted(text: str) -> Iterator[Span]:
    for insert in _INSERT.finditer(text):
        columns = [column for column, _ in cells_of(insert["columns"], ",")]
        for row in _TUPLE.finditer(text, insert.end(), insert.end() + MAX_INSERT):
            yield from _row(row["row"], row.start("row"), columns, ",")


def cells_of(line: str, delimiter: str) -> list[tuple[str, int]]:
    """Return the cells of a row without their quotes, and where each begins."""
    cells: list[tuple[str, int]] = []
    at = 0
    while at <= len(line):
        quoted = _QUOTED_CELL.match(line, at) if delimiter != "|" else None
        end = (
            quoted.end()
            if quoted and line[quoted.end() : quoted.end() + 1] in (delimiter, "")
            else line.find(delimiter, at)
        )
        end = len(line) if end < 0 else end
        cell = line[at:end]
        plain = cell.lstrip(" \t`*\"'")
        cells.append((plain.rstrip(" \t`*\"'\r"), at + len(cell) - len(plain)))
        at = end + 1
    return cells


def _below(text: str, at: int, cells: list[str], delimiter: str) -> Iterator[Span]:
    """Yield the secrets and the personal data below the names in the head of a table."""
    if not any(_promise(cell)[0] or fields_of(cell) for cell in cells):
        return
    for _ in range(MAX_ROWS):
        end = text.find("\n", at)
        line = text[at : end if end >= 0 else len(text)]
        if len(cells_of(line, delimiter)) != len(cells):
            # The rule under the head of a psql table has different signs.
            if not line.strip("-+=|: \t0123456789→>") and line.strip():
                at = end + 1
                continue
            return
        yield from _row(line, at, cells, delimiter)
        if end < 0:
            return
        at = end + 1


def _row(line: str, at: int, heads: list[str], delimiter: str) -> Iterator[Span]:
    cells = cells_of(line, delimiter)
    if len(cells) != len(heads):
        return
    record = {head: value for head, (value, _) in zip(heads, cells, strict=True)}
    neighbors = dict(beside(record))
    for head, (value, start) in zip(heads, cells, strict=True):
        strength, stem = _promise(head)
        label, rule = personal_value(head, value)
        if strength and _is_cell(value) and is_secret(value[:MAX_JUDGED], strength, "quoted"):
            label, rule = "SECRET", f"column:{stem}"
        elif not label and value in neighbors:
            label, rule = neighbors[value], "column"
        if label:
            yield Span(at + start, at + start + len(value), label, rule)


def _is_cell(value: str) -> bool:
    """Return whether a cell is a value rather than a word or identifier that the table explains."""
    return " " not in value and any(c.isdigit() or c in "!@#$%^&*" for c in value) and value.isascii()


def _promise(cell: str) -> tuple[str, str]:
    match = _HEAD_CELL.fullmatch(cell)
    if not match:
        return "", ""
    name = match[1].strip().lower().replace(" ", "_")
    return ("password", name) if name in ("pw", "pass", "pwd") else promise_of(name)


def _xml_spans(text: str) -> Iterator[Span]:
    for match in _PAIR.finditer(text):
        yield from _if_secret(match["name"], match)
    for match in _ELEMENT.finditer(text):
        name = _NAME_OF.search(match["attributes"])
        yield from _if_secret(name[1] if name else match["tag"].rpartition(":")[2], match)
    for element in _ATTRIBUTES.finditer(text):
        name, value = (pattern.search(text, element.start(), element.end()) for pattern in (_NAME_OF, _VALUE_OF))
        if name and value:
            yield from _if_secret(name[1], value)


def _if_secret(name: str, match: re.Match[str]) -> Iterator[Span]:
    strength, stem = promise_of(name.replace(" ", "_"))
    if strength and is_secret(match["v"][:MAX_JUDGED], strength, "quoted"):
        yield Span(*match.span("v"), "SECRET", f"element:{stem}")


def _kubernetes_spans(text: str) -> Iterator[Span]:
    """Yield every value in the `data` of a secret, whatever its name."""
    after = 0
    for kind in _KUBERNETES.finditer(text):
        if kind.start() < after:
            continue
        inside = None
        at = _document_start(text, text.rfind("\n", 0, kind.end()) + 1)
        for _ in range(MAX_ROWS):
            end = text.find("\n", at)
            entry = _ENTRY.fullmatch(text, at, end if end >= 0 else len(text))
            if not entry:
                break
            indent = len(entry["indent"])
            if inside is not None and indent > inside:
                value = (entry["v"] or "").strip("\"'")
                if len(value) >= 8 and not value.startswith(("$", "{", "<")) and not _is_plain(entry["name"], value):
                    start = text.index(value, entry.start("v"))
                    yield Span(start, start + len(value), "SECRET", "kubernetes_secret")
            else:
                inside = indent if entry["name"] in ("data", "stringData") and not entry["v"] else None
            at = end + 1
            if end < 0:
                break
        after = at


def _is_plain(name: str, value: str) -> bool:
    """Return whether a value in a secret is only a level, a host or a number, perhaps in base64."""
    if promise_of(name)[0] or kind_of(name):
        return False
    try:
        decoded = base64.b64decode(value, validate=True).decode().strip()
    except ValueError:
        decoded = value
    return bool(what_is(decoded)) or (decoded.isalpha() and not looks_random(decoded)) or decoded.isdigit()


def _document_start(text: str, at: int) -> int:
    """Return the beginning of this YAML document: `data` may precede `kind`."""
    for _ in range(MAX_ROWS):
        begin = text.rfind("\n", 0, max(0, at - 1)) + 1
        if at == 0 or not _ENTRY.fullmatch(text, begin, at - 1):
            break
        at = begin
    return at
