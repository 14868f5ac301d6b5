"""Whole runs: resumed for free, without unredacted text, and without a key in any output."""

from __future__ import annotations

import dataclasses
import io
import logging
import traceback
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.money import NANO
from composer_hub.records import to_row
from composer_hub.replay.collecting import collect
from composer_hub.replay.fake import TeacherServer, oracle_of, serving
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.planning import lane_cost, plan
from composer_hub.replay.prices import per_million
from composer_hub.replay.teachers import Teacher
from tests.replay.sample import compare, teachers_at, trace_of

ALL = ReplayOptions(order="all", audit=0, repeat=0)
KEY = "sk-planted-0123456789abcdefghij"


@pytest.mark.parametrize("policy", ["all", "sequential", "cascade"])
def test_running_again_yields_the_same_votes_and_asks_nothing(tmp_path: Path, policy: str) -> None:
    traces = [trace_of(9, name=f"t{number}") for number in range(3)]
    server, options = TeacherServer(oracle=oracle_of(traces)), ReplayOptions(order=policy, audit=0.3, repeat=0.2)
    with serving(server) as url, Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
        panel = teachers_at(url)
        first = {vote.vote_id: vote for vote in collect(traces, panel, ledger, options, compare=compare, environ={})}
        requests = sum(bill.requests for bill in server.bills.values())
        again = {vote.vote_id: vote for vote in collect(traces, panel, ledger, options, compare=compare, environ={})}
        assert again == first
        assert sum(bill.requests for bill in server.bills.values()) == requests
        assert ledger.budget().settled == server.billed
        assert sum(vote.cost_usd for vote in first.values()) == pytest.approx(server.billed / NANO)


def test_a_teacher_that_is_added_later_is_the_only_one_asked(tmp_path: Path) -> None:
    server, traces = TeacherServer(), [trace_of(5)]
    with serving(server) as url, Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
        list(collect(traces, teachers_at(url, ["small", "medium"]), ledger, ALL, compare=compare, environ={}))
        list(collect(traces, teachers_at(url), ledger, ALL, compare=compare, environ={}))
    assert {name: bill.calls for name, bill in server.bills.items()} == {"small": 5, "medium": 5, "large": 5}


def test_an_unredacted_trace_is_sent_to_own_endpoints_only(tmp_path: Path) -> None:
    server, trace = TeacherServer(), trace_of(3, redaction="")
    with serving(server) as url, Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
        with pytest.raises(exits.Refused, match="never redacted"):
            list(collect([trace], teachers_at(url), ledger, ALL, compare=compare, environ={}))
        assert not server.bills
        own = dataclasses.replace(ALL, own_endpoint=True)
        votes = list(collect([trace], teachers_at(url), ledger, own, compare=compare, environ={}))
        assert len(votes) == 9


def test_a_remote_endpoint_is_not_an_own_endpoint(tmp_path: Path) -> None:
    remote = Teacher("far", "far", "https://teachers.example/v1")
    with Ledger(tmp_path / "ledger.sqlite", cap=1) as ledger, pytest.raises(exits.Refused, match="far is elsewhere"):
        list(collect([trace_of(1)], [remote], ledger, ReplayOptions(own_endpoint=True), environ={}))


@pytest.mark.parametrize("known_key", [True, False], ids=["right_key", "wrong_key"])
def test_no_log_ledger_vote_or_exception_contains_a_key(
    tmp_path: Path, known_key: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = TeacherServer(api_key=KEY if known_key else "another", oracle={}, faults={"500": 0.1, "400": 0.1})
    trace = trace_of(6, system=f"A user pasted {KEY} here.")
    output = io.StringIO()
    with serving(server) as url:
        panel = teachers_at(url, key_env="TEACHER_KEY", environ={"TEACHER_KEY": KEY})
        with Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
            try:
                for vote in collect([trace], panel, ledger, ALL, compare=compare, environ={"TEACHER_KEY": KEY}):
                    print(to_row(vote), file=output)
            except exits.Stopped:
                assert not known_key
                traceback.print_exc(file=output)
            print(panel, ledger.by_teacher(), file=output)
    for path in tmp_path.iterdir():
        assert KEY.encode() not in path.read_bytes()
    assert KEY not in output.getvalue()
    assert KEY not in caplog.text
    assert ("rejects the key" in output.getvalue()) == (not known_key)


def test_the_users_hugging_face_token_is_not_sent_to_a_server_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_user")
    server = TeacherServer(api_key="none")  # the key that the client sends by default
    with serving(server) as url, Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
        assert len(list(collect([trace_of(2)], teachers_at(url), ledger, ALL, compare=compare, environ={}))) == 6


def test_a_plan_refuses_a_cap_below_the_smallest_lane_and_traces_without_questions() -> None:
    teacher = Teacher("t", "t", "http://127.0.0.1/v1", family="f", price=per_million("5", "25"))
    found = plan([trace_of(5)], [teacher], ALL)
    assert found.smallest_lane is not None
    with pytest.raises(exits.UsageError, match="smallest lane"):
        found.check(found.smallest_lane - 1)
    found.check(found.smallest_lane)
    with pytest.raises(exits.NothingToDo, match="no steps"):
        plan([], [teacher], ALL).check(NANO)
    same = plan([trace_of(5, family="f")], [teacher], ALL)
    assert same.smallest_lane is not None
    own = Teacher("t", "t", "http://127.0.0.1/v1", family="student", price=teacher.price)
    with pytest.raises(exits.NothingToDo, match="same_family 5"):
        plan([trace_of(5)], [own], ALL).check(NANO)


def test_a_lane_of_one_prompt_costs_the_same_in_order_and_alone() -> None:
    teacher = Teacher("t", "t", "http://127.0.0.1/v1", price=per_million("1", "2", "0.1"))
    cost = lane_cost([(1000, 0)], teacher, 100)
    assert cost.in_order == cost.uncached == 1_200_000


def test_a_full_disk_ends_the_run_with_a_clear_error_and_the_money_stays_counted(tmp_path: Path) -> None:
    server, path = TeacherServer(), tmp_path / "ledger.sqlite"
    with serving(server) as url:
        with Ledger(path, cap=NANO) as ledger:
            pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
            ledger._db.execute(f"PRAGMA max_page_count = {pages + 8}")
            with pytest.raises(OSError, match="disk is full"):
                list(collect([trace_of(200)], teachers_at(url), ledger, ALL, compare=compare, environ={}))
            ledger._db.execute("PRAGMA max_page_count = 100000")
        with Ledger(path) as ledger:
            money = ledger.budget()
            assert money.settled <= server.billed <= money.settled + money.ambiguous
