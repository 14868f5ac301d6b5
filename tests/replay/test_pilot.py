"""A pilot asks every teacher about a few steps, its answers are bought once, and the plan follows from them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.money import NANO
from composer_hub.pairs.consensus import build_pairs
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.votes import RecordedVotes
from composer_hub.records import Trace, stable_share
from composer_hub.replay import ORDERS, ReplayOptions, ReplaySummary, fake, forecast, pilot, run
from composer_hub.replay.facts import Facts, pilot_places
from composer_hub.replay.prices import per_million
from composer_hub.replay.teachers import Teacher
from composer_hub.replay.worth import after
from tests.quick import quick
from tests.replay.sample import teachers_at, trace_of


def traces_of(num_traces: int, num_steps: int = 20) -> list[Trace]:
    return [trace_of(num_steps, name=f"t{number}", system="S" * 4000, growth=900) for number in range(num_traces)]


def server_of(traces: Sequence[Trace], share: float = 0.4) -> fake.TeacherServer:
    """Return three teachers with different prices, who know better at a share of the steps."""
    oracle = dict(fake.oracle_of(traces))
    for key in list(oracle):
        if stable_share(f"student {key}") < share:
            oracle[key] = [{"name": "bash", "arguments": {"command": f"make fix-{key[:8]}"}}]
    return fake.TeacherServer(oracle=oracle)


@contextlib.contextmanager
def serving_panel(server: fake.TeacherServer, **settings: int) -> Iterator[list[Teacher]]:
    with fake.serving(server) as url:
        yield teachers_at(url, **settings)


def pairs_in(folder: Path, traces: Sequence[Trace]) -> int:
    votes = RecordedVotes(folder)
    return sum(len(build_pairs(trace, votes.of(trace.trace_id))[0]) for trace in traces)


def test_the_steps_of_a_pilot_lie_at_equal_distances_over_all_steps() -> None:
    chosen = pilot_places({"a": 100, "b": 10, "c": 100, "d": 1}, 20)
    assert sum(map(len, chosen.values())) == 20
    assert len(chosen["a"]) == len(chosen["c"]) == 10
    assert all(0 <= place < 100 for found in chosen.values() for place in found)
    assert min(chosen["a"]) < 20
    assert max(chosen["c"]) > 80
    assert pilot_places({"a": 3, "b": 2}, 20) == {"a": frozenset({0, 1, 2}), "b": frozenset({0, 1})}
    assert pilot_places({}, 20) == {}


@pytest.mark.parametrize("order", quick(1, ["auto", *ORDERS]))
def test_after_a_pilot_the_bill_and_the_pairs_are_in_the_planned_range_and_no_answer_is_bought_twice(
    order: str, tmp_path: Path
) -> None:
    traces = traces_of(8)
    server, options = server_of(traces), ReplayOptions(order)
    with serving_panel(server) as teachers:
        made = pilot(traces, teachers, tmp_path / "run", options, max_usd=100, environ={})
        paid = server.billed
        assert made.stopped is None
        assert len(made.answers) == 20
        assert len({row["trace"] for row in made.answers}) == 8
        assert all(len(row["answers"]) == 3 and row["student"] for row in made.answers)
        assert made.budget.settled == paid == pytest.approx(sum(row["usd"] for row in made.answers) * NANO, rel=1e-3)
        planned = {row["order"]: row for row in made.forecast.orders}[order]
        server.cool_down()
        summary = run(traces, teachers, tmp_path / "run", options, max_usd=100, environ={})
        again = forecast(traces, teachers, options, max_usd=100, folder=tmp_path / "run")
        same = pilot(traces, teachers, tmp_path / "run", options, max_usd=100, environ={})
    assert same.cost == made.cost == paid < same.budget.settled
    assert summary.budget.settled == server.billed
    assert {times for bill in server.bills.values() for times in bill.keys.values()} <= {1, 2}  # 2: asked twice
    assert planned["expected_usd"] * NANO == pytest.approx(server.billed, rel=0.2)
    assert planned["pairs_range"][0] <= pairs_in(tmp_path / "run", traces) <= planned["pairs_range"][1]
    # The plan of the same folder knows the same answers.
    assert {row["order"]: row for row in again.orders}[order] == planned
    assert again.left_usd is not None
    assert again.left_usd < made.forecast.left_usd or not made.forecast.left_usd


def test_without_a_pilot_a_plan_bounds_what_it_cannot_know_and_says_why(tmp_path: Path) -> None:
    traces = traces_of(3)
    server = server_of(traces)
    with serving_panel(server) as teachers:
        planned = forecast(traces, teachers, ReplayOptions("auto"), max_usd=100)
        run(traces, teachers, tmp_path / "run", ReplayOptions("cascade"), max_usd=100, environ={})
    for row in planned.orders:
        assert row["expected_usd"] is row["expected_pairs"] is None
        assert row["usd_range"][0] < row["usd_range"][1]
    cascade = {row["order"]: row for row in planned.orders}["cascade"]
    assert cascade["usd_range"][0] <= server.billed / NANO <= cascade["usd_range"][1]
    assert planned.left_usd is None
    assert any("--pilot" in note and "unknown until they are asked" in note for note in planned.notes)


def test_teachers_are_ranked_by_what_their_answers_cost_in_the_pilot(tmp_path: Path) -> None:
    wordy, brief = (
        dataclasses.replace(fake.SCRIPTED[number], price=per_million("0.1", price, "0.01"), answer_tokens=tokens)
        for number, price, tokens in ((0, 10, 190), (1, 12, 10))
    )
    traces, notes = traces_of(2), list[str]()
    with fake.serving(fake.TeacherServer([wordy, brief])) as url:
        teachers = teachers_at(url, [wordy.name, brief.name])
        before = forecast(traces, teachers, max_usd=10).notes
        pilot(traces, teachers, tmp_path / "run", max_usd=10, environ={})
        run(traces, teachers, tmp_path / "run", max_usd=10, environ={}, on_note=notes.append)
        run(traces, teachers, tmp_path / "run", max_usd=10, environ={}, on_note=notes.append)
    assert before[-1].endswith("teachers in turn: small, medium.")
    assert [note for note in notes if "in turn" in note] == ["Order cascade; teachers in turn: medium, small."] * 2


def test_a_pilot_that_the_cap_stops_says_so_and_continues(tmp_path: Path) -> None:
    traces = traces_of(4)
    server = server_of(traces)
    with serving_panel(server) as teachers:
        poor = pilot(traces, teachers, tmp_path / "run", max_usd=0.2, environ={})
        assert isinstance(poor.stopped, exits.Stopped)
        assert server.billed <= 0.2 * NANO
        rich = pilot(traces, teachers, tmp_path / "run", max_usd=5, change_cap=True, environ={})
    assert rich.stopped is None
    assert len(rich.answers) == 20
    assert {times for bill in server.bills.values() for times in bill.keys.values()} == {1}


def test_the_chance_of_a_pair_follows_from_the_answers_of_the_pilot() -> None:
    lines = Counter({(("a", "b", "c"), codes): count for codes, count in {
        (-1, -1, -1): 12, (-1, 1, 1): 2, (1, 1, 1): 4, (1, 2, 1): 2,
    }.items()})  # fmt: skip
    known = Facts(lines=lines).lines_of(["a", "b", "c"])
    assert after(known, (), Policy()) == (8.5 / 21, [1.0, 1.0, pytest.approx(4 / 20)])
    assert after(known, (-1,), Policy()) == (2 / 14, [1.0, pytest.approx(2 / 14)])
    assert after(known, (1, 2), Policy()) == (2.5 / 3, [1.0])
    assert after(known, (0,), Policy())[0] == 0.5
    assert after(known, (-1, 0), Policy())[0] == 0


# ------------------------------------------------------------------------------------------------------------- auto


def played(
    traces: Sequence[Trace], folder: Path, options: ReplayOptions, **settings: int
) -> tuple[ReplaySummary, int, list[str]]:
    server, notes = server_of(traces), list[str]()
    with serving_panel(server, **settings) as teachers:
        summary = run(traces, teachers, folder, options, max_usd=100, environ={}, on_note=notes.append)
    assert summary.budget.settled == server.billed
    return summary, pairs_in(folder, traces), notes


def test_auto_leaves_pairs_that_cost_more_than_the_named_price_and_says_so(tmp_path: Path) -> None:
    traces = traces_of(6)
    prices = (0.0001, 0.02, 0.05, 100.0)
    runs = [
        played(traces, tmp_path / str(price), ReplayOptions("auto", audit=0, repeat=0, max_usd_per_pair=price))
        for price in prices
    ]
    spent, found = [summary.budget.settled for summary, _, _ in runs], [pairs for _, pairs, _ in runs]
    assert spent == sorted(spent)
    assert found == sorted(found)
    assert spent[0] == 0
    assert found[-1] > found[1] > 0
    summary, _, notes = runs[1]
    assert summary.as_row()["too_dear_steps"] > 0
    assert any("steps were left where a pair would have cost more than about $0.02" in note for note in notes)


def test_auto_takes_the_price_from_the_pairs_so_far(tmp_path: Path) -> None:
    """The prompts of the last trace are fifty times longer, so that its pairs are too dear."""
    cheap, dear = traces_of(9, 6), trace_of(20, name="dear", system="S" * 400_000)
    options = ReplayOptions("auto", audit=0, repeat=0)
    # One call at a time, so that the last trace begins when the others have shown their price.
    summary, _, notes = played([*cheap, dear], tmp_path / "auto", options, max_concurrency=1)
    assert summary.tally.num_too_dear >= 20
    assert any("5 times the median so far" in note for note in notes)
    assert not any(vote.status == "voted" for vote in RecordedVotes(tmp_path / "auto").of("dear"))


def test_four_teachers_give_the_same_pairs_in_every_order_and_a_run_says_how_many_must_agree(tmp_path: Path) -> None:
    traces = traces_of(4)
    panel = [dataclasses.replace(fake.SCRIPTED[0], name=f"t{number}", family=f"f{number}") for number in range(4)]
    oracle, found = server_of(traces).oracle, {}
    for order in ("all", "sequential", "cascade"):
        notes = list[str]()
        with fake.serving(fake.TeacherServer(panel, oracle=oracle)) as url:
            teachers = teachers_at(url, [one.name for one in panel])
            options = ReplayOptions(order, audit=0, repeat=0)
            run(traces, teachers, tmp_path / order, options, max_usd=100, environ={}, on_note=notes.append)
        assert any("Of 4 teachers 3 must agree, whatever the order" in note for note in notes)
        votes = RecordedVotes(tmp_path / order)
        found[order] = {pair.pair_id for trace in traces for pair in build_pairs(trace, votes.of(trace.trace_id))[0]}
    assert found["all"] == found["sequential"] >= found["cascade"] > set()
