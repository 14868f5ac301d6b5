"""Lanes keep the cache warm, adapt to the teacher, share a cap with other processes, and stop without a loss."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import httpx

from composer_hub import exits
from composer_hub.money import NANO
from composer_hub.pairs.prompts import paired
from composer_hub.records import Vote
from composer_hub.replay.cascade import TraceRounds
from composer_hub.replay.client import ChatRequest, Client, connections
from composer_hub.replay.collecting import ReplayReport, collect
from composer_hub.replay.facts import Facts, Habits
from composer_hub.replay.fake import SCRIPTED, TeacherServer, listen, oracle_of, serving
from composer_hub.replay.lanes import Clock, ReplayProgress, Scheduler
from composer_hub.replay.ledger import CapReached, Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.planning import plan
from composer_hub.replay.pools import Lane, Pool
from composer_hub.replay.prompts import Prompts
from tests.quick import quick
from tests.replay.sample import compare, teachers_at, trace_of

ALL = ReplayOptions(order="all", audit=0, repeat=0)


def test_a_growing_trace_in_order_is_nine_tenths_cached_and_costs_a_quarter_of_asking_all_at_once_as_planned(
    tmp_path: Path,
) -> None:
    # The shape of an agent's trace: 2k tokens at first, 600 more per step.
    trace = trace_of(50, system="S" * 7500, growth=2200)
    # All calls of a gather are in flight before the first one ends and leaves its prefix in the cache.
    lanes = TeacherServer()
    gathered = TeacherServer([dataclasses.replace(teacher, latency_s=3.0) for teacher in SCRIPTED])
    with serving(lanes) as url, Ledger(tmp_path / "ledger.sqlite", cap=100 * NANO) as ledger:
        panel = teachers_at(url, cache_min_tokens=256)
        short = Facts({one.name: Habits(answers=1, output_tokens=40) for one in panel})
        planned = plan([trace], panel, ALL, facts=short)
        assert len(list(collect([trace], panel, ledger, ALL, compare=compare, environ={}))) == 150

    async def all_at_once(url: str) -> None:
        prompts = Prompts(trace)
        async with connections(panel := teachers_at(url, max_concurrency=50)):
            clients = [Client(teacher, "") for teacher in panel]
            chats = [paired(prompts.of(step).chat) for step in trace.steps]
            await asyncio.gather(
                *(client.ask(ChatRequest(chat, prompts.tools, "all")) for client in clients for chat in chats)
            )
            for client in clients:
                await client.close()

    with serving(gathered) as url:
        asyncio.run(all_at_once(url))
    for part in planned.teachers:
        bill = lanes.bills[part.teacher.name]
        assert bill.cached_tokens / bill.prompt_tokens >= 0.9
        assert part.in_order == pytest.approx(bill.cost, rel=0.2)
        assert part.in_order < part.uncached < part.worst
    assert {bill.calls for bill in gathered.bills.values()} == {50}
    assert lanes.billed <= gathered.billed / 4


def test_without_a_session_field_a_lane_loses_its_cache_behind_a_router(tmp_path: Path) -> None:
    shares = []
    for cache_key in ("session_id", ""):
        server = TeacherServer(backends=8)
        with serving(server) as url, Ledger(tmp_path / f"{cache_key}.sqlite", cap=NANO) as ledger:
            panel = teachers_at(url, ["small"], cache_key=cache_key)
            list(collect([trace_of(12, growth=1500)], panel, ledger, ALL, compare=compare, environ={}))
        bill = server.bills["small"]
        shares.append(bill.cached_tokens / bill.prompt_tokens)
    assert shares[0] > 0.7
    assert shares[1] < 0.3


def test_warm_lanes_come_first_then_cold_ones_then_new_ones() -> None:
    teacher = Client.__new__(Client)
    pool = Pool(None, teacher)  # type: ignore[arg-type]
    trace_run = TraceRounds(trace_of(1), [], ALL, compare)
    warm = {"new": 0.0, "soon_cold": 110.0, "warm": 200.0, "cold": 90.0, "goes_cold_meanwhile": 105.0}
    for number, (name, warm_until) in enumerate(warm.items()):
        lane = Lane(trace_run, None, [], number, warm_until=warm_until)  # type: ignore[arg-type]
        lane.last_length = list(warm).index(name)
        pool.push(lane, now=100.0)
    order = [list(warm)[pool.pop(107.0).last_length] for _ in warm]  # type: ignore[union-attr]
    assert order == ["soon_cold", "warm", "cold", "goes_cold_meanwhile", "new"]


def test_a_burst_of_refusals_shrinks_the_limit_once_and_a_burst_of_failures_counts_once() -> None:
    client = Client.__new__(Client)
    pool = Pool(type("T", (), {"max_concurrency": 16})(), client)  # type: ignore[arg-type]
    for _ in range(50):
        pool.grew()
    assert pool.limit == 16
    for _ in range(8):
        pool.cut(sent=1.0, now=2.0)
    assert 10 < pool.limit < 11
    pool.cut(sent=3.0, now=4.0)
    assert pool.limit < 8
    before = pool.limit
    pool.grew()
    assert 0 < pool.limit - before < 0.2
    for _ in range(200):
        pool.failed(sent=1.0, now=2.0)  # calls that fail together count once
    pool.failed(sent=2.5, now=3.0)
    assert pool.failures == 2


def test_a_run_stops_below_its_cap_and_continues_when_the_cap_is_raised(tmp_path: Path) -> None:
    server, path = TeacherServer(), tmp_path / "ledger.sqlite"
    traces = [trace_of(8, name=f"t{number}") for number in range(4)]
    with serving(server) as url:
        panel = teachers_at(url)
        with Ledger(path, cap=NANO // 20) as ledger, pytest.raises(exits.Stopped, match="--change-cap"):
            list(collect(traces, panel, ledger, ALL, compare=compare, environ={}))
        assert 0 < server.billed <= NANO // 20
        before = sum(bill.calls for bill in server.bills.values())
        with Ledger(path, cap=10 * NANO, change_cap=True) as ledger:
            votes = list(collect(traces, panel, ledger, ALL, compare=compare, environ={}))
        assert len(votes) == len({vote.vote_id for vote in votes}) == 4 * 8 * 3
        assert 0 < before < sum(bill.calls for bill in server.bills.values()) == 4 * 8 * 3


@pytest.mark.parametrize("order", quick(1, ["sequential", "cascade"]))
def test_under_a_cap_traces_are_finished_one_after_the_other_and_the_pairs_are_worth_the_money(
    tmp_path: Path, order: str
) -> None:
    traces = [trace_of(8, name=f"t{number}") for number in range(10)]
    wrong = {key: [{"name": "bash", "arguments": {"command": "make"}}] for key in oracle_of(traces)}
    options = ReplayOptions(order=order, audit=0, repeat=0)

    def pairs(folder: str, cap: int) -> tuple[int, int]:
        server = TeacherServer(oracle=wrong)
        report = ReplayReport()
        with serving(server) as url, Ledger(tmp_path / f"{folder}.sqlite", cap=cap) as ledger:
            panel = teachers_at(url)
            short = Facts({one.name: Habits(answers=1, output_tokens=40) for one in panel})
            planned = plan(traces, panel, options, facts=short)
            with contextlib.suppress(exits.Stopped):
                list(collect(traces, panel, ledger, options, compare=compare, planned=planned, report=report))
            assert ledger.budget().settled == server.billed <= cap
        return report.tally.num_pairs, server.billed

    all_pairs, bill = pairs("full", NANO)
    for share in (0.3, 0.6):
        some, spent = pairs(f"part{share}", int(share * bill))
        assert some >= share * all_pairs
        assert spent <= share * bill


def test_a_trace_that_the_cap_cannot_finish_waits_for_the_others_and_gets_what_they_leave(tmp_path: Path) -> None:
    traces = [trace_of(60, name="long"), *(trace_of(8, name=f"t{number}") for number in range(4))]
    server, votes = TeacherServer(), list[Vote]()
    with serving(server) as url:
        panel = teachers_at(url)
        short = Facts({one.name: Habits(answers=1, output_tokens=40) for one in panel})
        planned = plan(traces, panel, ALL, facts=short)
        whole = [planned.estimate(TraceRounds(trace, panel, ALL, compare)).cost for trace in traces]
        cap = round(1.5 * sum(whole[1:]))
        assert sum(whole[1:]) < cap < whole[0]
        with Ledger(tmp_path / "ledger.sqlite", cap=cap) as ledger:
            with pytest.raises(exits.Stopped, match="--change-cap"):
                votes.extend(collect(traces, panel, ledger, ALL, compare=compare, environ={}, planned=planned))
            assert server.billed == ledger.budget().settled
    num_votes = Counter(vote.trace_id for vote in votes)
    assert [num_votes[f"t{number}"] for number in range(4)] == [24] * 4
    assert 0 < num_votes["long"] < 180


def test_two_runs_on_one_ledger_share_its_cap_and_pay_for_nothing_twice(tmp_path: Path) -> None:
    server = TeacherServer()
    traces = [trace_of(6, name=f"t{number}") for number in range(4)]

    def gather(number: int, url: str) -> list:
        with Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
            return list(collect(traces, teachers_at(url), ledger, ALL, compare=compare, environ={}))

    async def both(url: str) -> list[list]:
        return await asyncio.gather(*(asyncio.to_thread(gather, number, url) for number in range(2)))

    with serving(server) as url:
        one, two = asyncio.run(both(url))
    assert {vote.vote_id: vote for vote in one} == {vote.vote_id: vote for vote in two}
    assert sum(bill.calls for bill in server.bills.values()) == len(one) == 4 * 6 * 3


@contextlib.contextmanager
def obeyed(number: int) -> Iterator[None]:
    """Obey a signal that a shell has told its background jobs to ignore."""
    before = signal.signal(number, signal.SIG_DFL)
    yield
    signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, *exits.END_SIGNALS])
@pytest.mark.parametrize("presses", [1, 2], ids=["once", "twice"])
def test_a_signal_waits_for_the_calls_in_flight_and_a_second_one_leaves_them_ambiguous(
    tmp_path: Path, presses: int, number: int
) -> None:
    path = tmp_path / "ledger.sqlite"
    # The late teacher's calls are still in flight when the fifth and sixth calls of the others are settled.
    *quick, late = SCRIPTED
    server = TeacherServer([*quick, dataclasses.replace(late, latency_s=1.0)])
    server.queued.extend(["slow"] * 1000)

    def press(progress: ReplayProgress) -> None:
        if progress.num_asked in range(5, 5 + presses):
            os.kill(os.getpid(), number)

    traces = [trace_of(8, name=f"t{one}") for one in range(4)]
    with serving(server) as url, obeyed(number):
        with Ledger(path, cap=NANO) as ledger, pytest.raises(exits.Interrupted, match="continues from here"):
            list(collect(traces, teachers_at(url), ledger, ALL, compare=compare, on_progress=press, environ={}))
        with Ledger(path) as ledger:
            money = ledger.budget()
            assert money.reserved == 0
            assert money.settled <= server.billed <= money.settled + money.ambiguous
            assert (money.ambiguous > 0) == (presses == 2)
            server.queued.clear()
            server.teachers[late.name] = late
            votes = list(collect(traces, teachers_at(url), ledger, ALL, compare=compare, environ={}))
    assert len(votes) == 4 * 8 * 3


def test_only_a_few_of_many_traces_are_in_memory(tmp_path: Path) -> None:
    opened = finished = most = 0

    def stream(panel: list):  # type: ignore[no-untyped-def]
        nonlocal opened, most
        for number in range(60):
            opened += 1
            most = max(most, opened - finished)
            yield TraceRounds(trace_of(2, name=f"t{number}"), panel, ALL, compare)

    async def play(url: str) -> None:
        nonlocal finished
        panel = teachers_at(url, ["small"], max_concurrency=8)
        async with connections(panel):
            client = Client(panel[0], "")
            with Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
                async for _ in Scheduler({"small": client}, ledger).run(stream(panel)):
                    finished += 1
            await client.close()

    with serving(TeacherServer()) as url:
        asyncio.run(play(url))
    assert finished == 60
    assert most <= 34


def test_a_call_that_the_cap_refuses_ends_its_lane_only(tmp_path: Path) -> None:
    server, dear = TeacherServer(), dataclasses.replace(ALL)
    with serving(server) as url, Ledger(tmp_path / "ledger.sqlite", cap=NANO // 100) as ledger:
        panel = teachers_at(url, max_tokens=1000)
        with pytest.raises(CapReached):
            list(collect([trace_of(6)], panel, ledger, dear, compare=compare, environ={}))
    # One answer of the dearest teacher may cost more than the cap, and the cheapest takes a fiftieth.
    assert server.bills["large"].calls == 0
    assert server.bills["small"].calls == 6


def test_embedded_teachers_forget_prefixes_that_have_expired() -> None:
    now = 0.0
    server = TeacherServer(clock=lambda: now)
    with serving(server) as url:
        for number in range(20):
            first = {"role": "user", "content": str(number % 10)}
            body = {"model": "small", "messages": [first, {"role": "user", "content": str(number)}]}
            httpx.post(f"{url}/chat/completions", json=body, timeout=60).raise_for_status()
            now += 100.0
    assert sum(map(len, server._caches.values())) <= 2 * 3  # those of the last 300 seconds


def test_a_server_that_is_away_is_waited_for_and_costs_nothing(tmp_path: Path) -> None:
    listener = listen()
    port = listener.getsockname()[1]
    moments: list[float] = []
    notes: list[str] = []

    async def sleep(seconds: float) -> None:
        moments.append(seconds)
        await asyncio.sleep(0)

    now = itertools.count(step=0.5)
    clock = Clock(monotonic=lambda: float(next(now)), sleep=sleep)
    with serving(TeacherServer()) as url:
        (small,) = teachers_at(url, ["small"])
    listener.close()
    panel = [dataclasses.replace(small, base_url=f"http://127.0.0.1:{port}/v1")]
    options = dataclasses.replace(ALL, patience_s=120)
    with Ledger(tmp_path / "ledger.sqlite", cap=NANO) as ledger:
        with pytest.raises(exits.Stopped, match=rf"small \(http://127\.0\.0\.1:{port}/v1\) could not be reached"):
            list(collect([trace_of(2)], panel, ledger, options, compare=compare, clock=clock, on_note=notes.append))
        assert ledger.budget().committed == 0
    assert f"{port}/v1) cannot be reached; waiting for it, up to 2.0 min" in notes[0]
    assert max(moments) > 10
