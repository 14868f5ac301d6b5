"""Session files as JSON objects: a document, a list, lines of JSON, or a Parquet table.

In: a path and the file's report. Out: parsed objects with their line or row. Broken lines are counted in the report
with their place and skipped. `head_records` parses only the first bytes, for recognizing a format.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import orjson

from composer_hub.ingest.foreign import MAX_DEPTH, as_dict, dicts, parse_json, repaired
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.named_files import problem_of
from composer_hub.records import clean

MAX_DOCUMENT = 1 << 29
"""Largest file that is parsed in one piece; longer ones belong in JSONL or Parquet."""
HEAD = 1 << 16
_BATCH = 16
"""Rows of Parquet decoded at once; one row may have megabytes of messages."""

_BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|["\[\]{},]', re.DOTALL)
_CLOSER = {b"[": b"]", b"{": b"}"}


def json_lines(path: Path, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of a JSONL file; lines that are not an object are counted and skipped."""
    number = size = records = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                size += len(line)
                try:
                    values = [orjson.loads(line)]
                except orjson.JSONDecodeError:
                    values = _rescued(line, number, report)
                for value in values:
                    if isinstance(value, dict):
                        records += 1
                        yield number, value
                    else:
                        kind = type(value).__name__
                        report.corrupt(number, f"is a JSON {kind}, not an object, and was skipped.")
    finally:
        report.counts.update(lines=number, bytes=size, records=records)


def _rescued(line: bytes, number: int, report: FileReport) -> list[Any]:
    """Return the values of a line that orjson refuses, such as several objects written by two processes."""
    if not line.strip():
        return []
    try:
        return [repaired(line, report)]
    except ValueError as error:
        values = _joined(line)
        if values:
            report.add("repaired")
        else:
            report.corrupt(number, f"is not JSON ({error}) and was skipped.")
        return values


def _joined(line: bytes) -> list[Any]:
    """Return the objects of a line of objects and the zeros that a crash leaves; no objects for other lines."""
    text = line.decode("utf-8", "replace").strip("\0 \t\r\n\ufeff")
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        if text[at] != "{":
            return []
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return []
        found.append(clean(value))
        while text[at : at + 1] in ("\0", " ", "\t", "\r"):
            at += 1
    return found


def read_document(path: Path, report: FileReport) -> Any:
    """Parse a file in one piece; raise SessionError if it is too large or not JSON."""
    if problem := problem_of(path):  # files beside a session are opened without a look at the folder
        raise SessionError(f"{path} {problem}")
    if (size := path.stat().st_size) > MAX_DOCUMENT:
        raise SessionError(f"{path} is one JSON document of {size >> 20} MB, too large to read in one piece. Split it.")
    data = path.read_bytes()
    report.counts["bytes"] += len(data)
    try:
        return parse_json(data, report)
    except ValueError as error:
        raise SessionError(
            f"{path} is not JSON ({error}). If it is still being written, wait for it to end."
        ) from error


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


def read_rows(path: Path, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a Parquet or JSON file with their line or position."""
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            yield from _parquet_rows(file, str(path), report)
            return
    yield from read_records(path, report)


def parquet_columns(path: Path) -> set[str]:
    """Return the columns of a Parquet file, or none if it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.read_schema(path).names)
    except (pa.ArrowException, OSError):
        return set()


@functools.lru_cache(maxsize=2)  # every sniffer gets the same head
def head_records(head: bytes) -> list[dict[str, Any]]:
    """Return the first objects of a document, a list, or lines of JSON, even if the last one is cut off."""
    text = _text(head)
    if text[:1] == b"[":
        return list(dicts(_cut_json(text)))
    if text[:1] != b"{":
        return []
    return head_lines(head) or list(filter(None, [as_dict(_cut_json(text))]))


def files_beside(path: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Return the files of a folder whose names match, ordered by the number in the pattern's group."""
    return list(_numbered(path.parent, path.parent.stat().st_mtime_ns, pattern))


@functools.lru_cache(maxsize=4)  # called for each file of the folder
def _numbered(folder: Path, changed: int, pattern: re.Pattern[str]) -> tuple[Path, ...]:
    found = ((match, file) for file in folder.iterdir() if (match := pattern.fullmatch(file.name)))
    return tuple(file for _, file in sorted((int(match[1]), file) for match, file in found if file.is_file()))


@functools.lru_cache(maxsize=2)
def head_lines(head: bytes) -> list[dict[str, Any]]:
    """Return the objects on whole lines of a file's head."""
    return _whole_lines(_text(head))


def is_list(head: bytes) -> bool:
    """Recognize a JSON list."""
    return _text(head)[:1] == b"["


def _text(head: bytes) -> bytes:
    return head.removeprefix(_BOM).lstrip()


def _has_lines(head: bytes) -> bool:
    """Recognize lines of JSON by a whole line, or one longer than the head."""
    text = _text(head)
    return text[:1] == b"{" and (b"\n" not in text.rstrip() or bool(_whole_lines(text)))


def _whole_lines(text: bytes) -> list[dict[str, Any]]:
    """Return the objects that fill a line; a document printed over several lines has none."""
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
    """Parse a truncated JSON text up to its last whole value."""
    stack: list[bytes] = []
    cuts: list[tuple[int, bytes]] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == b'"':  # a string that is cut off
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
            return parse_json(text[:end] + closers)
        except ValueError:
            continue
    return None


def _parquet_rows(file: IO[bytes], name: str, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=_BATCH):
            for row in batch.to_pylist():
                number += 1
                report.add("records")
                yield number, without_nulls(row)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SessionError(f"{name} is not Parquet or is damaged ({error}); {number} rows were read.") from error


def without_nulls(value: Any) -> Any:
    """Leave out what a row gives as null, as it does for columns and fields that only other rows have."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
