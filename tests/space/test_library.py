"""Who may read a dataset is what the Hub says, and a Hub that fails says nothing."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub.errors import HfHubHTTPError

pytest.importorskip("gradio", reason="needs the extra space")
pytest.importorskip("duckdb", reason="needs the extra space")

from inspector.library import NotShown, SpaceLibrary


def test_a_hub_that_fails_once_does_not_hide_a_dataset_that_one_may_read() -> None:
    statuses = [503, 200, 404]

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(statuses.pop(0))
            self.send_header("content-length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    library = SpaceLibrary([], endpoint=f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(HfHubHTTPError):
        library.check_access("me/pairs", "hf_test")
    library.check_access("me/pairs", "hf_test")
    with pytest.raises(NotShown):
        library.check_access("me/other", "hf_test")
    server.shutdown()
