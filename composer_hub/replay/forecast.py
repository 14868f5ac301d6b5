"""What a run would cost and find under each order, and what is left of it; `run` starts from the same plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.money import cap_of, show_usd, to_usd
from composer_hub.pairs.policy import POLL_FILE, Poll
from composer_hub.pairs.votes import VOTES_FILE
from composer_hub.records import Trace
from composer_hub.replay.experience import learn, ranked
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import AUTO, ORDERS, ReplayOptions
from composer_hub.replay.planning import ReplayPlan, plan
from composer_hub.replay.teachers import Teacher

PILOT_STEPS = 2  # about which every teacher is asked first, to learn how long its answers are
PILOT_FROM = 200  # steps; for fewer, learning costs more than it saves


@dataclass(frozen=True, slots=True)
class Forecast:
    """The plan of a run, ready to print."""

    order: str  # that the run would take
    orders: list[dict[str, Any]]  # one row per order
    teachers: list[dict[str, Any]]  # one row per teacher, under that order
    left_usd: float  # expected, after what a run has paid for
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
    learn_from: Sequence[Path] = (),
) -> Forecast:
    """Return what a run would cost and find; nothing is sent. `folder` is a run that was begun."""
    cap = cap_of(max_usd)
    before, planned = prepare(traces, teachers, options or ReplayOptions(), folder, learn_from)
    planned.check(cap)
    planned, reason = decided(planned, cap, before)
    notes = [*planned.notes(cap), reason]
    if not before and needs_pilot(planned):
        notes.append(
            f"The run first asks every teacher about {PILOT_STEPS} steps, to learn how long its answers are. If that "
            "changes this plan, the run says so."
        )
    left = planned.expected
    if folder and before:
        left = round(planned.expected * _unanswered(planned, before))
        with Ledger(folder / VOTES_FILE) as ledger:
            notes.append(f"Left to pay: about {show_usd(left)}. So far: {ledger.budget()}.")
    rows = [planned.order(name).as_row(cap) for name in reversed(ORDERS)]
    return Forecast(planned.options.order, rows, planned.as_rows(), to_usd(left), tuple(notes))


def prepare(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    options: ReplayOptions,
    folder: Path | None = None,
    learn_from: Sequence[Path] = (),
) -> tuple[Poll | None, ReplayPlan]:
    """Return the poll of earlier runs in a folder, and the plan of the next run with all that is known."""
    before = Poll.read(folder) if folder and (folder / POLL_FILE).is_file() else None
    experience = learn([*([folder] if folder else []), *learn_from])
    # The order of the teachers stays that of the first run: another one would ask further questions.
    places = {name: place for place, name in enumerate(before.teachers if before else ())}
    panel = sorted(ranked(teachers, experience), key=lambda teacher: places.get(teacher.name, len(places)))
    return before, plan(traces, panel, options, experience=experience)


def decided(planned: ReplayPlan, cap: int, before: Poll | None) -> tuple[ReplayPlan, str]:
    """Return the plan with its order, if that was left open, and the reason for it."""
    names = ", ".join(teacher.name for teacher in planned.panel)
    if planned.options.order != AUTO:
        return planned, f"Order {planned.options.order}; teachers in turn: {names}."
    if before:
        order, reason = before.order, "as in the earlier runs of this folder"
    else:
        order, reason = planned.choose(cap)
    planned = dataclasses.replace(planned, options=dataclasses.replace(planned.options, order=order))
    return planned, f"Order {order}: {reason}. Teachers in turn: {names}."


def needs_pilot(planned: ReplayPlan) -> bool:
    """Return whether a new run should learn the lengths of answers before it begins."""
    unknown = not planned.experience.knows(planned.panel)
    return unknown and len(planned.panel) > 1 and planned.options.order != "all" and planned.num_steps >= PILOT_FROM


def _unanswered(planned: ReplayPlan, before: Poll) -> float:
    """Return the share of the steps that still have questions under this plan."""
    names = tuple(teacher.name for teacher in planned.panel)
    same = (before.order, before.teachers, before.policy) == (planned.options.order, names, planned.options.agreement)
    if not same or before.counts is None or not planned.num_steps:
        return 1.0
    return max(0.0, 1 - before.counts.num_answered / planned.num_steps)
