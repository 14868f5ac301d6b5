"""claude_code sessions as `Session`s."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from composer_hub.ingest.report import FileReport
from composer_hub.ingest.session import Session

GIVES = ""
LACKS = ""


def sniff(head: bytes, path: Path) -> bool:
    return False


def read(path: Path, report: FileReport) -> Iterator[Session]:
    yield from ()
