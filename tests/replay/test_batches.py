"""Batches cost half, fit every order, and are neither lost nor paid twice when a process dies."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.money import NANO
from composer_hub.records import Trace, Vote
from composer_hub.replay.collect import collect
from composer_hub.replay.fake import TeacherServer, oracle_of, serving
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ORDERS, ReplayOptions
from composer_hub.replay.providers import TeacherError
from composer_hub.replay.teachers import Teacher, find_teachers
from tests.replay import batch_run
from tests.replay.sample import compare, teachers_at, trace_of

ALL = ReplayOptions(order="all", audit=0, repeat=0)
TRACES = [trace_of(6, name=f"t{number}") for number in range(3)]


def voted(votes: Sequence[Vote]) -> dict[tuple[str, str, int], tuple[str, str]]:
    return {(vote.step_id, vote.teacher, vote.attempt): (vote.status, vote.normal_form) for vote in votes}


def asked(
    server: TeacherServer,
    ledger: Ledger,
    options: ReplayOptions,
    *,
    batch: bool = True,
    traces: Sequence[Trace] = TRACES,
) -> list[Vote]:
    with serving(server) as url:
        panel = teachers_at(url, **({"lane": "batch"} if batch else {}))
        return list(collect(traces, panel, ledger, options, compare=compare, environ={}))


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_gets_the_same_votes_from_batches_at_half_the_price(tmp_path: Path, order: str) -> None:
    options = ReplayOptions(order=order, audit=0.2, repeat=0.2)
    servers = [TeacherServer(oracle=oracle_of(TRACES), min_cached_tokens=10**9) for _ in range(2)]
    with Ledger(tmp_path / "live", cap=NANO) as live, Ledger(tmp_path / "batch", cap=NANO) as batch:
        assert voted(asked(servers[0], live, options, batch=False)) == voted(asked(servers[1], batch, options))
        assert batch.budget().settled == servers[1].billed
    assert servers[1].desk.batches
    assert not servers[0].desk.batches
    assert 0 < servers[1].billed <= servers[0].billed / 2


def test_lines_that_fail_and_batches_that_expire_are_asked_live(tmp_path: Path) -> None:
    server = TeacherServer(oracle=oracle_of(TRACES))
    # Of three batches one expires; of the others some lines fail.
    server.queued.extend(["expire", "", "", "", "500", "500", ""])
    with Ledger(tmp_path / "ledger", cap=NANO) as ledger:
        votes = asked(server, ledger, ALL)
        assert [vote.status for vote in votes] == ["voted"] * 54
        assert ledger.budget().settled == server.billed
        assert ledger.budget().ambiguous == ledger.budget().reserved == 0
    assert all(times == 1 for bill in server.bills.values() for times in bill.keys.values())


def test_a_batch_whose_creation_was_not_answered_is_found_by_its_name(tmp_path: Path) -> None:
    server = TeacherServer(oracle=oracle_of(TRACES))
    server.queued.append("lose")
    with Ledger(tmp_path / "ledger", cap=NANO) as ledger:
        assert len(asked(server, ledger, ALL)) == 54
        assert (ledger.budget().settled, ledger.budget().ambiguous) == (server.billed, 0)
    assert all(times == 1 for bill in server.bills.values() for times in bill.keys.values())


def test_a_cap_holds_for_batches(tmp_path: Path) -> None:
    server = TeacherServer(oracle=oracle_of(TRACES))
    with Ledger(tmp_path / "ledger", cap=NANO) as ledger:
        asked(server, ledger, ALL)
    cap = server.billed // 2
    again = TeacherServer(oracle=oracle_of(TRACES))
    with Ledger(tmp_path / "capped", cap=cap) as ledger:
        with pytest.raises(exits.Stopped, match="--change-cap"):
            asked(again, ledger, ALL)
        assert 0 < again.billed == ledger.budget().settled <= cap


def test_the_batch_of_a_killed_process_is_taken_and_never_paid_twice(tmp_path: Path) -> None:
    server = TeacherServer(oracle=oracle_of(batch_run.TRACES), batch_s=1.0)
    context = multiprocessing.get_context("spawn")
    with serving(server) as url:
        child = context.Process(target=batch_run.main, args=(url, str(tmp_path / "ledger")))
        child.start()
        while len(server.desk.batches) < 2:
            assert child.is_alive()
            time.sleep(0.01)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        with Ledger(tmp_path / "ledger", cap=NANO) as ledger:
            panel = teachers_at(url, batch_run.NAMES, lane="batch")
            votes = list(collect(batch_run.TRACES, panel, ledger, ALL, compare=compare, environ={}))
            assert [vote.status for vote in votes] == ["voted"] * len(votes) != []
            assert (ledger.budget().settled, ledger.budget().ambiguous) == (server.billed, 0)
    assert all(times == 1 for bill in server.bills.values() for times in bill.keys.values())


def test_an_endpoint_without_batches_is_named(tmp_path: Path) -> None:
    server = TeacherServer()
    with serving(server) as url, Ledger(tmp_path / "ledger", cap=NANO) as ledger:
        panel = [_moved(teacher) for teacher in teachers_at(url, lane="batch")]
        with pytest.raises(exits.Stopped, match=r"takes no batches\. Leave --batch"):
            list(collect(TRACES, panel, ledger, ALL, compare=compare, environ={}))
        assert ledger.budget().committed == 0 == server.billed


def _moved(teacher: Teacher) -> Teacher:
    return dataclasses.replace(teacher, base_url=teacher.base_url.replace("/v1", "/v2"))


def test_a_router_that_takes_no_batches_is_refused_at_once() -> None:
    with pytest.raises(TeacherError, match="openrouter takes no batches"):
        find_teachers(
            "openrouter:a/b", batch=True, given_prices=["b=1/2"], accepted=["b"],
            list_models=lambda url, key: [{"id": "a/b"}], environ={"OPENROUTER_API_KEY": "k"},
        )  # fmt: skip
