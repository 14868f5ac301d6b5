"""Files of JSON in every shape harnesses write it: one document, a list of rows, a row a line.

In: a path and the file's report. Out: parsed objects with the line or row they stand on; what is broken is counted in
the report with its place, and the rest goes on. `head_records` looks at the first bytes only, for the sniffers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.lines import json_file, json_lines, parse
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.ingest.values import MAX_DEPTH, as_dict, dicts

MAX_DOCUMENT = 1 << 29
"""A file that has to be parsed in one piece may be this large; longer ones belong in JSONL or Parquet."""
HEAD = 1 << 16

_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|["\[\]{},]', re.DOTALL)
_CLOSER = {b"[": b"]", b"{": b"}"}


def read_document(path: Path, report: FileReport) -> Any:
    """Parse a file in one piece; raise SessionError where it is too large or no JSON."""
    if (size := path.stat().st_size) > MAX_DOCUMENT:
        raise SessionError(f"{path} is one JSON document of {size >> 20} MB, too large to read in one piece. Split it.")
    return json_file(path, report)


def read_records(path: Path, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file with their line or position: lines, a list, or one document."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if _has_lines(head):
        yield from json_lines(path, report)
        return
    document = read_document(path, report)
    for number, value in enumerate(document if isinstance(document, list) else [document], start=1):
        if isinstance(value, dict):
            report.add("records")
            yield number, value
        else:
            report.corrupt(number, f"is a JSON {type(value).__name__}, not an object, and was skipped.")


@functools.lru_cache(maxsize=2)  # every sniffer asks for the same head
def head_records(head: bytes) -> list[dict[str, Any]]:
    """Return the first objects of a JSON document, a list, or lines of JSON, cut off wherever the head ends."""
    text = _text(head)
    if text[:1] == b"[":
        return list(dicts(_cut_json(text)))
    if text[:1] != b"{":
        return []
    return _whole_lines(text) or list(filter(None, [as_dict(_cut_json(text))]))


def files_beside(path: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the files of a folder whose names match, ordered by the number in the pattern's group."""
    return list(_numbered(path.parent, path.parent.stat().st_mtime_ns, pattern))


@functools.lru_cache(maxsize=4)  # each file of the folder asks
def _numbered(folder: Path, changed: int, pattern: re.Pattern[str]) -> tuple[Path, ...]:
    found = ((match, file) for file in folder.iterdir() if (match := pattern.fullmatch(file.name)))
    return tuple(file for _, file in sorted((int(match[1]), file) for match, file in found))


def is_list(head: bytes) -> bool:
    """Tell a JSON list from a document or lines."""
    return _text(head)[:1] == b"["


def _text(head: bytes) -> bytes:
    return head.removeprefix(_BOM).lstrip()


def _has_lines(head: bytes) -> bool:
    """Tell lines of JSON from a document: a line that is whole, or one longer than the head."""
    text = _text(head)
    return text[:1] == b"{" and (b"\n" not in text.rstrip() or bool(_whole_lines(text)))


def _whole_lines(text: bytes) -> list[dict[str, Any]]:
    """Return the objects that stand on lines of their own; a document printed over lines has none."""
    records = []
    for line in text.split(b"\n"):
        try:
            value = parse(line) if line[:1] == b"{" and line.rstrip()[-1:] == b"}" else None
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
            if len(stack) > MAX_DEPTH:  # no session is nested like this, and each cut costs its depth
                return None
        elif token in (b"]", b"}"):
            if not stack or stack.pop() != token:
                break
        elif token != b",":
            continue
        cuts.append((match.start() if token == b"," else match.end(), b"".join(reversed(stack))))
        if not stack:
            break
    for end, closers in reversed(cuts[-8:]):
        try:
            return parse(text[:end] + closers)
        except ValueError:
            continue
    return None
