"""Traces to replay, as collections that can be read more than once: planning reads them before asking does."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from composer_hub import exits
from composer_hub.hub import Version
from composer_hub.named_files import problem_of
from composer_hub.records import Trace, from_row


@dataclass(frozen=True)
class TraceFile:
    """The traces of a JSONL file of rows."""

    path: Path

    @property
    def arguments(self) -> str:
        """Return no arguments, since other commands read published traces only."""
        return ""

    def __iter__(self) -> Iterator[Trace]:
        if problem := problem_of(self.path):  # it is read more than once
            raise exits.UsageError(f"{self.path} {problem}")
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _trace(self.path, number, line)


@dataclass(frozen=True)
class PublishedTraces:
    """The traces of a published version, streamed at its commit."""

    version: Version
    origin: str = "local"  # the destination as commands name it

    @property
    def arguments(self) -> str:
        """Return the arguments by which a publishing command finds these traces."""
        to = "" if self.origin == "local" else f" --to {shlex.quote(self.origin)}"
        return f"{self.version.repo}@{self.version.tag or self.version.revision}{to}"

    def __iter__(self) -> Iterator[Trace]:
        return self.version.records(Trace, "traces")


TraceSource = TraceFile | PublishedTraces


def _trace(path: Path, number: int, line: bytes) -> Trace:
    try:
        return from_row(Trace, orjson.loads(line))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise exits.UsageError(
            f"{path}:{number} is not a trace row ({error}). Name a published version instead (REPO@REV); "
            "`composer-hub ingest` makes it."
        ) from None
