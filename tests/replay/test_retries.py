"""The retry policy for failures that differ in a detail; tests/replay/test_faults.py covers the others."""

from __future__ import annotations

import random

import pytest

from composer_hub.replay.retries import (
    MAX_TRIES,
    MAX_WAITS,
    Abstain,
    Again,
    RequestFailure,
    StopTeacher,
    Wait,
    decide,
    from_status,
    retry_after_s,
)

RNG = random.Random(0)
NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, 30.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT", "date": "Tue, 14 Nov 2023 22:13:40 GMT"}, 10.0),
        ({"retry-after": "Tue, 14 Nov 2003 22:13:50 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
    ids=["seconds", "fraction", "ms", "date", "server_clock", "past", "negative", "words", "nan", "absent"],
)
def test_a_retry_after_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, NOW) == seconds


def status(code: int, headers: dict[str, str] | None = None, body: object = None, bills: bool = True) -> RequestFailure:
    return from_status(code, headers or {}, body, bills_errors=bills, now=NOW)


@pytest.mark.parametrize(("failure", "decision", "cost"), [
    (status(402, {"retry-after": "2"}), Wait, 0),
    (status(402), StopTeacher, 0),
    (status(400, body={"error": {"message": "maximum context length is 8192"}}), Abstain, 0),
    (status(500, bills=False), Again, 0),
    (status(500), Again, None),
    (status(504, bills=False), Again, None),
    (status(429, {"retry-after": "86400"}), StopTeacher, 0),
    (RequestFailure("rate_limited", None), Again, None),
], ids=["402_after", "402", "too_long", "500_unbilled", "500", "504", "429_tomorrow", "429_in_an_answer"])  # fmt: skip
def test_each_failure_has_its_decision_and_its_cost(failure: RequestFailure, decision: type, cost: int | None) -> None:
    assert isinstance(decide(failure, 1, 1, RNG), decision)
    assert failure.cost == cost


def test_a_failing_question_ends_after_its_tries_and_may_be_asked_in_a_later_run() -> None:
    assert decide(RequestFailure("dropped", None), MAX_TRIES, 0, RNG) == Abstain(final=False)


def test_a_teacher_that_keeps_putting_off_is_stopped() -> None:
    assert isinstance(decide(status(429), 1, MAX_WAITS + 1, RNG), StopTeacher)


def test_pauses_grow_and_stay_below_a_minute() -> None:
    pauses = [decide(RequestFailure("rate_limited", 0), 1, waits, RNG) for waits in range(1, 15)]
    assert all(isinstance(one, Wait) and 0 < one.seconds <= 60 for one in pauses)
