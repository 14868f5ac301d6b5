"""Every format that can be read, one `Source` each, and the choice between them by looking at a file's first bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from composer_hub.exits import UsageError
from composer_hub.ingest import claude_code, codex, pi
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.session import Session

HEAD_BYTES = 65536
"""How much of a file `sniff` gets to see."""


@dataclass(frozen=True)
class Source:
    """A harness: how its files are known and read, and what they can and cannot give."""

    name: str
    title: str
    sniff: Callable[[bytes, Path], bool]
    read: Callable[[Path, FileReport], Iterator[Session]]
    gives: str
    lacks: str


# The order is the order of sniffing: formats with a telling first record come before the looser ones.
SOURCES: tuple[Source, ...] = (
    Source("claude_code", "Claude Code", claude_code.sniff, claude_code.read, claude_code.GIVES, claude_code.LACKS),
    Source("codex", "Codex CLI", codex.sniff, codex.read, codex.GIVES, codex.LACKS),
    Source("pi", "Pi", pi.sniff, pi.read, pi.GIVES, pi.LACKS),
)


def sniff(head: bytes, path: Path) -> Source | None:
    """Return the format a file is in, or None."""
    return next((source for source in SOURCES if source.sniff(head, path)), None)


def source_named(name: str) -> Source:
    """Return the format of that name."""
    for source in SOURCES:
        if source.name == name:
            return source
    raise UsageError(f"There is no session format {name!r}. Known formats: {', '.join(s.name for s in SOURCES)}.")
