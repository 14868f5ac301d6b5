"""Files in and out of this server's own chunk store, with hf_xet as the codec: here the server is a client of itself.

In: a hub, hashes and paths. Out: hashes of uploaded files, downloaded files, streams of a range. All of it blocks, so
it runs beside the event loop that answers hf_xet's requests meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from composer_hub.local_hub.calls import Hub
from composer_hub.local_hub.xet import access

WINDOW = 8 << 20


def upload(hub: Hub, scope: str, paths: Sequence[Path]) -> list[str]:
    """Upload files in the name of a scope and return their Xet hashes, in the same order."""
    from hf_xet import SKIP_SHA256

    with _session(hub).new_upload_commit(**access(hub, scope, write=True)) as commit:
        handles = [commit.start_upload_file(str(path), sha256=SKIP_SHA256) for path in paths]
    return [handle.result().xet_info.hash for handle in handles]


def download(hub: Hub, scope: str, wanted: Sequence[tuple[str, int, Path]]) -> None:
    """Write files (hash, size, target) of a scope to disk."""
    from hf_xet import XetFileInfo

    with _session(hub).new_file_download_group(**access(hub, scope)) as group:
        for xet_hash, size, target in wanted:
            group.start_download_file(XetFileInfo(xet_hash, size), str(target))


def stream(hub: Hub, scope: str, xet_hash: str, size: int, start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a range, decoded a window at a time: hf_xet fetches ahead as far as it is allowed to."""
    from hf_xet import XetFileInfo

    group = _session(hub).new_download_stream_group(**access(hub, scope))
    for at in range(start, stop, WINDOW):
        yield from group.download_stream(XetFileInfo(xet_hash, size), start=at, end=min(at + WINDOW, stop))


def _session(hub: Hub) -> Any:
    """Return this server's one session: making one starts a pool of threads."""
    from hf_xet import XetSession

    if "xet" not in hub.extra:
        hub.extra["xet"] = XetSession()
    return hub.extra["xet"]
