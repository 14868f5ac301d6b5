"""Every fault of a server, over a real socket: the question is asked again, or the outcome stored and counted."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.money import NANO, Budget
from composer_hub.records import Vote
from composer_hub.replay.collecting import collect
from composer_hub.replay.fake import FAULTS, TeacherServer, serving
from composer_hub.replay.lanes import Clock
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from tests.replay.sample import compare, teachers_at, trace_of

CAP = NANO  # $1
ONE = ReplayOptions(order="all", audit=0, repeat=0)


@dataclasses.dataclass
class PlayedRun:
    votes: list[Vote]
    money: Budget
    server: TeacherServer
    requests: int
    ambiguous: int  # of this run alone
    stopped: str = ""

    @property
    def statuses(self) -> list[str]:
        return [vote.status for vote in sorted(self.votes, key=lambda vote: vote.index)]


class FastClock:
    """A clock whose pauses pass at once."""

    def __init__(self) -> None:
        self.now = 1e9

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    @property
    def clock(self) -> Clock:
        return Clock(wall=lambda: self.now, monotonic=lambda: self.now, sleep=self.sleep)


Ask = Callable[..., PlayedRun]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Replay a trace of three steps by one teacher, with faults queued for its first requests."""

    server = TeacherServer()

    def play(url: str, *faults: str, num_steps: int = 3, **options: object) -> PlayedRun:
        server.queued.extend(faults)
        before = server.bills["small"].requests
        with Ledger(tmp_path / "ledger.sqlite", cap=CAP) as ledger:
            start = ledger.budget()
            asked = collect(
                [trace_of(num_steps)], teachers_at(url, ["small"], **options), ledger, ONE, compare=compare,
                clock=FastClock().clock, rng=random.Random(0), environ={},
            )  # fmt: skip
            votes, stopped = [], ""
            try:
                votes.extend(asked)
            except exits.Stopped as error:
                stopped = str(error)
            money = ledger.budget()
            assert money == ledger.audit()
            assert "overbill" in faults or money.committed <= max(CAP, start.committed)
            assert 0 <= server.billed - money.settled <= money.ambiguous
            requests = server.bills["small"].requests - before
            return PlayedRun(votes, money, server, requests, money.ambiguous - start.ambiguous, stopped)

    with serving(server) as url:
        yield functools.partial(play, url)


@pytest.mark.parametrize("fault", ["429", "429_ms", "429_date", "429_bare", "503", "529", "402_wait"])
def test_a_teacher_that_puts_off_is_asked_again_and_nothing_is_lost(ask: Ask, fault: str) -> None:
    outcome = ask(fault, fault)
    assert outcome.statuses == ["voted"] * 3
    assert (outcome.requests, outcome.money.ambiguous) == (5, 0)
    assert outcome.money.settled == outcome.server.billed


def test_an_error_with_status_200_and_code_429_is_waited_for(ask: Ask) -> None:
    outcome = ask("error_429")
    assert (outcome.statuses, outcome.requests) == (["voted"] * 3, 4)


@pytest.mark.parametrize(
    ("fault", "sign"),
    [("401", "rejects the key"), ("402", "payment"), ("403", "denies"), ("404", "does not serve")],
)
def test_a_teacher_that_refuses_for_good_is_stopped_at_once_and_named(ask: Ask, fault: str, sign: str) -> None:
    outcome = ask("", fault, fault, fault)
    assert sign in outcome.stopped
    assert "Teacher small" in outcome.stopped
    assert outcome.requests == 2
    assert outcome.statuses == ["voted"]
    assert outcome.money.ambiguous == 0


@pytest.mark.parametrize(
    ("faults", "is_counted"),
    [("drop drop_billed html bad_json error_200 500 502 redirect", True), ("empty_choices", False)],
    ids=["unknown_cost", "known_cost"],
)
def test_a_lost_answer_is_asked_again_and_an_unknown_cost_stays_counted(
    ask: Ask, faults: str, is_counted: bool
) -> None:
    for number, fault in enumerate(faults.split()):
        # Another max_tokens makes these other questions.
        outcome = ask(fault, max_tokens=200 + number)
        assert (fault, outcome.statuses, outcome.requests) == (fault, ["voted"] * 3, 4)
        assert (fault, outcome.ambiguous > 0) == (fault, is_counted)


@pytest.mark.parametrize("fault", ["drop_billed", "bad_json", "500"])
def test_three_failures_end_a_question_and_the_lane_continues(ask: Ask, fault: str) -> None:
    outcome = ask(fault, fault, fault)
    assert outcome.statuses[1:] == ["voted"] * 2
    assert outcome.statuses[0] in ("dropped", "bad_json", "server_500")
    assert outcome.requests == 5


@pytest.mark.parametrize(("fault", "status"), [
    *((kind, kind) for kind in ("length", "refusal", "invalid_args", "text_only", "unknown_tool", "route_mismatch")),
    *(("400", "bad_request"), ("too_long", "too_long"), ("flagged", "refusal")),
])  # fmt: skip
def test_an_odd_answer_is_stored_as_an_abstention_and_never_paid_twice(ask: Ask, fault: str, status: str) -> None:
    outcome = ask(fault)
    assert outcome.statuses == [status, "voted", "voted"]
    assert outcome.requests == 3
    again = ask()
    assert again.requests == 0
    assert again.statuses == outcome.statuses
    assert [vote.cost_usd for vote in again.votes] == [vote.cost_usd for vote in outcome.votes]


def test_an_answer_without_usage_counts_at_its_worst_case(ask: Ask) -> None:
    outcome = ask("no_usage")
    assert outcome.statuses == ["voted"] * 3
    assert outcome.votes[0].cost_source == "worst_case"
    assert outcome.money.ambiguous > 0


def test_an_endpoint_that_bills_more_than_its_list_is_not_asked_again(ask: Ask) -> None:
    # The only way to exceed a cap: the bill comes after the request.
    outcome = ask("overbill")
    assert "billed" in outcome.stopped
    assert outcome.requests == 1
    assert outcome.money.settled == outcome.server.billed
    again = ask()
    assert ("billed" in again.stopped, again.requests) == (True, 0)
    assert "billed" not in ask(price="2/2").stopped


def test_a_teacher_that_vanishes_midway_is_stopped_after_ten_failures(ask: Ask) -> None:
    outcome = ask("", *["drop"] * 30, num_steps=6)
    assert "failed 10 times in a row" in outcome.stopped
    assert outcome.requests == 11


def test_a_slow_answer_is_waited_for_and_one_beyond_the_time_limit_stays_counted(ask: Ask) -> None:
    assert (waited := ask("slow")).statuses == ["voted"] * 3
    assert waited.money.ambiguous == 0
    outcome = ask("slow", timeout_s=0.05, max_tokens=201)
    assert outcome.statuses == ["voted"] * 3
    assert outcome.money.ambiguous > 0


def test_any_mix_of_faults_keeps_the_bill_within_the_ledger(tmp_path: Path) -> None:
    stopping = {"401", "402", "403", "404", "overbill"}
    rates = {fault: 0.015 for fault in FAULTS if fault not in stopping}
    server = TeacherServer(faults=rates, seed=3)
    with serving(server) as url, Ledger(tmp_path / "ledger.sqlite", cap=CAP) as ledger:
        traces = [trace_of(12, name=f"t{number}") for number in range(4)]
        asked = collect(
            traces, teachers_at(url), ledger, ONE,
            compare=compare, clock=FastClock().clock, rng=random.Random(1), environ={},
        )  # fmt: skip
        votes = list(asked)
        money = ledger.budget()
        assert len(votes) == 4 * 12 * 3
        assert money.settled <= server.billed <= money.settled + money.ambiguous <= CAP
        assert len({vote.status for vote in votes}) > 4
