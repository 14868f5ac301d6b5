"""Long request bodies, read from the socket by a thread instead of by the HTTP parser.

An upload costs a hash and two copies that nothing can avoid: from the socket, and to disk. asyncio and an HTTP parser
add five more copies and a wakeup for every few KB, which cost more than all the rest. So `direct_protocol` puts a
`BodySocket` into the scope of each request, and `Call.stream_to` uses it for bodies of a known length. The parser does
not see those bytes, so it cannot find the next request: the connection ends with the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Mapping
from typing import Any

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EXTENSION = "composer_hub.body_socket"
BLOCK = 1 << 20
"""Bodies are read, hashed and written this many bytes at a time; less than this is left to the parser."""
_MAX_THREADS = 16
_HEAD_LIMIT = 512 << 10
_STALL_SECONDS = 30.0
_FULL_PIECE_SECONDS = 1.0

Sink = Callable[[memoryview], None]
"""Takes a piece of a body; its memory is used again for the next one."""


class BodySocket:
    """The socket that receives the rest of one request's body."""

    def __init__(self, transport: asyncio.Transport, threads: anyio.CapacityLimiter) -> None:
        self._transport, self._threads = transport, threads
        self.was_read = False

    @property
    def is_free(self) -> bool:
        """Return whether there is a thread to read it; slow clients may hold all of them."""
        return self._threads.available_tokens > 0

    async def read(self, length: int, sink: Sink) -> None:
        """Pass the next bytes to `sink`, in a thread.

        Call it when `receive` has just returned a part of the body, without an `await` between. If the client
        leaves or stalls, the next `receive` reports it.
        """
        self.was_read = True
        self._transport.pause_reading()
        connection = self._transport.get_extra_info("socket").dup()
        reading = anyio.to_thread.run_sync(_read, connection, length, sink, limiter=self._threads)
        work = asyncio.ensure_future(reading)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:  # the server stops
            _shut(connection, socket.SHUT_RD)  # the answer can still be sent
            await asyncio.wait([work])
            raise
        finally:
            connection.close()
            self._transport.resume_reading()


def body_socket(scope: Mapping[str, Any]) -> BodySocket | None:
    """Return the socket that receives a request's body, or None if the server does not expose it."""
    return (scope.get("extensions") or {}).get(_EXTENSION)


def direct_protocol() -> type[asyncio.Protocol]:
    """Return uvicorn's protocol, but with a `BodySocket` in the scope of each request and a limit on heads."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    threads = anyio.CapacityLimiter(_MAX_THREADS)

    class Protocol(HttpToolsProtocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.app = functools.partial(_with_socket, self.app, transport, threads)
            self._is_in_head, self._head_size = False, 0

        def on_message_begin(self) -> None:
            self._is_in_head, self._head_size = True, 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._is_in_head = False
            super().on_headers_complete()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_in_head:
                self._head_size += len(data)
            if self._head_size > _HEAD_LIMIT and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")

    return Protocol


async def _with_socket(
    app: ASGIApp,
    transport: asyncio.Transport,
    threads: anyio.CapacityLimiter,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    body = BodySocket(transport, threads)

    async def send_and_close(message: Message) -> None:
        if body.was_read and message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"connection", b"close")]
        await send(message)

    extensions = {**(scope.get("extensions") or {}), _EXTENSION: body}
    await app({**scope, "extensions": extensions}, receive, send_and_close)


def _read(connection: socket.socket, length: int, sink: Sink) -> None:
    """Read until all bytes are here or the client leaves.

    If `sink` fails, the rest is still read: a client that still sends would see a reset and not the answer.
    """
    block = memoryview(bytearray(min(length, BLOCK)))
    failure: Exception | None = None
    while length:
        piece = block[:length]
        size = _receive(connection, piece)
        if not size:
            break
        length -= size
        try:
            if failure is None:
                sink(piece[:size])
        except Exception as error:  # noqa: BLE001 - raised when the request is read to its end
            failure = error
    if failure is not None:
        raise failure


def _receive(connection: socket.socket, piece: memoryview) -> int:
    """Fill a piece, or less of it if the client pauses; return 0 if it left or sends no more."""
    with contextlib.suppress(ConnectionError):
        # One wakeup for a whole piece, unless the client is slow.
        for enough, seconds in ((len(piece), _FULL_PIECE_SECONDS), (1, _STALL_SECONDS)):
            connection.settimeout(seconds)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, enough)
            with contextlib.suppress(TimeoutError):
                return connection.recv_into(piece)
        _shut(connection)
    return 0


def _shut(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(how)
