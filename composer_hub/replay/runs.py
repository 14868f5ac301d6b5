"""A replay run: a folder with a ledger and votes.

    ledger.sqlite   every question and every request, paid once, and the votes made from the answers
    poll.json       who was asked, in which order, for which policy, and how far the run came

Running again with the same folder continues the run and pays for nothing twice.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from composer_hub import exits
from composer_hub.money import Budget, cap_of, show_usd, to_usd
from composer_hub.output import plural
from composer_hub.pairs.policy import PanelTeacher, Poll, PollCounts
from composer_hub.pairs.purchase import Purchase, TeacherBill
from composer_hub.pairs.votes import VOTES_FILE, num_votes, save_votes
from composer_hub.records import Trace
from composer_hub.replay.audit import note_usage
from composer_hub.replay.cascade import AuditTally
from composer_hub.replay.collect import ReplayReport, check_endpoints, collect
from composer_hub.replay.experience import Experience, ranked
from composer_hub.replay.forecast import PILOT_STEPS, decided, needs_pilot, prepare
from composer_hub.replay.lanes import ReplayProgress
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.planning import ReplayPlan, plan
from composer_hub.replay.teachers import Teacher

LEDGER_FILE = VOTES_FILE


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """The figures of a run folder after a run; `stopped` has the reason if questions are left."""

    folder: Path
    order: str
    planned_order: str  # before the pilot, as `replay plan` names it
    order_reason: str
    num_votes: int
    progress: ReplayProgress
    tally: AuditTally
    budget: Budget
    num_steps: int  # of all traces of the run
    stopped: exits.Stopped | None

    def as_row(self) -> dict[str, Any]:
        """Return the figures that a command prints."""
        return {
            "run": str(self.folder),
            "order": self.order,
            "planned_order": self.planned_order,
            "order_reason": self.order_reason,
            "votes": self.num_votes,
            "traces": self.progress.num_traces,
            "steps": self.tally.num_steps,
            "pairs": self.tally.num_pairs,
            "requests": self.progress.num_requests,
            "cached_share": round(self.progress.cached_share, 4),
            "settled_usd": to_usd(self.budget.settled),
            "ambiguous_usd": to_usd(self.budget.ambiguous),
            "cap_usd": to_usd(self.budget.cap),
            "audited_steps": self.tally.num_audited,
            "recall_of_pairs": self.tally.recall,
            "recall_interval": self.tally.recall_interval,
            "unanswered_steps": self.num_steps - (self.tally.num_steps - self.tally.num_unfinished),
        }


def run(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    folder: str | Path,
    options: ReplayOptions | None = None,
    *,
    max_usd: float,
    change_cap: bool = False,
    buy_again: bool = False,
    learn_from: Sequence[Path] = (),
    environ: Mapping[str, str] = os.environ,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> ReplaySummary:
    """Ask the teachers about the traces and write their votes to a folder.

    `max_usd` is the cap of the folder over all its processes and restarts. Give `traces` as a collection that can be
    read more than once (a list, a `TraceFile`, `PublishedTraces`). `learn_from` are folders of earlier runs.
    """
    options, folder, cap = options or ReplayOptions(), Path(folder), cap_of(max_usd)
    check_endpoints(teachers, options.own_endpoint)
    before, undecided = prepare(traces, teachers, options, folder, learn_from)
    undecided.check(cap)
    announced, reason = decided(undecided, cap, before)
    planned = announced
    if planned.problem:
        on_note(planned.problem)
    folder.mkdir(parents=True, exist_ok=True)
    report, stopped = ReplayReport(), None
    with Ledger(folder / LEDGER_FILE, cap=cap, change_cap=change_cap) as ledger:
        if before and not buy_again:
            _check_settings(before, planned.panel, ledger)
        for note in price_changes(ledger, teachers):
            on_note(note)
        note_usage(teachers, ledger, environ)
        try:
            if not before and needs_pilot(undecided):
                planned, reason = decided(_pilot(traces, undecided, ledger, environ), cap, before)
            if (planned.options.order, planned.panel) != (announced.options.order, announced.panel):
                before_pilot = ", ".join(teacher.name for teacher in announced.panel)
                reason = (
                    f"{reason} Before the first {PILOT_STEPS} steps, the plan was order {announced.options.order}; "
                    f"teachers in turn: {before_pilot}."
                )
            on_note(reason)
            save = functools.partial(_save_poll, folder, planned)
            save(before.counts if before else None, before.experience if before else {})
            votes = collect(
                traces, planned.panel, ledger, planned.options,
                environ=environ, report=report, on_progress=_with_total(on_progress, planned.num_expected),
                on_note=on_note, planned=planned,
            )  # fmt: skip
            save_votes(ledger.path, votes)
        except exits.Stopped as stop:
            stopped = stop
        counts = _counts(report.tally, planned.num_traces, planned.num_steps)
        if report.tally.num_steps:
            _save_poll(folder, planned, counts, report.experience.as_json())
        saved, budget = num_votes(ledger.path), ledger.budget()
    return ReplaySummary(
        folder,
        planned.options.order,
        announced.options.order,
        reason,
        saved,
        report.progress,
        report.tally,
        budget,
        planned.num_steps,
        stopped,
    )


# ------------------------------------------------------------------------------------------------- before the questions


def _check_settings(before: Poll, teachers: Sequence[Teacher], ledger: Ledger) -> None:
    """Refuse settings under which a teacher's paid answers would be bought again."""
    known = {one.name: one for one in before.panel}
    paid = {row["teacher"]: row for row in ledger.by_teacher()}
    for teacher in teachers:
        old, row = known.get(teacher.name), paid.get(teacher.name)
        if old is None or not row or not row["settled"] or old.model != teacher.model or not old.max_tokens:
            continue
        changes = [
            f"{name} {before} to {after}"
            for name, before, after in (
                ("max_tokens", old.max_tokens, teacher.max_tokens),
                ("params", old.params, dict(teacher.params)),
            )
            if before != after
        ]
        if changes:
            raise exits.UsageError(
                f"Teacher {teacher.name} has {plural(row['settled'], 'answer')} in this run for "
                f"{show_usd(row['spent'])}. With {' and '.join(changes)}, all of them would be bought again. Leave the "
                "settings as they were, or add --buy-again."
            )


def _pilot(traces: Iterable[Trace], planned: ReplayPlan, ledger: Ledger, environ: Mapping[str, str]) -> ReplayPlan:
    """Ask every teacher about the first steps of one trace, to rank them by the length of their answers."""
    options = dataclasses.replace(planned.options, order="all", audit=0.0, repeat=0.0, min_entropy=None)
    report = ReplayReport()
    first = list(itertools.islice(traces, 1))
    asked = collect(first, planned.panel, ledger, options, environ=environ, report=report, first_steps=PILOT_STEPS)
    collections.deque(asked, maxlen=0)
    learned = Experience(planned.experience.habits | report.experience.habits)
    return plan(traces, ranked(planned.panel, learned), planned.options, experience=learned)


# --------------------------------------------------------------------------------------------------- the run's record


def _save_poll(folder: Path, planned: ReplayPlan, counts: PollCounts | None, experience: dict[str, Any]) -> None:
    options = planned.options
    Poll(
        options.order,
        tuple(teacher.name for teacher in planned.panel),
        options.agreement,
        options.audit,
        options.repeat,
        options.min_entropy,
        tuple(_panel_teacher(teacher) for teacher in planned.panel),
        counts,
        experience,
    ).write(folder)


def _panel_teacher(teacher: Teacher) -> PanelTeacher:
    rates = teacher.price.rates
    host = urlsplit(teacher.base_url).hostname or ""
    return PanelTeacher(
        teacher.name,
        teacher.model,
        teacher.family,
        f"{host} ({teacher.server})" if teacher.server else host,
        teacher.terms,
        teacher.is_loopback,
        rates.input / 1e6,
        rates.cached / 1e6 if teacher.price.caches else None,
        rates.output / 1e6,
        teacher.price.stamp,
        teacher.max_tokens,
        dict(teacher.params),
    )


def _counts(tally: AuditTally, num_traces: int, num_steps: int) -> PollCounts:
    low, high = tally.recall_interval or (None, None)
    return PollCounts(
        num_traces,
        num_steps,
        tally.num_steps - tally.num_unfinished,
        tally.num_stopped_early,
        tally.num_audited,
        tally.num_missed,
        tally.recall,
        low,
        high,
    )


def purchase_of(folder: str | Path) -> Purchase | None:
    """Return the money of a run folder, None if it has no ledger."""
    path = Path(folder) / LEDGER_FILE
    if not path.exists():
        return None
    with Ledger(path) as ledger:
        teachers = {
            row["teacher"]: TeacherBill(
                requests=row["requests"],
                answers=row["settled"],
                unasked=row["planned"],
                spent=row["spent"],
                ambiguous=row["ambiguous"],
                retried=row["retried"],
                prompt_tokens=row["prompt_tokens"],
                cached_tokens=row["cached_tokens"],
            )
            for row in ledger.by_teacher()
        }
        return Purchase(ledger.budget(), teachers, ledger.by_trace(), tuple(ledger.price_stamps()))


def _with_total(on_progress: Callable[[ReplayProgress], None], total: int) -> Callable[[ReplayProgress], None]:
    def advance(progress: ReplayProgress) -> None:
        progress.num_expected = total
        on_progress(progress)

    return advance


def status(folder: str | Path) -> tuple[list[dict[str, Any]], Budget]:
    """Return one row per teacher (questions by state, tokens, dollars) and the budget of a run folder."""
    path = Path(folder) / LEDGER_FILE
    if not path.exists():
        raise exits.NothingToDo(f"{folder} has no run yet. Start one with: composer-hub replay run … --run {folder}")
    with Ledger(path) as ledger:
        rows, budget = ledger.by_teacher(), ledger.budget()
    for row in rows:
        row["cached_share"] = row["cached_tokens"] / row["prompt_tokens"] if row["prompt_tokens"] else 0.0
        for name in ("spent", "ambiguous", "retried"):
            row[f"{name}_usd"] = to_usd(row.pop(name))
        del row["prompt_tokens"], row["cached_tokens"]
    return rows, budget


def price_changes(ledger: Ledger, teachers: Sequence[Teacher]) -> Iterator[str]:
    """Record the teachers' prices, and yield a note for each that differs from the last run's."""
    for teacher in teachers:
        if before := ledger.note_price(teacher.route, teacher.price):
            old, new = before["rates"], teacher.price.rates
            yield (
                f"{teacher.name}: the price changed since the last run, input {old['input'] / 1e6:g} to "
                f"{new.input / 1e6:g}, output {old['output'] / 1e6:g} to {new.output / 1e6:g} dollars per million "
                "tokens. New calls are reserved at the new price; `composer-hub replay plan` shows the rest of the run."
            )
