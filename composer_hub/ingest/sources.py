"""The readers of all harnesses, and the choice between them by a file's first bytes."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from composer_hub.harnesses import HARNESSES, Harness, harness_named
from composer_hub.ingest.report import FileReport
from composer_hub.session import Session

HEAD_BYTES = 65536
"""Bytes of a file that `sniff` sees."""

Read = Callable[[Path, FileReport], Iterator[Session]]


@dataclass(frozen=True)
class SessionSource:
    """A harness with the functions of its reader."""

    name: str
    sniff: Callable[[bytes, Path], bool]
    read: Read
    is_stream: Callable[[bytes], bool]  # whether a head begins a printed stream, which holds less


def _source(harness: Harness) -> SessionSource:
    reader = importlib.import_module(f"composer_hub.ingest.readers.{harness.reader}")
    # Rows of the Hub may hold the raw events of any harness, but not such rows again.
    read = functools.partial(reader.read, sniff_raw=_raw_reader) if harness.name == "hf_native" else reader.read
    return SessionSource(harness.name, reader.sniff, read, getattr(reader, "is_stream", lambda head: False))


def sniff(head: bytes, path: Path) -> SessionSource | None:
    """Return the source of a file, or None."""
    return next((source for source in SOURCES if source.sniff(head, path)), None)


def source_named(name: str) -> SessionSource:
    """Return the source of that name; raise UsageError for others."""
    harness = harness_named(name)
    return next(source for source in SOURCES if source.name == harness.name)


def _raw_reader(head: bytes, path: Path) -> Read | None:
    source = sniff(head, path)
    return source.read if source and source.name not in ("hf_native", "chat_rows") else None


SOURCES: tuple[SessionSource, ...] = tuple(map(_source, HARNESSES))
