"""The embedded teachers: a small OpenAI-compatible server on loopback, with a bill and faults on demand.

In: scripted teachers, an oracle, faults. Out: `/v1/models` with prices, `/v1/chat/completions` with tool calls and
usage, `/billing` with the charges (for lost answers as well) and `/faults` to queue faults.

It counts cached prefixes as providers do: in whole blocks, on the backend that the session sticks to, from the end of
the call that read the prefix until its time to live is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import signal
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from composer_hub import exits
from composer_hub.money import NANO, PICO_PER_NANO
from composer_hub.records import canonical_json
from composer_hub.replay.fake.answers import REFUSALS, Dropped, FakeAnswer, answer_to, refuse, respond
from composer_hub.replay.fake.scripts import SCRIPTED, Labels, Oracle, ScriptedTeacher

BLOCK = 128
BYTES_PER_TOKEN = 4
GRACE_SECONDS = 5  # for answers that are on their way when the server ends


class ServeError(exits.UsageError, OSError):
    """The server cannot be started."""


@dataclass(slots=True)
class Bill:
    """The charges of one teacher, in nano-dollars."""

    requests: int = 0
    calls: int = 0
    cost: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    keys: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # digest of a prompt -> times billed


_Cache = dict[bytes, tuple[int, float]]
"""Prefixes of one backend: digest of a chain of messages -> (tokens, time of expiry)."""


class TeacherServer:
    """The server's state and its handlers."""

    def __init__(
        self,
        teachers: Sequence[ScriptedTeacher] = SCRIPTED,
        *,
        oracle: Oracle | None = None,
        labels: Labels | None = None,
        faults: Mapping[str, float] | None = None,
        seed: int = 0,
        api_key: str = "",
        min_cached_tokens: int = 256,
        backends: int = 1,
        tells_cost: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.teachers = {teacher.name: teacher for teacher in teachers}
        self.oracle: Oracle = oracle or {}
        self.labels: Labels = labels or {}
        self.rates, self.api_key, self.tells_cost = dict(faults or {}), api_key, tells_cost
        self.min_cached_tokens, self.backends, self.clock = min_cached_tokens, backends, clock
        self.queued: deque[str] = deque()
        self.bills: dict[str, Bill] = defaultdict(Bill)
        self.generations: dict[str, int] = {}  # id of a call -> its cost
        self._caches: dict[tuple[str, int], _Cache] = defaultdict(dict)
        self._rng = random.Random(seed)

    @property
    def billed(self) -> int:
        """Return all charges so far, in nano-dollars."""
        return sum(bill.cost for bill in self.bills.values())

    def cool_down(self) -> None:
        """Forget every prefix, as caches do while a person looks at the answers to a pilot."""
        self._caches.clear()

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/generation", self._generation),
                Route("/v1/key", self._key),
                Route("/billing", self._billing),
                Route("/faults", self._queue, methods=["POST"]),
            ]
        )

    # ----------------------------------------------------------------------------------------------------- handlers

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_entry(teacher) for teacher in self.teachers.values()]})

    async def _billing(self, request: Request) -> Response:
        models = {
            name: {
                "requests": bill.requests,
                "calls": bill.calls,
                "cost_nano": bill.cost,
                "prompt_tokens": bill.prompt_tokens,
                "cached_tokens": bill.cached_tokens,
                "duplicates": sum(times - 1 for times in bill.keys.values()),
            }
            for name, bill in self.bills.items()
        }
        return JSONResponse({"billed_nano": self.billed, "models": models})

    async def _generation(self, request: Request) -> Response:
        """Return the cost of one call, in the shape of OpenRouter."""
        cost = self.generations.get(request.query_params.get("id", ""))
        if cost is None:
            return refuse(404, {}, "no such generation")
        return JSONResponse({"data": {"id": request.query_params["id"], "total_cost": cost / NANO}})

    async def _key(self, request: Request) -> Response:
        """Return the key's spending, in the shape of OpenRouter."""
        return JSONResponse({"data": {"usage": self.billed / NANO, "limit": None, "limit_remaining": None}})

    async def _queue(self, request: Request) -> Response:
        """Queue faults for the next requests: {"faults": ["429", "drop_billed", …]}; "" lets one pass."""
        self.queued.extend((await request.json())["faults"])
        return JSONResponse({"queued": len(self.queued)})

    async def _complete(self, request: Request) -> Response:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            # Real servers repeat the key that they refuse.
            return refuse(401, {}, f"Incorrect API key provided: {request.headers.get('authorization')}")
        body = orjson.loads(await request.body())
        teacher = self.teachers.get(body.get("model", "").split(":")[0])
        if teacher is None:
            return refuse(404, {}, f"no model {body.get('model')!r}")
        self.bills[teacher.name].requests += 1
        fault = self._fault()
        if fault in REFUSALS:
            status, headers, message = REFUSALS[fault]
            if fault == "429_date":
                headers = {"retry-after": formatdate(time.time(), usegmt=True)}
            return refuse(status, headers, message)
        if fault == "flagged":
            return JSONResponse({"error": {"code": 403, "message": "flagged", "metadata": {"flagged_input": "…"}}}, 403)
        if fault == "drop":
            return Dropped()
        return await self._work(teacher, body, fault)

    async def _work(self, teacher: ScriptedTeacher, body: Mapping[str, Any], fault: str) -> Response:
        session = body.get("session_id") or body.get("prompt_cache_key") or ""
        counted = self._read_prompt(teacher, body, session)
        latency = teacher.latency_s + (0.2 if fault == "slow" else 0.0)
        if latency:
            await asyncio.sleep(latency)
        draws = self.bills[teacher.name].keys[counted.digest]
        answer = answer_to(teacher, body, self.oracle, fault, draws, self.labels)
        before = self.billed
        usage = self._charge(teacher, counted, answer, fault, int(body.get("max_tokens") or 4096))
        self._remember(teacher, counted)
        request_id = f"gen-{len(self.generations):08d}"
        self.generations[request_id] = self.billed - before
        return respond(answer, usage, fault, request_id)

    def _fault(self) -> str:
        if self.queued:
            return self.queued.popleft()
        point = self._rng.random()
        for fault, rate in self.rates.items():
            if point < rate:
                return fault
            point -= rate
        return ""

    # ------------------------------------------------------------------------------------------------------ counting

    def _read_prompt(self, teacher: ScriptedTeacher, body: Mapping[str, Any], session: str) -> _CountedPrompt:
        """Count the tokens of a prompt, and those that this backend still holds."""
        where = hashlib.sha256(session.encode()).digest()[0] if session else self.bills[teacher.name].requests
        cache = self._caches[teacher.name, where % self.backends]
        tools = canonical_json(body.get("tools") or [])
        chain, tokens = hashlib.sha256(tools.encode()).digest(), tokens_of(tools)
        prefixes, cached, now = [], 0, self.clock()
        while cache and cache[oldest := next(iter(cache))][1] <= now:
            del cache[oldest]
        for message in body["messages"]:
            text = canonical_json(_unmarked(message))
            chain = hashlib.sha256(chain + text.encode("utf-8", "replace")).digest()
            tokens += tokens_of(text)
            prefixes.append((chain, tokens))
            if chain in cache:
                cached = cache[chain][0]
        cached = cached // BLOCK * BLOCK if cached >= self.min_cached_tokens else 0
        return _CountedPrompt(tokens, cached, prefixes, cache, chain.hex())

    def _charge(
        self, teacher: ScriptedTeacher, counted: _CountedPrompt, answer: FakeAnswer, fault: str, max_tokens: int
    ) -> dict[str, Any]:
        price = teacher.price
        output = min(max_tokens, teacher.answer_tokens or tokens_of(canonical_json(answer.message)))
        output = max_tokens if fault == "length" else output
        explicit = price.rates.write != price.rates.input
        written = counted.tokens - counted.cached if explicit else 0
        cost = price.cost(counted.tokens, output, cached=counted.cached, written=written)
        if fault == "overbill":
            cost = cost * 1000 + NANO
        bill = self.bills[teacher.name]
        bill.calls += 1
        bill.cost += cost
        bill.prompt_tokens += counted.tokens
        bill.cached_tokens += counted.cached
        bill.keys[counted.digest] += 1
        usage = {
            "prompt_tokens": counted.tokens,
            "completion_tokens": output,
            "total_tokens": counted.tokens + output,
            "prompt_tokens_details": {"cached_tokens": counted.cached, "cache_write_tokens": written},
        }
        return {**usage, "cost": cost / NANO} if self.tells_cost else usage

    def _remember(self, teacher: ScriptedTeacher, counted: _CountedPrompt) -> None:
        cache, until = counted.cache, self.clock() + teacher.cache_ttl_s
        # Any prefix of the prompt can be read again; those that expire first come first.
        for chain, tokens in counted.prefixes:
            cache.pop(chain, None)
            cache[chain] = (tokens, until)


@dataclass(frozen=True, slots=True)
class _CountedPrompt:
    tokens: int
    cached: int
    prefixes: list[tuple[bytes, int]]
    cache: _Cache
    digest: str


def tokens_of(text: str) -> int:
    """Count tokens as this server does: one per four bytes, and four per message."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN) + 4


def _unmarked(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without its cache marks, which do not change its text."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    return {**message, "content": content}


def _entry(teacher: ScriptedTeacher) -> dict[str, Any]:
    rates = teacher.price.rates
    return {
        "id": teacher.name,
        "object": "model",
        "owned_by": "composer_hub",
        "family": teacher.family,
        "context_length": teacher.context_length,
        "is_trainable_text": True,
        "pricing": {
            "prompt": _per_token(rates.input),
            "completion": _per_token(rates.output),
            **({"input_cache_read": _per_token(rates.cached)} if teacher.price.caches else {}),
            **({"input_cache_write": _per_token(rates.write)} if rates.write != rates.input else {}),
        },
    }


def _per_token(pico: int) -> str:
    return f"{pico / (NANO * PICO_PER_NANO):.12f}"


# ------------------------------------------------------------------------------------------------------------ serving


def listen(port: int = 0) -> socket.socket:
    """Return a socket on loopback; port 0 takes any free one."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        raise ServeError(f"Port {port} of 127.0.0.1 is taken ({error.strerror}); give another --port.") from error
    listener.listen(1024)  # clients may connect from now on, and wait until the server answers
    return listener


def serve(teachers: TeacherServer, listener: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until interrupted; `announce` is called first, and a signal after it ends the server."""
    server = _server(teachers)
    for number in (signal.SIGINT, *exits.END_SIGNALS):
        if signal.getsignal(number) != signal.SIG_IGN:
            # A handler that raises can be lost, as in a finalizer, and then nothing ends the server.
            signal.signal(number, server.handle_exit)
    announce()
    server.run(sockets=[listener])


@contextlib.contextmanager
def serving(teachers: TeacherServer) -> Iterator[str]:
    """Serve in a thread while the block runs, and yield the base URL."""
    listener = listen()
    server = _server(teachers)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
        listener.close()


def _server(teachers: TeacherServer) -> Any:
    import uvicorn

    # Some faults drop the connection on purpose; uvicorn would report each as an error.
    config = uvicorn.Config(
        teachers.app(), log_level=60, lifespan="off", timeout_keep_alive=60, timeout_graceful_shutdown=GRACE_SECONDS
    )
    return uvicorn.Server(config)
