"""Forecast the cost and pairs of a run under each order, and the rest of a run that has begun.

`run` starts from the same plan.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.money import cap_of, show_usd, to_usd
from composer_hub.pairs.policy import PolicyError, Poll
from composer_hub.pairs.votes import VOTES_FILE
from composer_hub.records import Trace
from composer_hub.replay.cascade import TraceRounds, outcome_of
from composer_hub.replay.comparison import by_normal_form
from composer_hub.replay.facts import Facts, Habits, Places, pilot_places, traces_of
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import AUTO, ORDERS, ReplayOptions
from composer_hub.replay.planning import ReplayPlan, plan
from composer_hub.replay.prompts import Counted
from composer_hub.replay.teachers import Teacher


@dataclass(frozen=True, slots=True)
class Forecast:
    """The plan of a run, ready to print."""

    order: str
    orders: list[dict[str, Any]]  # one row per order
    teachers: list[dict[str, Any]]  # one row per teacher, under that order
    left_usd: float | None  # expected, after what a run has paid for; None if that is unknown
    notes: tuple[str, ...]

    def as_row(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def forecast(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    options: ReplayOptions | None = None,
    *,
    max_usd: float,
    folder: Path | None = None,
) -> Forecast:
    """Return the expected cost and pairs of a run, perhaps begun by a pilot in `folder`; nothing is sent."""
    cap = cap_of(max_usd)
    _, planned = prepare(traces, teachers, options or ReplayOptions(), folder)
    planned.check(cap)
    notes = [*planned.notes(cap), order_note(planned)]
    expected = round(planned.order(planned.options.order).cost)
    left = expected if planned.is_known else None
    if folder and (folder / VOTES_FILE).is_file():
        with Ledger(folder / VOTES_FILE) as ledger:
            money = ledger.budget()
        if left is not None:
            left = max(0, expected - money.settled)
            notes.append(f"Left to pay: about {show_usd(left)}. So far: {money}.")
    rows = [planned.order(name).as_row(cap) for name in (AUTO, *reversed(ORDERS))]
    return Forecast(
        planned.options.order, rows, planned.as_rows(), None if left is None else to_usd(left), tuple(notes)
    )


def prepare(
    traces: Iterable[Trace], teachers: Sequence[Teacher], options: ReplayOptions, folder: Path | None = None
) -> tuple[Poll | None, ReplayPlan]:
    """Return the poll of earlier runs in a folder, and the plan of the next run with all that is known."""
    before = None
    if folder:
        with contextlib.suppress(PolicyError):  # missing or damaged: the run writes another
            before = Poll.read(folder)
    if before and before.counts and options.max_usd_per_pair is None:
        # A run keeps its limit, so that the same command again asks nothing new.
        options = dataclasses.replace(options, max_usd_per_pair=before.max_usd_per_pair)
    unknown = plan(traces, _ranked(teachers, Facts(), before), options)
    if not folder or not before or not before.pilot:
        return before, unknown
    return before, by_pilot(traces, unknown, pilot_places(unknown.askable, before.pilot), folder, before)


def by_pilot(
    traces: Iterable[Trace], unknown: ReplayPlan, pilot: Places, folder: Path, before: Poll | None = None
) -> ReplayPlan:
    """Return a plan by the answers to the steps of a pilot."""
    asked = dataclasses.replace(unknown, pilot=pilot)
    with Ledger(folder / VOTES_FILE) as ledger:
        facts = _learned((asked.rounds(trace, by_normal_form) for trace in traces_of(traces, pilot)), ledger)
    panel = _ranked(unknown.panel, facts, before)
    return plan(traces, panel, unknown.options, facts=facts, pilot=pilot)


def order_note(planned: ReplayPlan) -> str:
    """Return the order of asking in a sentence."""
    names = ", ".join(teacher.name for teacher in planned.panel)
    return f"Order {planned.options.order}; teachers in turn: {names}."


def _ranked(teachers: Iterable[Teacher], facts: Facts, before: Poll | None) -> list[Teacher]:
    """Return the teachers by the cost of a typical step with answers of their usual length.

    Once a run has begun they keep their places: another order would ask further questions.
    """
    places = {name: place for place, name in enumerate(before.teachers if before and before.counts else ())}
    return sorted(teachers, key=lambda one: (
        places.get(one.name, len(places)),
        one.price.typical(min(one.max_tokens, facts.of(one.name).mean_output)),
        one.name,
    ))  # fmt: skip


def _learned(rounds: Iterable[TraceRounds], ledger: Ledger) -> Facts:
    """Read the stored answers to the steps that some rounds ask of every teacher."""
    facts = Facts()
    for one in rounds:
        one.keep_full()
        before: dict[str, Counted] = {}
        for teacher, ask, question in one.questions():
            if (stored := ledger.lookup(question.key)) is None:
                continue
            facts.spent[teacher.name] = facts.spent.get(teacher.name, 0) + stored.cost
            outcome = outcome_of(stored, teacher, one.known_tools)
            one.record(teacher.name, ask, outcome)
            if outcome.answer and outcome.answer.counted.prompt_tokens:
                prompt = one.prompt_of(ask)
                habits = facts.habits.setdefault(teacher.name, Habits())
                habits.add(outcome.answer, teacher, prompt, None if ask.judged else before.get(teacher.name))
                before[teacher.name] = Counted(prompt.positions, outcome.answer.counted.prompt_tokens)
        facts.lines += one.tally().full
    return facts
