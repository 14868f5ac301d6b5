"""The retry policy for teachers: wait, try again, stop the teacher, or record the failure as an abstention.

In: a `RequestFailure` and the number of tries of its question. Out: one of `Wait`, `Again`, `StopTeacher`, `Abstain`.
Every retry is reserved in the ledger like the first request, so it cannot exceed the cap. A failure carries its cost:
nothing if the endpoint refused before working, unknown if the answer was lost.

Calls to the Hub have another policy (`hub.Patience`), because they cost nothing and must not be repeated blindly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

MAX_TRIES = 3  # of one question that the server fails to answer
MAX_WAITS = 20  # of one question that the server puts off
MAX_WAIT_S = 900.0  # a longer Retry-After ends the teacher's part of this run
FIRST_PAUSE_S = 1.0

PUT_OFF = {429: "rate_limited", 503: "unavailable", 529: "overloaded"}
STOPPING = {401: "unauthorized", 402: "payment_required", 403: "forbidden", 404: "not_found"}
UNANSWERABLE = {400: "bad_request", 405: "bad_request", 413: "too_long", 415: "bad_request", 422: "bad_request"}

UNBILLED = frozenset(
    {*PUT_OFF.values(), *STOPPING.values(), *UNANSWERABLE.values(), "budget_in_flight", "not_connected"}
)
"""Kinds that no endpoint bills, because it refused before any work began."""


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """The reason why a request has no usable answer, and its cost (None: unknown)."""

    kind: str
    cost: int | None
    retry_after_s: float | None = None
    detail: str = ""  # the server's message, shortened, without keys
    request_id: str = ""  # by which the provider knows the call, if its headers arrived


@dataclass(frozen=True, slots=True)
class Wait:
    """Leave the teacher alone for a while; the question keeps its tries."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Again:
    """Ask this question again after a pause."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StopTeacher:
    """Ask this teacher nothing more in this run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Abstain:
    """End the question without an answer; `final` if a later run cannot help either."""

    final: bool


_STOP_REASONS = {
    "unauthorized": "rejects the key (401). Set the right one and run again",
    "payment_required": "asks for payment (402). Add credit or raise the key's limit, and run again",
    "forbidden": "denies access (403). Check the key's rights and the model's terms, and run again",
    "not_found": "does not serve this model (404). Check the name against its list of models, and run again",
}


def decide(failure: RequestFailure, tries: int, waits: int, rng: random.Random) -> Wait | Again | StopTeacher | Abstain:
    """Apply the policy to a failure; `tries` and `waits` include this one."""
    kind = failure.kind
    # A refusal that may be billed, inside an answer with status 200, has the few tries of a failed answer.
    if failure.cost == 0 and (kind in PUT_OFF.values() or kind == "budget_in_flight"):
        seconds = failure.retry_after_s if failure.retry_after_s is not None else pause(waits, rng)
        if seconds > MAX_WAIT_S:
            return StopTeacher(f"asks to come back in {seconds / 60:.0f} min. Run again then")
        if waits > MAX_WAITS:
            return StopTeacher(f"put the same question off {MAX_WAITS} times ({kind}). Run again later")
        return Wait(seconds)
    if kind in _STOP_REASONS:
        return StopTeacher(_STOP_REASONS[kind])
    if kind in UNANSWERABLE.values() or kind == "refusal":
        return Abstain(final=True)
    return Again(pause(tries, rng)) if tries < MAX_TRIES else Abstain(final=False)


def pause(count: int, rng: random.Random) -> float:
    """Return the seconds before the next try: doubling, with full jitter on the upper half."""
    top = min(FIRST_PAUSE_S * 2 ** (count - 1), 60.0)
    return top * (0.5 + rng.random() / 2)


def from_status(
    status: int, headers: Mapping[str, str], body: Any, *, bills_errors: bool, now: float
) -> RequestFailure:
    """Classify an HTTP error, or an error object with the same code that came with status 200."""
    after = retry_after_s(headers, now)
    detail = error_text(body)
    if status == 402 and after is not None:
        kind = "budget_in_flight"  # OpenRouter: calls in flight use up the budget, which frees itself
    elif status in (400, 413, 422) and _is_about_length(detail):
        kind = "too_long"
    elif status == 403 and _is_moderation(body):
        kind = "refusal"
    else:
        kind = (PUT_OFF | STOPPING | UNANSWERABLE).get(status) or f"server_{status}"
    return RequestFailure(kind, _billed(kind, status, bills_errors), after, detail)


def _billed(kind: str, status: int, bills_errors: bool) -> int | None:
    if kind in UNBILLED or kind == "refusal":
        return 0
    # Behind a gateway that timed out, the model may still have answered (and billed).
    gateway = status in (408, 502, 504, 522, 524)
    return None if bills_errors or gateway else 0


def retry_after_s(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds a server asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as an HTTP date."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = (headers.get("retry-after") or "").strip()
    if not value:
        return None
    if (seconds := _number(value)) is not None:
        return seconds
    then = _timestamp(value)
    if then is None:
        return None
    # Use the server's clock if it sends one, because the local clock may be wrong.
    return max(0.0, then - (_timestamp(headers.get("date") or "") or now))


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None


def _timestamp(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def error_of(body: Any) -> Any:
    """Return the error object of a body, if it has one."""
    return body.get("error") if isinstance(body, Mapping) else None


def error_text(body: Any) -> str:
    """Return the server's error message in one short line."""
    error = error_of(body) or body
    text = error.get("message") or error.get("detail") or "" if isinstance(error, Mapping) else error
    return " ".join(str(text or "").split())[:300]


def error_code(body: Any) -> int | None:
    """Return the status in an error object, which OpenRouter sends once processing has begun."""
    error = error_of(body)
    code = error.get("code") if isinstance(error, Mapping) else None
    try:
        return int(code) if code is not None and not isinstance(code, bool) else None
    except (TypeError, ValueError):
        return None


def _is_about_length(text: str) -> bool:
    text = text.lower()
    return any(
        sign in text for sign in ("context length", "context_length", "too long", "maximum context", "too many tokens")
    )


def _is_moderation(body: Any) -> bool:
    error = error_of(body)
    metadata = error.get("metadata") if isinstance(error, Mapping) else None
    return isinstance(metadata, Mapping) and bool({"flagged_input", "reasons"} & set(metadata))
