"""What `replay plan` prints: what each order would cost and find under a cap, and what is left of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.money import cap_of, show_usd, to_usd
from composer_hub.pairs.policy import Poll
from composer_hub.records import Trace
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ORDERS, ReplayOptions
from composer_hub.replay.planning import ReplayPlan
from composer_hub.replay.runs import LEDGER_FILE, decided, prepare
from composer_hub.replay.teachers import Teacher


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
    left = planned.expected
    if folder and before:
        left = round(planned.expected * _unanswered(planned, before))
        with Ledger(folder / LEDGER_FILE) as ledger:
            notes.append(f"Left to pay: about {show_usd(left)}. So far: {ledger.budget()}.")
    rows = [planned.order(name).as_row(cap) for name in reversed(ORDERS)]
    return Forecast(planned.options.order, rows, planned.as_rows(), to_usd(left), tuple(notes))


def _unanswered(planned: ReplayPlan, before: Poll) -> float:
    """Return the share of the steps that still have questions under this plan."""
    names = tuple(teacher.name for teacher in planned.panel)
    same = (before.order, before.teachers, before.policy) == (planned.options.order, names, planned.options.agreement)
    if not same or before.counts is None or not planned.num_steps:
        return 1.0
    return max(0.0, 1 - before.counts.num_answered / planned.num_steps)
