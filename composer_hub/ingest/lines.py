"""JSON out of files that may be broken: one record at a time, every failure counted with its line, none raised.

Every text is valid Unicode then: bytes that are not UTF-8 and lone surrogates become U+FFFD (counted as repaired).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from composer_hub.ingest.report import FileReport, SessionError

TOO_DEEP = "[nested too deeply]"


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
    """Return what a line holds that orjson refuses; count it where that is nothing. Two writers may share a line."""
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
    """Return the objects of a line that holds nothing but objects, and the zeros a crash leaves; else none."""
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


def json_file(path: Path, report: FileReport) -> Any:
    """Return the one JSON value of a file; raise SessionError where there is none."""
    data = path.read_bytes()
    report.counts["bytes"] += len(data)
    try:
        return parse(data, report)
    except ValueError as error:
        raise SessionError(
            f"{path} is not JSON ({error}). If it is still being written, wait for it to end."
        ) from error


def parse(data: bytes, report: FileReport | None = None) -> Any:
    """Return the JSON value of some bytes, repaired where only its text is broken; raise ValueError otherwise."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return repaired(data, report)


def repaired(data: bytes, report: FileReport | None = None) -> Any:
    """Read JSON that orjson refuses: bad UTF-8, lone surrogates, NaN, a byte order mark; else raise ValueError."""
    try:
        value = clean(json.loads(data.decode("utf-8-sig", "replace")))
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if report is not None:
        report.add("repaired")
    return value


def clean(value: Any) -> Any:
    """Replace lone surrogates by U+FFFD in every text of a value."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None  # NaN and infinity have no JSON form
    return value


def head_records(head: bytes, most: int = 20) -> list[dict[str, Any]]:
    """Return the objects among the first whole lines of a file's head, for sniffing."""
    found = []
    for line in head.split(b"\n")[:most]:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found


def text_of(value: Any) -> str:
    """Return a value that should be text as text."""
    return value if isinstance(value, str) else ""


def dict_of(value: Any) -> dict[str, Any]:
    """Return a value that should be an object as one."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """Return a value that should be a list as one."""
    return value if isinstance(value, list) else []


def shallow(value: Any, depth: int = 60) -> Any:
    """Return the value, or its JSON text where it is nested deeper than any tool's arguments are."""
    if _within(value, depth):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return TOO_DEEP


def _within(value: Any, depth: int) -> bool:
    if not isinstance(value, (dict, list)):
        return True
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)) and not (depth > 1 and _within(item, depth - 1)):
            return False
    return True
