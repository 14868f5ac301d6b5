"""The embedded teachers: a small OpenAI-compatible server on loopback, with a bill of its own and faults on demand.

In: policies, an oracle, faults. Out: `/v1/models` with prices, `/v1/chat/completions` with tool calls and usage,
`/billing` (what the server charged, delivered or not) and `/faults`. It counts cached prefixes as providers do: one
is cached once a call that read it has ended, for as long as its time to live, in whole blocks, on the backend the
session sticks to.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from composer_hub import exits
from composer_hub.money import NANO, PICO_PER_NANO
from composer_hub.records import canonical_json
from composer_hub.replay.fake.policies import DEFAULT_POLICIES, Action, Oracle, Policy, act

BLOCK = 128
BYTES_PER_TOKEN = 4

REFUSALS: Mapping[str, tuple[int, dict[str, str], Any]] = {
    "429": (429, {"retry-after": "0.02"}, "slow down"),
    "429_ms": (429, {"retry-after-ms": "20"}, "slow down"),
    "429_date": (429, {}, "slow down"),  # the date is set when it is sent
    "429_bare": (429, {}, "slow down"),
    "503": (503, {"retry-after": "0.02"}, "busy"),
    "529": (529, {"retry-after": "0.02"}, "overloaded"),
    "402_wait": (402, {"retry-after": "0.02"}, "budget in flight"),
    "402": (402, {}, "insufficient credit"),
    "401": (401, {}, "no such key"),
    "403": (403, {}, "not for you"),
    "404": (404, {}, "no such model"),
    "400": (400, {}, "cannot read the tools"),
    "too_long": (400, {}, "maximum context length exceeded"),
    "500": (500, {}, "internal"),
    "502": (502, {}, "bad gateway"),
    "redirect": (307, {"location": "http://127.0.0.1:9/v1/chat/completions"}, "elsewhere"),
}
"""Faults before any work: never billed."""

LOST = ("drop", "drop_billed", "html", "bad_json", "error_200", "error_429", "empty_choices", "flagged")
ODD = (
    "length",
    "refusal",
    "invalid_args",
    "text_only",
    "unknown_tool",
    "route_mismatch",
    "no_usage",
    "overbill",
    "slow",
)
FAULTS = (*REFUSALS, *LOST, *ODD)


class ServeError(exits.UsageError, OSError):
    """The server cannot be started as asked."""


@dataclass(slots=True)
class Bill:
    """What the server charged, in nano-dollars."""

    requests: int = 0
    calls: int = 0
    cost: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    keys: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # digest of a prompt -> times billed


@dataclass(slots=True)
class _Cache:
    """Prefixes of one backend: digest of a chain of messages -> (tokens, time it is forgotten)."""

    prefixes: dict[bytes, tuple[int, float]] = field(default_factory=dict)


class Teachers:
    """The server's state and its handlers."""

    def __init__(
        self,
        policies: Sequence[Policy] = DEFAULT_POLICIES,
        *,
        oracle: Oracle | None = None,
        faults: Mapping[str, float] | None = None,
        seed: int = 0,
        api_key: str = "",
        min_cached_tokens: int = 256,
        backends: int = 1,
        tells_cost: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policies = {policy.name: policy for policy in policies}
        self.oracle: Oracle = oracle or {}
        self.rates, self.api_key, self.tells_cost = dict(faults or {}), api_key, tells_cost
        self.min_cached_tokens, self.backends, self.clock = min_cached_tokens, backends, clock
        self.queued: deque[str] = deque()
        self.bills: dict[str, Bill] = defaultdict(Bill)
        self._caches: dict[tuple[str, int], _Cache] = defaultdict(_Cache)
        self._rng = random.Random(seed)

    @property
    def billed(self) -> int:
        """Return everything charged so far, in nano-dollars."""
        return sum(bill.cost for bill in self.bills.values())

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/billing", self._billing),
                Route("/faults", self._queue, methods=["POST"]),
            ]
        )

    # ----------------------------------------------------------------------------------------------------- handlers

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_entry(policy) for policy in self.policies.values()]})

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

    async def _queue(self, request: Request) -> Response:
        """Queue faults for the next requests: {"faults": ["429", "drop_billed", …]}; "" lets one pass."""
        self.queued.extend((await request.json())["faults"])
        return JSONResponse({"queued": len(self.queued)})

    async def _complete(self, request: Request) -> Response | _Dropped:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            # Servers do repeat the key they refuse.
            return _refusal(401, {}, f"Incorrect API key provided: {request.headers.get('authorization')}")
        body = orjson.loads(await request.body())
        policy = self.policies.get(body.get("model", "").split(":")[0])
        if policy is None:
            return _refusal(404, {}, f"no model {body.get('model')!r}")
        self.bills[policy.name].requests += 1
        fault = self._fault()
        if fault in REFUSALS:
            status, headers, message = REFUSALS[fault]
            if fault == "429_date":
                headers = {"retry-after": formatdate(time.time(), usegmt=True)}
            return _refusal(status, headers, message)
        if fault == "flagged":
            return JSONResponse({"error": {"code": 403, "message": "flagged", "metadata": {"flagged_input": "…"}}}, 403)
        if fault == "drop":
            return _Dropped()
        return await self._work(policy, body, fault)

    async def _work(self, policy: Policy, body: Mapping[str, Any], fault: str) -> Response | _Dropped:
        session = body.get("session_id") or body.get("prompt_cache_key") or ""
        counted = self._read_prompt(policy, body, session)
        latency = policy.latency_s + (0.2 if fault == "slow" else 0.0)
        if latency:
            await asyncio.sleep(latency)
        answer = _answer(policy, body, self.oracle, fault, draw=self._draws(policy, counted.digest))
        usage = self._charge(policy, counted, answer, fault, int(body.get("max_tokens") or 4096))
        self._remember(policy, counted)
        return _respond(answer, usage, fault)

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

    def _read_prompt(self, policy: Policy, body: Mapping[str, Any], session: str) -> _Counted:
        """Count a prompt's tokens and how many of them this backend still holds."""
        where = hashlib.sha256(session.encode()).digest()[0] if session else self.bills[policy.name].requests
        cache = self._caches[policy.name, where % self.backends]
        tools = canonical_json(body.get("tools") or [])
        chain, tokens = hashlib.sha256(tools.encode()).digest(), tokens_of(tools)
        prefixes, cached, now = [], 0, self.clock()
        for message in body["messages"]:
            text = canonical_json(_unmarked(message))
            chain = hashlib.sha256(chain + text.encode("utf-8", "replace")).digest()
            tokens += tokens_of(text)
            prefixes.append((chain, tokens))
            held = cache.prefixes.get(chain)
            if held and held[1] > now:
                cached = held[0]
        cached = cached // BLOCK * BLOCK if cached >= self.min_cached_tokens else 0
        return _Counted(tokens, cached, prefixes, cache, chain.hex())

    def _draws(self, policy: Policy, digest: str) -> int:
        return self.bills[policy.name].keys[digest]

    def _charge(
        self, policy: Policy, counted: _Counted, answer: _Answer, fault: str, max_tokens: int
    ) -> dict[str, Any]:
        price = policy.price
        output = min(max_tokens, tokens_of(canonical_json(answer.message)))
        output = max_tokens if fault == "length" else output
        explicit = price.rates.write != price.rates.input
        written = counted.tokens - counted.cached if explicit else 0
        cost = price.cost(counted.tokens, output, cached=counted.cached, written=written)
        if fault == "overbill":
            cost = cost * 1000 + NANO
        bill = self.bills[policy.name]
        bill.calls += 1
        bill.cost += cost
        bill.prompt_tokens += counted.tokens
        bill.cached_tokens += counted.cached
        bill.output_tokens += output
        bill.keys[counted.digest] += 1
        usage = {
            "prompt_tokens": counted.tokens,
            "completion_tokens": output,
            "total_tokens": counted.tokens + output,
            "prompt_tokens_details": {"cached_tokens": counted.cached, "cache_write_tokens": written},
        }
        return {**usage, "cost": cost / NANO} if self.tells_cost else usage

    def _remember(self, policy: Policy, counted: _Counted) -> None:
        until = self.clock() + policy.cache_ttl_s
        # The whole prompt and everything before it: any of its prefixes can be read again.
        for chain, tokens in counted.prefixes:
            counted.cache.prefixes[chain] = (tokens, until)


@dataclass(frozen=True, slots=True)
class _Counted:
    tokens: int
    cached: int
    prefixes: list[tuple[bytes, int]]
    cache: _Cache
    digest: str


@dataclass(frozen=True, slots=True)
class _Answer:
    model: str
    message: dict[str, Any]
    finish: str


def tokens_of(text: str) -> int:
    """Count tokens the way this server does: four bytes each, and four for a message's frame."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN) + 4


def _unmarked(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message without cache marks: marked or not, it is the same text."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(part.get("text") or "" for part in content)
    return {**message, "content": content}


def _entry(policy: Policy) -> dict[str, Any]:
    rates = policy.price.rates
    return {
        "id": policy.name,
        "object": "model",
        "owned_by": "composer_hub",
        "family": policy.family,
        "context_length": policy.context_length,
        "is_trainable_text": True,
        "pricing": {
            "prompt": _per_token(rates.input),
            "completion": _per_token(rates.output),
            **({"input_cache_read": _per_token(rates.cached)} if policy.price.caches else {}),
            **({"input_cache_write": _per_token(rates.write)} if rates.write != rates.input else {}),
        },
    }


def _per_token(pico: int) -> str:
    return f"{pico / (NANO * PICO_PER_NANO):.12f}"


# ------------------------------------------------------------------------------------------------------------ answers


def _answer(policy: Policy, body: Mapping[str, Any], oracle: Oracle, fault: str, draw: int) -> _Answer:
    action: Action = act(policy, body["messages"], body.get("tools") or [], oracle, draw)
    if fault in ("text_only", "refusal", "length"):
        action = {"content": "I would rather not." if fault == "refusal" else "Let me think about it."}
    if fault == "unknown_tool":
        action = {"name": "no_such_tool", "arguments": {}}
    message: dict[str, Any] = {"role": "assistant", "content": action.get("content")}
    if "name" in action:
        text = "{not json" if fault == "invalid_args" else canonical_json(action["arguments"])
        message["tool_calls"] = [
            {"id": "call_0", "type": "function", "function": {"name": action["name"], "arguments": text}}
        ]
    finish = {"length": "length", "refusal": "content_filter"}.get(fault, "tool_calls" if "name" in action else "stop")
    return _Answer("another-model" if fault == "route_mismatch" else policy.name, message, finish)


def _respond(answer: _Answer, usage: Mapping[str, Any], fault: str) -> Response | _Dropped:
    if fault == "drop_billed":
        return _Dropped()
    if fault == "html":
        return HTMLResponse("<html><body>Gateway</body></html>")
    if fault == "bad_json":
        return Response('{"id": "x", "choices": [', media_type="application/json")
    content: dict[str, Any] = {
        "id": f"gen-{hashlib.sha256(canonical_json([answer.message, usage]).encode()).hexdigest()[:12]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": answer.model,
        "choices": [{"index": 0, "finish_reason": answer.finish, "message": answer.message}],
        "usage": usage,
    }
    if fault in ("error_200", "error_429"):
        return JSONResponse({"error": {"code": 429 if fault == "error_429" else 502, "message": "upstream failed"}})
    if fault == "empty_choices":
        content["choices"] = []
    if fault == "no_usage":
        del content["usage"]
    return JSONResponse(content)


def _refusal(status: int, headers: Mapping[str, str], message: str) -> Response:
    return JSONResponse({"error": {"code": status, "message": message}}, status, headers=dict(headers))


class _Dropped(Response):
    """A response that promises a body and then closes the connection."""

    async def __call__(self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id":', "more_body": True})


# ------------------------------------------------------------------------------------------------------------ serving


def listen(port: int = 0) -> socket.socket:
    """Return a socket on loopback; port 0 takes any free one."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        raise ServeError(f"Port {port} of 127.0.0.1 is taken ({error.strerror}); give another --port.") from error
    listener.listen(1024)  # from here on clients may connect; they wait until the server answers
    return listener


def serve(teachers: Teachers, listener: socket.socket) -> None:
    """Serve until interrupted."""
    _server(teachers).run(sockets=[listener])


@contextlib.contextmanager
def serving(teachers: Teachers) -> Iterator[str]:
    """Serve in a thread while the block runs; yield the base URL."""
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


def _server(teachers: Teachers) -> Any:
    import uvicorn

    # Dropped connections are the point of some faults; uvicorn reports each as an error.
    return uvicorn.Server(uvicorn.Config(teachers.app(), log_level=60, lifespan="off", timeout_keep_alive=60))
