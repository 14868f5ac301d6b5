"""Files on disk: the paths that a user names -> files, largest first; packed files -> plain copies; digests.

A compressed session (`rollout-….jsonl.zst` of Codex, anything in gzip) is read from a temporary copy under its name
without the suffix, and text in UTF-16 from a copy in UTF-8. A reader that looks for files beside it finds none.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.named_files import encoding_of, problem_of

MAX_UNPACKED = 1 << 31
"""Largest size of an unpacked file."""
_BLOCK, _STEP = 1 << 20, 1 << 9
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SUFFIXES = {".gz", ".gzip", ".zst", ".zstd"}
SKIPPED_FOLDERS = {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache"}


def find_files(paths: Iterable[str | os.PathLike[str]], report: FileReport) -> list[Path]:
    """Return every file under the paths once, largest first; the report counts paths that cannot be read.

    A resumed session repeats the one that it continues, so the file with the most must come before its copies.
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
    if problem := problem_of(path):
        _unreadable(path, problem, report)
        return
    # Identified by device and number, since links and repeated arguments lead to the same file.
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
            if path.is_file() or not path.exists():  # reading a socket or pipe would block
                yield path


def _unreadable(path: Path, reason: OSError | str, report: FileReport) -> None:
    report.add("unreadable")
    one = FileReport(str(path))
    one.problem(0, f"cannot be read ({reason.strerror or reason})." if isinstance(reason, OSError) else reason)
    report.merge([one])


def is_packed(head: bytes) -> bool:
    """Recognize a file that is read from a plain copy, by its first bytes: compressed, or text in UTF-16."""
    return head.startswith((_GZIP, _ZSTD)) or encoding_of(head).startswith("utf-16")


def archive_kind(head: bytes) -> str:
    """Return the kind of archive that these first bytes begin, or ""; its text members must not be read as lines."""
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    return "tar" if head[257:262] == b"ustar" else ""


def plain_name(path: Path) -> str:
    """Return the name without the suffix of a compressed file."""
    return path.stem if path.suffix.lower() in _SUFFIXES else path.name


def plain_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a file or, if it is packed, of what can be unpacked of it."""
    with path.open("rb") as file:
        head = file.read(size)
    if not is_packed(head):
        return head
    head = b""
    with contextlib.suppress(OSError, EOFError, zlib.error), _opened(path) as content:
        while len(head) < size and (block := content.read(_STEP)):  # a cut file gives nothing of its last step
            head += block
    return head[:size]


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack a file into a temporary copy until the block ends; raise SessionError if it is broken."""
    with tempfile.TemporaryDirectory(prefix="composer-unpacked-") as folder:
        plain = Path(folder, plain_name(path))
        _unpack(path, plain)
        yield plain


def _unpack(path: Path, plain: Path) -> None:
    size = 0
    with plain.open("wb") as file:
        try:
            with _opened(path) as content:
                while block := content.read(_BLOCK):
                    size += len(block)
                    if size > MAX_UNPACKED:
                        raise SessionError(
                            f"{path} unpacks to more than {MAX_UNPACKED >> 20} MB. Unpack it and split it."
                        )
                    file.write(block)
        except (OSError, EOFError, zlib.error) as error:
            raise SessionError(
                f"{path} cannot be unpacked ({error}). If it is still being written, wait for it to end."
            ) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        magic = file.read(len(_ZSTD))
        file.seek(0)
        if magic.startswith(_GZIP):
            with gzip.GzipFile(fileobj=file) as content:
                yield content
        elif (encoding := encoding_of(magic)).startswith("utf-16"):
            yield codecs.EncodedFile(file, "utf-8", encoding, errors="replace")
        else:
            import pyarrow as pa

            with pa.CompressedInputStream(file, "zstd") as content:
                yield content


def wal_of(path: Path) -> Path:
    """Return the file with the newest rows of a SQLite database, which a harness may have open."""
    return path.with_name(f"{path.name}-wal")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, and of the newest rows beside it if it is a database."""
    digest = hashlib.sha256()
    for part in (path, wal_of(path)):
        if part is not path and not part.is_file():
            continue
        with part.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def stat_of(path: Path) -> tuple[int, ...]:
    """Return the size and the time of the last change, also of a database's newest rows; nothing if it is gone."""
    stats = []
    for part in (path, wal_of(path)):
        try:
            stat = part.stat()
        except OSError:
            if part is path:
                return ()
            continue
        stats += [stat.st_size, stat.st_mtime_ns]
    return tuple(stats)


def size_of(path: Path) -> int:
    """Return the size of a file, or 0 if it cannot be read."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
