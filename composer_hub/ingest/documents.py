"""Files of JSON in every shape harnesses write it: one document, a list of rows, a row a line, Parquet, a Hub dataset.

In: a path and the file's report. Out: parsed values with the line or row they stand on; what cannot be parsed is counted
in the report with its place, and the rest goes on. `head_records` looks at the first bytes only, for the sniffers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from composer_hub.ingest.report import FileReport
from composer_hub.ingest.values import as_dict, dicts, parse_json

MAX_DOCUMENT = 1 << 29
"""A file that has to be parsed in one piece may be this large; longer ones belong in JSONL or Parquet."""

HEAD = 1 << 16
"""What a sniffer gets to see."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|["\[\]{},]', re.DOTALL)
_CLOSER = {b"[": b"]", b"{": b"}"}


def head_records(head: bytes) -> list[dict[str, Any]]:
    """Return the first objects of a JSON document, a list, or lines of JSON, cut off wherever the head ends."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"[":
        return list(dicts(_cut_json(text)))
    if text[:1] != b"{":
        return []
    return _whole_lines(text) or list(filter(None, [as_dict(_cut_json(text))]))


def _whole_lines(text: bytes) -> list[dict[str, Any]]:
    """Return the objects that stand on lines of their own; a document printed over lines has none."""
    records = []
    for line in text.split(b"\n"):
        try:
            value = parse_json(line) if line[:1] == b"{" and line.rstrip()[-1:] == b"}" else None
        except ValueError:
            continue
        if isinstance(value, dict) and value:
            records.append(value)
    return records


def _cut_json(text: bytes) -> Any:
    """Parse what a truncated JSON text holds up to its last whole value."""
    stack: list[bytes] = []
    cuts: list[tuple[int, bytes]] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == b'"':  # a string that the cut left open
            break
        if token in _CLOSER:
            stack.append(_CLOSER[token])
            cuts.append((match.end(), b"".join(reversed(stack))))
        elif token in (b"]", b"}"):
            if not stack or stack.pop() != token:
                break
            cuts.append((match.end(), b"".join(reversed(stack))))
            if not stack:
                break
        elif token == b",":
            cuts.append((match.start(), b"".join(reversed(stack))))
    for end, closers in reversed(cuts[-8:]):
        try:
            return parse_json(text[:end] + closers)
        except ValueError:
            continue
    return None


def read_document(path: Path, report: FileReport) -> Any:
    """Parse a file in one piece; None, and a counted problem, where it is too large or no JSON."""
    size = path.stat().st_size
    if size > MAX_DOCUMENT:
        report.problem(1, f"holds one JSON document of {size >> 20} MB, more than is read in one piece; split it.")
        return None
    try:
        return parse_json(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        report.problem(1, f"is not JSON ({error}).")
        return None


def read_lines(file: IO[bytes], report: FileReport) -> Iterator[tuple[int, Any]]:
    """Yield each line's value with its number; a corrupt line is counted and left out."""
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        report.count("lines")
        try:
            yield number, parse_json(line.removeprefix(b"\xef\xbb\xbf"))
        except ValueError as error:
            report.count("corrupt")
            report.problem(number, f"is not JSON ({error}).")


def read_records(path: Path, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file with their line or position: lines, a list, or one document."""
    with path.open("rb") as file:
        if _has_lines(file.read(HEAD)):
            file.seek(0)
            yield from _objects(read_lines(file, report), report)
            return
    document = read_document(path, report)
    values = document if isinstance(document, list) else [] if document is None else [document]
    yield from _objects(enumerate(values, start=1), report)


def _has_lines(head: bytes) -> bool:
    """Tell lines of JSON from a document: a line that is whole, or one longer than the head."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text[:1] == b"{" and (b"\n" not in text.rstrip() or bool(_whole_lines(text)))


def _objects(values: Iterable[tuple[int, Any]], report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, value in values:
        if isinstance(value, dict):
            yield number, value
        else:
            report.count("corrupt")
            report.problem(number, f"holds {type(value).__name__}, where an object is expected.")
