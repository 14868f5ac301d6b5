"""From the paths a person names to the files that may hold sessions, largest first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from composer_hub.ingest.report import FileReport

SKIPPED_FOLDERS = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache"}


def find_files(paths: Iterable[str | os.PathLike[str]], report: FileReport) -> list[Path]:
    """Return every file under the paths once, largest first; what cannot be looked at is a problem in the report.

    A resumed session holds a copy of the one it continues: the file that tells most must come before the copies.
    """
    found: dict[tuple[int, int], tuple[int, str]] = {}
    for named in paths:
        path = Path(named).expanduser()
        for file in _walk(path, report) if path.is_dir() else [path]:
            _note(file, found, report)
    return [Path(path) for _, path in sorted(found.values())]


def _note(path: Path, found: dict[tuple[int, int], tuple[int, str]], report: FileReport) -> None:
    try:
        stat = path.stat()
    except OSError as error:
        _unreadable(path, error, report)
        return
    # Device and number, not the name: links and repeated arguments lead to the same file.
    key = (stat.st_dev, stat.st_ino)
    entry = (-stat.st_size, str(path))
    found[key] = min(found.get(key, entry), entry)


def _walk(top: Path, report: FileReport) -> Iterator[Path]:
    """Yield the files of a folder, through links, each folder once."""
    seen: set[tuple[int, int]] = set()

    def unreadable(error: OSError) -> None:
        _unreadable(Path(error.filename or top), error, report)

    for folder, folders, files in os.walk(top, followlinks=True, onerror=unreadable):
        try:
            stat = os.stat(folder)
        except OSError as error:
            _unreadable(Path(folder), error, report)
            continue
        if (stat.st_dev, stat.st_ino) in seen:
            folders.clear()
            continue
        seen.add((stat.st_dev, stat.st_ino))
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file() or not path.exists():  # sockets and pipes would wait for ever
                yield path


def _unreadable(path: Path, error: OSError, report: FileReport) -> None:
    report.add("unreadable")
    report.merge([_one_problem(path, f"cannot be read ({error.strerror or error}).")])


def _one_problem(path: Path, message: str) -> FileReport:
    report = FileReport(str(path))
    report.problem(0, message)
    return report
