"""Sessions on this machine: the folders in which harnesses keep them in, files and sizes out. Nothing is read whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from composer_hub.harnesses import session_folders
from composer_hub.ingest.files import find_files, plain_head, size_of, stat_of
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import HEAD_BYTES, sniff


@dataclass(frozen=True, slots=True)
class FoundSessions:
    """A folder, or a database, in which a harness keeps sessions on this machine."""

    harness: str
    folder: Path
    num_files: int  # that a reader recognizes
    num_bytes: int
    changed: float  # time of the newest change, in seconds since 1970


def sessions_on(environment: Mapping[str, str], home: Path) -> list[FoundSessions]:
    """Return the folders of all harnesses that ingest would read on a machine, without empty ones."""
    found = []
    for folder, harness in session_folders(environment, home).items():
        if folder.exists():
            files = [path for path in find_files([folder], FileReport()) if _is_session(path)]
            changed = max((stat[1] / 1e9 for path in files if (stat := stat_of(path))), default=0.0)
            found.append(FoundSessions(harness.title, folder, len(files), sum(map(size_of, files)), changed))
    return [one for one in found if one.num_files]


def _is_session(path: Path) -> bool:
    try:
        head = plain_head(path, HEAD_BYTES)
    except OSError:
        return False
    return sniff(head, path) is not None
