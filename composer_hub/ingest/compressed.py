"""Session files that were compressed (`rollout-….jsonl.zst` of Codex, anything in gzip): read as what is in them.

In: a path. Out: the first bytes of its content, and for as long as it is read a plain copy under the name without the
suffix. The copy is in a temporary folder, so what readers look up beside a file is not found.
"""

from __future__ import annotations

import contextlib
import gzip
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from composer_hub.ingest.report import SessionError

MAX_UNPACKED = 1 << 31
"""Bytes that a file may unpack to: it may claim to be anything."""
_BLOCK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SUFFIXES = {".gz", ".gzip", ".zst", ".zstd"}


def is_compressed(head: bytes) -> bool:
    """Tell a compressed file by its first bytes."""
    return head.startswith((_GZIP, _ZSTD))


def plain_name(path: Path) -> str:
    """Return the name a compressed file had before."""
    return path.stem if path.suffix.lower() in _SUFFIXES else path.name


def plain_head(path: Path, size: int) -> bytes:
    """Return the first bytes of what is compressed, or none where even they cannot be unpacked."""
    try:
        with _opened(path) as content:
            return content.read(size)
    except (OSError, EOFError, zlib.error):
        return b""


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give a plain copy of a compressed file until the block ends; raise SessionError where there is none to give."""
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
        else:
            import pyarrow as pa

            with pa.CompressedInputStream(file, "zstd") as content:
                yield content
