"""Bytes by the hash of their content, on disk: written beside, flushed, checked, then renamed into place.

A blob file exists only whole, under `blobs/ab/abcdef…`; everything unfinished lives in `tmp/`, which is swept at start.
Small contents do not come here: they ride in the store's own transaction (see `store.py`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from composer_hub.local_hub.errors import LocalHubError


class WrongContent(LocalHubError, ValueError):
    """The bytes that came are not the ones that were announced."""


class Blobs:
    """A folder of blobs by content id."""

    def __init__(self, root: Path, *, sweep: bool = True) -> None:
        self.files = root / "blobs"
        self.unfinished = root / "tmp"
        self.files.mkdir(parents=True, exist_ok=True)
        if sweep:
            shutil.rmtree(self.unfinished, ignore_errors=True)
        self.unfinished.mkdir(exist_ok=True)

    def path(self, content_id: str) -> Path:
        """Return the path of the bytes with this id, which may not exist yet."""
        return self.files / content_id[:2] / content_id

    def holds(self, content_id: str) -> bool:
        """Return whether the blob is there, whole."""
        return self.path(content_id).is_file()

    def all(self) -> Iterator[str]:
        """Yield the ids of all blobs."""
        for folder in sorted(os.listdir(self.files)):
            yield from sorted(os.listdir(self.files / folder))

    def remove(self, content_id: str) -> int:
        """Remove a blob and return its size; 0 if it is not there."""
        path = self.path(content_id)
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return size

    def writer(self) -> BlobWriter:
        """Open an unfinished blob; nothing of it is visible before `BlobWriter.keep`."""
        return BlobWriter(self)


class BlobWriter:
    """An unfinished blob that knows its size and sha256 so far; closing without `keep` removes it."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        descriptor, self.name = tempfile.mkstemp(dir=blobs.unfinished)
        self._file = os.fdopen(descriptor, "wb", buffering=0)
        self._sha256 = hashlib.sha256()
        self.size = 0

    def write(self, *parts: bytes | memoryview) -> None:
        """Append; the hash goes along, so that the file is never read again to check it."""
        for part in parts:
            self._sha256.update(part)
        size = sum(map(len, parts))
        rest = memoryview(b"") if (done := os.writev(self._file.fileno(), parts)) == size else b"".join(parts)[done:]
        while rest:
            rest = rest[self._file.write(rest) :]
        self.size += size

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()

    def check(self, sha256: str, size: int) -> None:
        """Refuse bytes that are not the announced ones."""
        if self.sha256 != sha256 or self.size != size:
            raise WrongContent(
                f"Received {self.size} bytes with sha256 {self.sha256}, but {size} bytes with sha256 {sha256} were "
                "announced. Upload the file again; if it is still being written, wait until it is complete."
            )

    def keep(self, content_id: str) -> None:
        """Flush to disk and move into place. Something must name the blob already, or `gc` may remove it."""
        target = self._blobs.path(content_id)
        os.fsync(self._file.fileno())
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.name, target)
        _sync_folder(target.parent)

    def close(self) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _sync_folder(folder: Path) -> None:
    """Flush a rename; without it a power cut may forget the name of a blob whose bytes are safe."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
