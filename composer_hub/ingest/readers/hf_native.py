"""Trace rows as the Hub and `datasets` make them: `harness, session_id, messages, tools, metadata, trace, …`.

In: JSON lines, a JSON list or Parquet of such rows. Out: the sessions of each row. If `trace` has the raw events and a
reader knows them, that reader gets them. Otherwise the chat messages are read in file order, without error flags.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from composer_hub.ingest.documents import HEAD, head_records, parquet_columns, read_rows
from composer_hub.ingest.foreign import as_dict, parsed, parsed_dicts, text_at
from composer_hub.ingest.readers import chat_rows
from composer_hub.ingest.report import FileReport
from composer_hub.session import Session

Sniff = Callable[[bytes, Path], "Callable[[Path, FileReport], Iterator[Session]] | None"]

NAME = "hf_native"
CONVERTED = "converted_row"
"""The row was made from a session in file order; branches and compactions are gone."""

_KEYS = {"harness", "session_id"}


def sniff(head: bytes, path: Path) -> bool:
    """Recognize a row by its harness and session beside the messages or the raw trace."""
    columns = parquet_columns(path) if head[:4] == b"PAR1" else set(next(iter(head_records(head)), {}))
    return columns >= _KEYS and bool(columns & {"messages", "trace"})


def read(path: Path, report: FileReport, sniff_raw: Sniff) -> Iterator[Session]:
    """Yield the sessions of each row; `sniff_raw` finds the reader of raw events."""
    for _, row in read_rows(path, report):
        sessions = list(_from_events(as_dict(row), report, sniff_raw))
        if sessions:
            yield from sessions
        elif session := _from_messages(as_dict(row), report):
            yield session


def _from_events(row: Mapping[str, Any], report: FileReport, sniff_raw: Sniff) -> Iterator[Session]:
    """Hand raw events to their reader. Readers take files, so the events are written to a temporary one."""
    raw = _raw_bytes(row.get("trace"))
    if not raw:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (Path(text_at(row, "file_path")).name or "trace.jsonl")
        path.write_bytes(raw)
        if read_raw := sniff_raw(raw[:HEAD], path):
            for session in read_raw(path, report):
                license = text_at(row, "license") or session.trace.license
                yield session.with_trace(dataclasses.replace(session.trace, license=license))


def _raw_bytes(trace: Any) -> bytes:
    """Return raw events as the lines of the file they came from: stored as text, or decoded into objects."""
    if isinstance(trace, str) and trace[:1] in ('"', "["):
        trace = parsed(trace) or trace  # a JSON column holds even text as JSON
    if isinstance(trace, str):
        return trace.encode("utf-8", "replace")
    if isinstance(trace, list):
        return b"\n".join(orjson.dumps(event) for event in trace if isinstance(event, dict))
    return orjson.dumps(trace) if isinstance(trace, dict) else b""


def _from_messages(row: Mapping[str, Any], report: FileReport) -> Session | None:
    metadata = as_dict(parsed(row.get("metadata")))
    if not parsed_dicts(row.get("messages")):
        report.add("no_steps")
        return None
    return chat_rows.session_of(
        {**row, "model": text_at(row, "model") or text_at(metadata, "model")},
        report,
        source=text_at(row, "harness") or NAME,
        inexact=CONVERTED,
        cwd=text_at(metadata, "cwd"),
    )
