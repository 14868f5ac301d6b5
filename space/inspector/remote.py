"""Files of a Hub revision as DuckDB reads them: only the byte ranges a query needs are downloaded.

In: `hub:///<key>/<path>`, with the key of a source that was added before. Out: the bytes, by HTTP range requests.
"""

from __future__ import annotations

import io
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from fsspec import AbstractFileSystem
from huggingface_hub import get_hf_file_metadata, hf_hub_url
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

PROTOCOL = "hub"
_SIGNED_S = 300.0  # A signed address of a file lives longer than this.
_TIMEOUT_S = 30.0
_BLOCK = 16_384
_KEPT_BLOCKS = 2_000  # 32 MB of a dataset
_NEVER = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass
class RangeSource:
    """A dataset revision on a Hub; `token` is that of a reader who was let in last."""

    endpoint: str
    repo: str
    revision: str
    token: str | None
    num_bytes: int = 0  # downloaded through ranges
    num_requests: int = 0
    places: dict[str, tuple[str, int, float]] = field(default_factory=dict)  # path -> address, size, when asked
    kept: OrderedDict[tuple[str, int], bytes] = field(default_factory=OrderedDict)  # blocks by last use
    lock: threading.Lock = field(default_factory=threading.Lock)

    def place(self, path: str) -> tuple[str, int]:
        """Return the address and the size of a file, asked for again after some minutes."""
        address, size, asked = self.places.get(path, ("", 0, -_SIGNED_S))
        if time.monotonic() - asked >= _SIGNED_S:
            url = hf_hub_url(self.repo, path, repo_type="dataset", revision=self.revision, endpoint=self.endpoint)
            found = get_hf_file_metadata(url, token=self.token or False, endpoint=self.endpoint)
            address, size = found.location, found.size or 0
            self.places[path] = (address, size, time.monotonic())
        return address, size

    def read(self, path: str, start: int, stop: int) -> bytes:
        """Return the bytes of a half-open range; of blocks that were read before nothing is downloaded again."""
        first, last = start // _BLOCK, -(-stop // _BLOCK)
        with self.lock:
            blocks = {at: self.kept[path, at] for at in range(first, last) if (path, at) in self.kept}
            for at in blocks:
                self.kept.move_to_end((path, at))
        missing = [at for at in range(first, last) if at not in blocks]
        for begin, end in _runs(missing):
            content = self._download(path, begin * _BLOCK, min(end * _BLOCK, self.place(path)[1]))
            blocks |= {at: content[(at - begin) * _BLOCK : (at - begin + 1) * _BLOCK] for at in range(begin, end)}
        with self.lock:
            self.kept |= {(path, at): blocks[at] for at in missing}
            while len(self.kept) > _KEPT_BLOCKS:
                self.kept.popitem(last=False)
        return b"".join(blocks[at] for at in range(first, last))[start - first * _BLOCK : stop - first * _BLOCK]

    def _download(self, path: str, start: int, stop: int) -> bytes:
        address, _ = self.place(path)
        # A CDN has its own signature in the address; the token is for the Hub alone.
        own = urlsplit(address).netloc == urlsplit(self.endpoint).netloc
        headers = build_hf_headers(token=(self.token or False) if own else False)
        headers |= {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        response = get_session().get(address, headers=headers, follow_redirects=True, timeout=_TIMEOUT_S)
        hf_raise_for_status(response)
        with self.lock:
            self.num_bytes += len(response.content)
            self.num_requests += 1
        # A server without ranges sends the whole file.
        return response.content[start:stop] if response.status_code == 200 else response.content


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Return neighbors as half-open ranges."""
    runs: list[tuple[int, int]] = []
    for at in places:
        runs = [*runs[:-1], (runs[-1][0], at + 1)] if runs and runs[-1][1] == at else [*runs, (at, at + 1)]
    return runs


class HubFiles(AbstractFileSystem):
    """The file system that DuckDB asks; it knows the sources by key."""

    protocol = PROTOCOL
    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[str, RangeSource] = {}
        self._lock = threading.Lock()

    def add(self, key: str, source: RangeSource) -> None:
        with self._lock:
            self.sources[key] = source

    def remove(self, key: str) -> None:
        with self._lock:
            self.sources.pop(key, None)

    def _find(self, path: str) -> tuple[RangeSource, str]:
        key, _, inner = self._strip_protocol(path).lstrip("/").partition("/")
        if key not in self.sources:
            raise FileNotFoundError(path)
        return self.sources[key], inner

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        source, inner = self._find(path)
        return {"name": path, "size": source.place(inner)[1], "type": "file"}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        return [self.info(path)] if detail else [path]

    def glob(self, path: str, **kwargs: Any) -> list[str]:
        return [path]  # Every path comes from a manifest, so none has wildcards.

    def modified(self, path: str) -> datetime:
        return _NEVER  # A revision never changes.

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> RangeFile:  # type: ignore[override]
        return RangeFile(*self._find(path))


class RangeFile(io.RawIOBase):
    """A file of a source; each read is one request.

    DuckDB's threads share a file, and each one seeks before it reads, so each thread has its own position.
    """

    def __init__(self, source: RangeSource, path: str) -> None:
        self.source, self.path = source, path
        self._position = threading.local()
        _, self.size = source.place(path)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return getattr(self._position, "at", 0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self.size}[whence]
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        start = self.tell()
        stop = self.size if size is None or size < 0 else min(start + size, self.size)
        if stop <= start:
            return b""
        content = self.source.read(self.path, start, stop)
        self._position.at = start + len(content)
        return content
