"""Files in and out of this server's own CAS, with hf_xet as the codec: the server is a client of itself here.

In: an address and a function that makes a token. Out: hashes of uploaded files, downloaded files, streams of a range.
All of it blocks, so it runs beside the event loop that answers hf_xet's requests meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MakeToken = Callable[[bool], tuple[str, int]]
"""(write) -> token of the CAS and the unix time at which it ends."""
SizeOf = Callable[[sqlite3.Connection, str], "int | None"]


@dataclass(frozen=True)
class Cas:
    """The content-addressed store behind buckets: where it answers, and the size of a file it holds."""

    url: str
    make_token: MakeToken
    size_of: SizeOf

    def upload(self, paths: Sequence[Path]) -> list[str]:
        """Upload files and return their Xet hashes, in the same order."""
        from hf_xet import SKIP_SHA256

        with _session().new_upload_commit(**self._access(write=True)) as commit:
            handles = [commit.start_upload_file(str(path), sha256=SKIP_SHA256) for path in paths]
        return [handle.result().xet_info.hash for handle in handles]

    def download(self, wanted: Sequence[tuple[str, int, Path]]) -> None:
        """Write files (hash, size, target) to disk."""
        from hf_xet import XetFileInfo

        with _session().new_file_download_group(**self._access(write=False)) as group:
            for xet_hash, size, target in wanted:
                group.start_download_file(XetFileInfo(xet_hash, size), str(target))

    def stream(self, xet_hash: str, size: int, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes of a range; leaving early ends the download."""
        from hf_xet import XetFileInfo

        group = _session().new_download_stream_group(**self._access(write=False))
        stream = group.download_stream(XetFileInfo(xet_hash, size), start=start, end=stop)
        try:
            yield from stream
        finally:
            stream.cancel()

    def _access(self, *, write: bool) -> dict[str, Any]:
        token, until = self.make_token(write)
        return {"endpoint": self.url, "token": token, "token_expiry_unix_secs": until}


def _session() -> Any:
    from huggingface_hub.utils._xet import get_xet_session

    return get_xet_session()
