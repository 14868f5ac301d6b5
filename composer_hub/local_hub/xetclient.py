"""Uploads into this server's own chunk store, with hf_xet to cut the files: here the server is a client of itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from composer_hub.local_hub.calls import Hub
from composer_hub.local_hub.xettokens import access


def upload(hub: Hub, holder: str, user: str, paths: Sequence[Path]) -> list[str]:
    """Upload files in the name of a user and return their Xet hashes, in the same order.

    It blocks, so it runs beside the event loop, which answers the requests of hf_xet meanwhile.
    """
    from hf_xet import SKIP_SHA256, XetSession

    if "xet" not in hub.extra:
        hub.extra["xet"] = XetSession()  # making one starts a pool of threads
    with hub.extra["xet"].new_upload_commit(**access(hub, holder, user)) as commit:
        handles = [commit.start_upload_file(str(path), sha256=SKIP_SHA256) for path in paths]
    return [handle.result().xet_info.hash for handle in handles]
