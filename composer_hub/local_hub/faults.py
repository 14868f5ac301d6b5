"""Faults on purpose, for tests of what clients do about them: `412`, `409:2`, `503:0.1`, `drop`, `lose`.

A number after the colon is how often (default once); one with a point is the share of the writes. The same words and
seed give the same faults. 412 and 409 meet commits only; 429, 503, drop (the connection breaks before the work) and
lose (it breaks after the work, which is done) meet every write.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from composer_hub.local_hub.calls import STALE, ApiError, error_response
from composer_hub.local_hub.errors import LocalHubUsageError

KINDS = ("412", "409", "429", "503", "drop", "lose")
_COMMIT_ONLY = ("412", "409")
_HARMLESS = ("/paths-info/", "/validate-yaml", "/verify")
RETRY_AFTER = "1"
_ANSWERS = {
    "412": ApiError(412, STALE),
    "409": ApiError(409, "Conflict: another commit to this branch is in progress. Try again."),
    "429": ApiError(429, "Too many requests. Try again later.", headers={"Retry-After": RETRY_AFTER}),
    "503": ApiError(503, "Service unavailable. Try again later.", headers={"Retry-After": RETRY_AFTER}),
}


class FaultsError(LocalHubUsageError):
    """The words of `--inject` do not say which faults."""


@dataclass
class Fault:
    """A kind of fault with the number of times left, or the share of writes that it affects."""

    kind: str
    left: int = 1
    share: float = 0.0

    def strikes(self, random_source: random.Random) -> bool:
        if self.share:
            return random_source.random() < self.share
        self.left -= 1
        return self.left >= 0


def parse_faults(text: str) -> list[Fault]:
    """Read the words of `--inject`."""
    return [_parse(word.strip()) for word in text.split(",") if word.strip()]


class Faulty:
    """An application in front of another one that spoils some of the writes."""

    def __init__(self, app: ASGIApp, faults: Sequence[Fault], seed: int = 0) -> None:
        self.app, self.faults = app, faults
        self.random = random.Random(seed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = self._pick(scope)
        if kind == "drop":
            await _break(send)
        elif kind == "lose":
            await self.app(scope, receive, _swallow)
            await _break(send)
        elif kind:
            await _drain(receive)
            await error_response(_ANSWERS[kind])(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _pick(self, scope: Scope) -> str:
        path = scope.get("path", "")
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD") or any(part in path for part in _HARMLESS):
            return ""
        for fault in self.faults:
            if (fault.kind not in _COMMIT_ONLY or "/commit/" in path) and fault.strikes(self.random):
                return fault.kind
        return ""


async def _break(send: Send) -> None:
    """Promise more bytes than come: the server closes the connection, and the client sees it broken off."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await asyncio.sleep(0)


async def _swallow(message: Message) -> None:
    return None


async def _drain(receive: Receive) -> None:
    """Take the body in before answering, or a client that still sends would see a reset instead of the answer."""
    more: Any = True
    while more:
        message = await receive()
        more = message.get("more_body", False)


def _parse(word: str) -> Fault:
    kind, _, amount = word.partition(":")
    if kind not in KINDS:
        raise FaultsError(
            f"--inject: {word!r} is not a fault. Choose from {', '.join(KINDS)}, as in `412,429:3,503:0.1`."
        )
    try:
        share = float(amount) if "." in amount else 0.0
        left = int(amount) if amount and not share else 1
    except ValueError as error:
        raise FaultsError(f"--inject: {amount!r} in {word!r} is neither a count nor a share below 1.0.") from error
    if not 0 <= share <= 1 or left < 0:
        raise FaultsError(f"--inject: {amount!r} in {word!r} must be a count, or a share between 0.0 and 1.0.")
    return Fault(kind, left, share)
