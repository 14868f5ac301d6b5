"""Checks on every request (path, size, rate, origin) and headers on every answer that forbid foreign scripts.

The policy allows scripts and styles from this server's own files alone. Text of a trace that slipped through the
escaping could therefore still not run.
"""

from __future__ import annotations

import json
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse, Response

MAX_TARGET = 8_192
MAX_BODY = 4_000_000
RATE, BURST = 30.0, 120.0  # requests per second and at once, of one client
_MAX_CLIENTS = 10_000
_PATHS = re.compile(
    r"/|/(part|text|filters|verdicts|healthz|config|theme\.css|agents\.md|robots\.txt|logout)|/static/[\w.-]+"
    r"|/login/(huggingface|callback)|/gradio_api/(info|startup-events|call/.*|queue/.*|heartbeat/.*|mcp/?.*|app_id|cancel)/?"
)
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'self' https://huggingface.co https://*.huggingface.co https://*.hf.space"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class RequestGuard:
    """ASGI middleware around the whole server."""

    def __init__(self, app: Any, hosts: Collection[str] = (), *, proxied: bool = False) -> None:
        self.app, self.hosts, self.proxied = app, set(hosts), proxied
        self.buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send))
            return
        receive = _limited(receive)
        # MCP checks the arguments of a tool against its schema; Gradio's own routes check nothing.
        if scope["method"] == "POST" and re.match(r"/gradio_api/(?!mcp)", scope["path"]):
            content = await _content(receive)
            if not _plain(content):
                refusal = _refuse(400, "Arguments are texts, numbers and truth values: no objects.")
                await refusal(scope, receive, _with_headers(send))
                return
            receive = _again(content, receive)
        await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope, headers: dict[str, str]) -> Response | None:
        host = headers.get("host", "")
        # A page of another name that resolves to this machine would otherwise read private data with the local token.
        if self.hosts and _hostname(host) not in self.hosts:
            return _refuse(403, "This server answers only to its own name.")
        if len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > MAX_TARGET:
            return _refuse(414, "The address is too long.")
        if not _PATHS.fullmatch(scope["path"]):
            return _refuse(404, "There is no such page.")
        if int(headers.get("content-length") or 0) > MAX_BODY:
            return _refuse(413, "The request is too large.")
        if scope["method"] == "POST" and not same_origin(headers) and scope["path"] == "/verdicts":
            return _refuse(403, "Verdicts are accepted from this page alone.")
        if not scope["path"].startswith("/static/") and not self._has_budget(self._client(scope, headers)):
            return _refuse(429, "Too many requests. Wait a few seconds.", {"Retry-After": "3"})
        return None

    def _client(self, scope: Scope, headers: dict[str, str]) -> str:
        peer = (scope.get("client") or ("", 0))[0]
        # The last entry was added by the proxy in front; earlier ones are the client's own words.
        return headers.get("x-forwarded-for", peer).rsplit(",", 1)[-1].strip() if self.proxied else peer

    def _has_budget(self, client: str) -> bool:
        now = time.monotonic()
        left, last = self.buckets.pop(client, (BURST, now))
        left = min(BURST, left + (now - last) * RATE)
        self.buckets[client] = (max(left - 1, 0), now)
        while len(self.buckets) > _MAX_CLIENTS:
            self.buckets.popitem(last=False)
        return left >= 1


def same_origin(headers: dict[str, str]) -> bool:
    """Return whether a browser sent the request from a page of this server."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    return urlsplit(headers.get("origin", "")).netloc == headers.get("host", "-")


def _hostname(host: str) -> str:
    return urlsplit(f"//{host}").hostname or ""


def _refuse(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def _limited(receive: Receive) -> Receive:
    """Stop a body that is longer than its header declares, or that has no length."""
    received = 0

    async def limited() -> MutableMapping[str, Any]:
        nonlocal received
        message = await receive()
        received += len(message.get("body") or b"")
        if received > MAX_BODY:
            return {"type": "http.disconnect"}
        return message

    return limited


async def _content(receive: Receive) -> bytes:
    """Read a whole body."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body") or b"")
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(content: bytes, receive: Receive) -> Receive:
    """Give the next reader a body that was read here."""
    first = [{"type": "http.request", "body": content, "more_body": False}]

    async def again() -> MutableMapping[str, Any]:
        return first.pop() if first else await receive()

    return again


def _plain(content: bytes) -> bool:
    """Return whether a body is an object without nested ones, which Gradio takes for files at any depth."""
    objects: list[dict[str, Any]] = []
    try:
        # The hook puts None in the place of each object, so the body itself must be None.
        return json.loads(content, object_hook=objects.append) is None and len(objects) == 1
    except (ValueError, RecursionError):
        return False


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", [])] + [
                (name.lower().encode(), value.encode()) for name, value in HEADERS.items()
            ]
        await send(message)

    return sending
