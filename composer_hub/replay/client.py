"""The edge to the teachers: one request over `AsyncInferenceClient`.

In: a teacher, its key, a chat. Out: the raw body of the answer, or a `RequestFailure` with the cost it may have had.
Network exceptions do not leave this file, and text leaves it only after the keys in it are blotted out.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from huggingface_hub import AsyncInferenceClient, InferenceTimeoutError, set_async_client_factory
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx

from composer_hub.replay import answers
from composer_hub.replay.retries import RequestFailure, from_status
from composer_hub.replay.teachers import Teacher

MAX_BODY = 32 * 2**20
NO_KEY = "none"  # without a key, AsyncInferenceClient would send the user's Hugging Face token

_seen: ContextVar[list[httpx.Response]] = ContextVar("composer_hub_responses")


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete answer."""

    body: bytes  # unchanged, except that keys are blotted out
    response: Mapping[str, Any]
    latency_s: float


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The parts of a request that the teacher's settings do not determine."""

    chat: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]]
    lane: str


class Client:
    """The connection to one teacher. Create it inside `connections`."""

    def __init__(self, teacher: Teacher, key: str, *, wall: Callable[[], float] = time.time) -> None:
        self.teacher, self._wall = teacher, wall
        self.blot = blotter([key])
        self._client = AsyncInferenceClient(base_url=teacher.base_url, api_key=key or NO_KEY, timeout=teacher.timeout_s)

    async def close(self) -> None:
        await self._client.close()

    async def ask(self, request: ChatRequest) -> Reply | RequestFailure:
        """Send one request, and return every outcome as a value."""
        seen: list[httpx.Response] = []
        _seen.set(seen)
        start = time.perf_counter()
        try:
            # The client's timeout is per read; a server that trickles needs a limit on the whole answer.
            call = self._client.chat_completion(
                **self.teacher.fixed(request.chat, request.tools),
                extra_body=self.teacher.extra_body(request.lane),
            )
            await asyncio.wait_for(call, self.teacher.timeout_s * 1.5)
        except HfHubHTTPError as error:
            return self._refused(error.response)
        except (InferenceTimeoutError, TimeoutError) as error:
            return _lost(error.__cause__ or error, seen)
        except httpx.TransportError as error:
            return _lost(error, seen)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            # The client's types do not fit the body; it is parsed below.
            if not seen:
                return RequestFailure("not_sent", 0, detail="the request could not be built")
        return self._read(seen[-1], time.perf_counter() - start)

    def _read(self, response: httpx.Response, latency_s: float) -> Reply | RequestFailure:
        if response.status_code != 200:
            return self._refused(response)
        body, request_id = self.blot(response.content), _id_of(response)
        if "text/html" in response.headers.get("content-type", ""):
            return RequestFailure("html", None, detail="the endpoint sent a web page", request_id=request_id)
        try:
            content = answers.parse_body(body)
        except ValueError:
            return RequestFailure("bad_json", None, detail="the answer is not JSON", request_id=request_id)
        failure = answers.failure_in(content, self.teacher, now=self._wall())
        return dataclasses.replace(failure, request_id=request_id) if failure else Reply(body, content, latency_s)

    def _refused(self, response: httpx.Response) -> RequestFailure:
        try:
            body = answers.parse_body(self.blot(response.content))
        except (ValueError, httpx.StreamError):
            body = None
        return from_status(
            response.status_code,
            response.headers,
            body,
            bills_errors=self.teacher.bills_errors,
            now=self._wall(),
        )


def _lost(error: BaseException, seen: Sequence[httpx.Response]) -> RequestFailure:
    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)):
        return RequestFailure("not_connected", 0, detail=type(error).__name__)
    kind = "timeout" if isinstance(error, (httpx.TimeoutException, TimeoutError, asyncio.TimeoutError)) else "dropped"
    return RequestFailure(kind, None, detail=type(error).__name__, request_id=_id_of(seen[-1]) if seen else "")


def _id_of(response: httpx.Response) -> str:
    text = response.headers.get("x-generation-id", "")
    return text if text.isascii() and text.isprintable() else ""


def blotter(keys: Sequence[str]) -> Callable[[bytes], bytes]:
    """Return a function that removes keys, and strings that look like keys, from a body. Some servers echo them."""
    known = [re.escape(key.encode()) for key in keys if key]
    pattern = re.compile(b"|".join([*known, rb"\b(?:sk-|hf_)[A-Za-z0-9_-]{20,}"]))
    return lambda body: pattern.sub(b"[key]", body)


@contextlib.asynccontextmanager
async def connections(
    teachers: Sequence[Teacher], transport: Callable[[], httpx.AsyncBaseTransport] | None = None
) -> AsyncIterator[None]:
    """Give the AsyncInferenceClients created inside a pool for all lanes; their own pool queues beyond 100."""
    most = max((teacher.max_concurrency for teacher in teachers), default=1)
    # Servers close idle connections after five seconds or more. A request on a closed one would count as lost.
    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=2.0)
    # Reading the certificates takes a tenth of a second, so it is done once, and only for TLS.
    tls = httpx.create_ssl_context() if any(t.base_url.startswith("https:") for t in teachers) else False

    def make() -> httpx.AsyncClient:
        inner = transport() if transport else httpx.AsyncHTTPTransport(verify=tls, limits=limits)
        return httpx.AsyncClient(
            transport=_LimitedTransport(inner),
            event_hooks={"response": [_keep]},
            headers={"accept-encoding": "identity"},
            # A redirect would carry the prompt to a host that the user did not name.
            follow_redirects=False,
            timeout=None,
        )

    from huggingface_hub.utils._http import default_async_client_factory

    set_async_client_factory(make)
    try:
        yield
    finally:
        set_async_client_factory(default_async_client_factory)


async def _keep(response: httpx.Response) -> None:
    with contextlib.suppress(LookupError):
        _seen.get().append(response)


class _LimitedTransport(httpx.AsyncBaseTransport):
    """A transport that limits the size of a body."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        response.stream = _LimitedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _LimitedStream(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_BODY:
                raise httpx.ReadError(f"more than {MAX_BODY} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
