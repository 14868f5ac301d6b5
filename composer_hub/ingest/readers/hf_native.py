"""Trace rows as the Hub and `datasets` make them: `harness, session_id, messages, tools, metadata, trace, …`.

In: JSON lines, a JSON list or Parquet of such rows. Out: the sessions of each row. Where `trace` holds
the raw events and a reader knows them, that reader gets them, with everything it can tell; else the row's chat
messages are read as they stand: linear, in file order, without error flags.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from composer_hub.ingest.documents import HEAD, head_records
from composer_hub.ingest.readers import chat_rows
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.tables import parquet_columns, read_rows
from composer_hub.ingest.values import as_dict, as_text, parsed, parsed_dicts
from composer_hub.session import Session

if TYPE_CHECKING:
    from composer_hub.ingest.sources import Source

NAME = "hf_native"
GIVES = (
    "All that the harness's own reader gives, where the row holds the raw events; else chat messages and tool schemas."
)
LACKS = "Without raw events: error flags, branches, compactions and exact prompts."
CONVERTED = "converted_row"
"""The row was made from a session in file order; branches and compactions are gone."""

_KEYS = {"harness", "session_id"}


def sniff(head: bytes, path: Path) -> bool:
    """Tell a row by its harness and session beside the messages or the raw trace."""
    columns = parquet_columns(path) if head[:4] == b"PAR1" else set(next(iter(head_records(head)), {}))
    return columns >= _KEYS and bool(columns & {"messages", "trace"})


def read(path: Path, report: FileReport) -> Iterator[Session]:
    """Yield the sessions of each row."""
    yield from sessions_of(read_rows(path, report), report)


def sessions_of(rows: Iterator[tuple[int, Any]], report: FileReport, **facts: Any) -> Iterator[Session]:
    """Yield the sessions of rows: by the raw events' own reader, or by their messages."""
    for _, row in rows:
        found = list(_from_events(as_dict(row), report, facts))
        if found:
            yield from found
        elif session := _from_messages(as_dict(row), report, **facts):
            yield session


def _from_events(row: Mapping[str, Any], report: FileReport, facts: Mapping[str, Any]) -> Iterator[Session]:
    """Hand raw events to the reader that knows them. Readers take files, so the events become one for a moment."""
    raw = _raw_bytes(row.get("trace"))
    if not raw:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (Path(as_text(row.get("file_path"))).name or "trace.jsonl")
        path.write_bytes(raw)
        if source := _reader_of(raw, path):
            for session in source.read(path, report):
                yield _with_origin(session, row, facts)


def _reader_of(raw: bytes, path: Path) -> Source | None:
    from composer_hub.ingest.sources import sniff as sniff_any

    source = sniff_any(raw[:HEAD], path)
    return source if source and source.name not in (NAME, chat_rows.NAME) else None


def _raw_bytes(trace: Any) -> bytes:
    """Return raw events as the lines of the file they came from: stored as text, or decoded into objects."""
    if isinstance(trace, str) and trace[:1] in ('"', "["):
        trace = parsed(trace) or trace  # a JSON column holds even text as JSON
    if isinstance(trace, str):
        return trace.encode("utf-8", "replace")
    if isinstance(trace, list):
        return b"\n".join(orjson.dumps(event) for event in trace if isinstance(event, dict))
    return orjson.dumps(trace) if isinstance(trace, dict) else b""


def _with_origin(session: Session, row: Mapping[str, Any], facts: Mapping[str, Any]) -> Session:
    """Add where the row came from; the licence of the row, or of the dataset, counts."""
    trace = session.trace
    return session.with_trace(
        dataclasses.replace(
            trace,
            license=as_text(row.get("license")) or trace.license or facts.get("license", ""),
            provenance={**trace.provenance, **facts.get("provenance", {})},
        )
    )


def _from_messages(row: Mapping[str, Any], report: FileReport, **facts: Any) -> Session | None:
    metadata = as_dict(parsed(row.get("metadata")))
    if not parsed_dicts(row.get("messages")):
        report.add("no_steps")
        return None
    told = {"model": as_text(metadata.get("model")), "cwd": as_text(metadata.get("cwd"))}
    return chat_rows.session_of(
        {**row, "model": as_text(row.get("model")) or told["model"]},
        report,
        source=as_text(row.get("harness")) or NAME,
        inexact=CONVERTED,
        cwd=told["cwd"],
        **facts,
    )
