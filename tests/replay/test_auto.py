"""`auto` takes the order with the cheaper pairs: no other order gives as many for less, as planned and as billed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from composer_hub.money import NANO
from composer_hub.pairs.consensus import build_pairs
from composer_hub.pairs.votes import RecordedVotes
from composer_hub.records import Trace, stable_share
from composer_hub.replay import ORDERS, ReplayOptions, ReplaySummary, fake, forecast, plan, run
from composer_hub.replay.experience import Experience
from composer_hub.replay.orders import Codes
from composer_hub.replay.planning import OrderPlan, ReplayPlan
from composer_hub.replay.prices import per_million
from composer_hub.replay.teachers import Teacher
from tests.replay.sample import teachers_at, trace_of

TOLERANCE = 0.15  # of the cap: whether the last trace still fits depends on the timing of lanes
PRICES = ((1, 1, 1), (1, 2, 4), (0, 1, 1), (0, 0, 0), (1, 3), (1, 1, 2, 6))
WORLDS = {
    "nothing": {},
    "usual": {(-1,): 60.0, (1, 1): 20.0, (1, 2, 1): 10.0, (1, -2): 10.0},
    # The first teacher repeats the student wherever the others know better.
    "misled": {(-1, 1, 1, 1): 100.0, (1, 1): 40.0, (-1, -1, -1, -1): 40.0},
    "no_pairs": {(-1, -1, -1, -1): 200.0},
}


def plan_of(prices: Sequence[int], seen: dict[Codes, float]) -> ReplayPlan:
    names = [f"t{number}" for number in range(len(prices))]
    teachers = [
        Teacher(name, name, "http://127.0.0.1/v1", family=name, price=per_million(price, 4 * price, price / 10))
        for name, price in zip(names, prices, strict=True)
    ]
    lines = Counter({(tuple(names), codes[: len(names)]): int(count) for codes, count in seen.items()})
    return plan([trace_of(25)], teachers, ReplayOptions("auto"), experience=Experience(codes=lines))


def spent(order: OrderPlan, cap: int) -> float:
    return min(order.cost[0], cap)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("prices", PRICES, ids=str)
def test_no_order_is_planned_to_give_as_many_pairs_for_less(prices: tuple[int, ...], world: str) -> None:
    planned = plan_of(prices, WORLDS[world])
    orders = {name: planned.order(name) for name in ORDERS}
    dearest = max(order.cost[0] for order in orders.values())
    for share in (0.01, 0.1, 0.3, 0.5, 0.6, 0.8, 1.0, 2.0):
        cap = round(share * dearest)
        name, reason = planned.choose(cap)
        chosen = orders[name]
        assert reason
        for other in orders.values():
            # Sums of chances differ in their last bits.
            fewer = chosen.under(cap) <= other.under(cap) + 1e-9
            assert not (fewer and spent(chosen, cap) > spent(other, cap) * (1 + 1e-9)), (share, name, other.order)


def test_the_dearer_order_is_taken_only_if_its_further_pairs_are_known_to_be_worth_it() -> None:
    equal = (1, 1, 1)
    cap = 100 * NANO
    assert plan_of(equal, {}).choose(cap)[0] == "cascade"  # how many more it would find is a guess
    assert plan_of(equal, WORLDS["usual"]).choose(cap)[0] == "cascade"
    found, reason = plan_of(equal, WORLDS["misled"]).choose(cap)
    assert found == "sequential", reason
    assert plan_of((1, 10, 100), WORLDS["misled"]).choose(cap)[0] == "cascade"


# ---------------------------------------------------------------------------------------------------- against the bill


def traces_of(kind: str) -> list[Trace]:
    """Return traces that grow, with a student who is wrong at some steps."""
    if kind == "equal":
        return [trace_of(4, name=f"e{number}", system="S" * 4000, growth=900) for number in range(8)]
    return [trace_of(2 + 2 * number, name=f"m{number}", growth=200 * (number + 1)) for number in range(6)]


def server_of(traces: Sequence[Trace]) -> fake.TeacherServer:
    """Return three teachers with different prices, who know better at two of five steps."""
    oracle = dict(fake.oracle_of(traces))
    for key in list(oracle):
        if stable_share(f"student {key}") < 0.4:
            oracle[key] = [{"name": "bash", "arguments": {"command": f"make fix-{key[:8]}"}}]
    return fake.TeacherServer(oracle=oracle)


def replayed(traces: Sequence[Trace], order: str, usd: float, folder: Path) -> tuple[ReplaySummary, int]:
    server = server_of(traces)
    with fake.serving(server) as url:
        announced = forecast(traces, teachers_at(url), ReplayOptions(order), max_usd=usd).order
        summary = run(traces, teachers_at(url), folder, ReplayOptions(order), max_usd=usd, environ={})
    assert summary.budget.settled == server.billed
    assert (summary.planned_order, summary.order) == (announced, announced)
    votes = RecordedVotes(folder)
    return summary, sum(len(build_pairs(trace, votes.of(trace.trace_id))[0]) for trace in traces)


@pytest.mark.parametrize("kind", ["equal", "mixed"])
def test_auto_never_pays_more_than_another_order_for_as_many_pairs(kind: str, tmp_path: Path) -> None:
    traces = traces_of(kind)
    full = replayed(traces, "all", 100, tmp_path / "full")[0].budget.settled
    for share in (0.1, 0.3, 0.6, None):
        cap = 100 * NANO if share is None else round(share * full)
        bills = {}
        for order in (*ORDERS, "auto"):
            summary, pairs = replayed(traces, order, cap / NANO, tmp_path / f"{order}-{share}")
            assert summary.budget.settled <= cap
            bills[order] = (summary.budget.settled, pairs)
        paid, pairs = bills["auto"]
        for order in ORDERS:
            other_paid, other_pairs = bills[order]
            assert not (other_pairs >= pairs and paid > other_paid + TOLERANCE * min(cap, full)), (share, bills)


@pytest.mark.parametrize("order", ["auto", "cascade"])
def test_a_plan_that_changes_after_the_first_steps_says_so(order: str, tmp_path: Path) -> None:
    """A teacher with long answers comes later than its price says, once every teacher was asked about two steps."""
    traces, notes = [trace_of(70, name=f"t{number}", growth=20) for number in range(3)], list[str]()
    wordy, brief = (
        dataclasses.replace(fake.SCRIPTED[number], price=per_million("0.1", price, "0.01"), answer_tokens=tokens)
        for number, price, tokens in ((0, 10, 190), (1, 12, 10))
    )
    with fake.serving(fake.TeacherServer([wordy, brief])) as url:
        panel, options = teachers_at(url, [wordy.name, brief.name]), ReplayOptions(order)
        announced = forecast(traces, panel, options, max_usd=10)
        summary = run(traces, panel, tmp_path / "run", options, max_usd=10, environ={}, on_note=notes.append)
        again = run(traces, panel, tmp_path / "run", options, max_usd=10, environ={}, on_note=notes.append)
    assert any("first asks every teacher about 2 steps" in note for note in announced.notes)
    assert any(note.lower().endswith("teachers in turn: small, medium.") for note in announced.notes)
    assert summary.planned_order == announced.order == summary.order == "cascade"
    now, before = summary.order_reason.split(" Before the first 2 steps, ")
    assert now.lower().endswith("teachers in turn: medium, small.")
    assert before == "the plan was order cascade; teachers in turn: small, medium."
    assert notes[0] == summary.order_reason == summary.as_row()["order_reason"]
    assert "Before the first" not in again.order_reason
    assert again.order_reason.lower().endswith("teachers in turn: medium, small.")
