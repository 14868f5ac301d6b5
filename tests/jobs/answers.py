"""A loopback server with scripted answers, for those that a well-behaved Hub never gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from huggingface_hub import HfApi

from composer_hub.hub import HubDestination, Patience

Answer = tuple[int, Any]
"""A status and a JSON value."""


@contextmanager
def answering(script: Mapping[str, Sequence[Answer]]) -> Iterator[tuple[HubDestination, list[str]]]:
    """Serve the answers to each `METHOD path` in order, repeating the last; yield the Hub and its requests."""
    left = {key: list(answers) for key, answers in script.items()}
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            key = f"{self.command} {self.path.partition('?')[0]}"
            seen.append(key)
            answers = left.get(key, [(404, {"error": f"no answer for {key}"})])
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if status >= 400:
                self.send_header("X-Error-Message", body["error"])
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer

        def log_message(self, *args: Any) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    api = HfApi(endpoint=f"http://127.0.0.1:{server.server_port}", token="hf_test_me")
    try:
        yield HubDestination("hub", api, Patience(sleep=lambda seconds: None)), seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def job_answer(stage: str = "RUNNING", message: str = "", **more: Any) -> dict[str, Any]:
    """Return a job as the Hub describes one."""
    owner = {"id": "0", "name": "me", "type": "user"}
    return {"id": "j1", "status": {"stage": stage, "message": message}, "owner": owner, **more}
