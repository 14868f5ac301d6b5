"""A replay run: a folder with a ledger and votes.

    ledger.sqlite   every question and every request, paid once, and the votes made from the answers
    poll.json       who was asked, in which order, for which policy, and how far the run came

Running again with the same folder continues the run and pays for nothing twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from composer_hub import exits
from composer_hub.money import NANO, Budget, cap_of, show_usd, to_usd
from composer_hub.output import plural
from composer_hub.pairs.policy import PanelTeacher, Poll, PollCounts
from composer_hub.pairs.purchase import Purchase, TeacherBill
from composer_hub.pairs.votes import VOTES_FILE, num_votes, save_votes
from composer_hub.records import Trace, Vote, action_text
from composer_hub.replay.answers import VOTED, action_of
from composer_hub.replay.auditing import note_usage
from composer_hub.replay.cascade import AuditTally
from composer_hub.replay.collecting import ReplayReport, check_endpoints, collect
from composer_hub.replay.facts import pilot_places, traces_of
from composer_hub.replay.forecasting import Forecast, forecast, order_note, prepare
from composer_hub.replay.lanes import ReplayProgress
from composer_hub.replay.ledger import Ledger, existing
from composer_hub.replay.market import Market
from composer_hub.replay.options import AUTO, PILOT_STEPS, ReplayOptions
from composer_hub.replay.planning import DEAR, ReplayPlan
from composer_hub.replay.providers import TeacherError
from composer_hub.replay.teachers import Teacher


@dataclass(frozen=True, slots=True)
class ReplaySummary:
    """The figures of a run folder after a run; `stopped` has the reason if questions are left."""

    folder: Path
    order: str
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
            "votes": self.num_votes,
            "traces": self.progress.num_traces,
            "steps": self.tally.num_steps,
            "would_be_pairs": self.tally.num_pairs,
            "refused_by_judge": self.tally.num_refused,
            "requests": self.progress.num_requests,
            "cached_share": round(self.progress.cached_share, 4),
            **self.budget.as_row(),
            "audited_steps": self.tally.num_audited,
            "recall_of_pairs": self.tally.recall,
            "recall_interval": self.tally.recall_interval,
            "too_dear_steps": self.tally.num_too_dear,
            "unanswered_steps": self.num_steps - (self.tally.num_steps - self.tally.num_unfinished),
        }


@dataclass(frozen=True, slots=True)
class Pilot:
    """The answers to a few steps, their price, and the plan of the rest."""

    folder: Path
    answers: list[dict[str, Any]]  # one row per step: the student's action and those of the teachers
    budget: Budget
    forecast: Forecast
    stopped: exits.Stopped | None

    @property
    def cost(self) -> int:
        """Return the nano-dollars of its answers, whenever they were bought."""
        return round(sum(row["pilot_usd"] for row in self.forecast.teachers) * NANO)

    def as_row(self) -> dict[str, Any]:
        """Return the figures that a command prints."""
        return {
            "run": str(self.folder),
            "answers": self.answers,
            "pilot_usd": to_usd(self.cost),
            **self.budget.as_row(),
            **self.forecast.as_row(),
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
    environ: Mapping[str, str] = os.environ,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> ReplaySummary:
    """Ask the teachers about the traces and write their votes to a folder.

    `max_usd` is the cap of the folder over all its processes and restarts. Give `traces` as a collection that can be
    read more than once (a list, a `TraceFile`, `PublishedTraces`).
    """
    options, folder = options or ReplayOptions(), Path(folder)
    if options.max_usd_per_pair is not None and options.order != AUTO:
        raise exits.UsageError(f"--max-usd-per-pair belongs to --order auto, not to {options.order}: leave one out.")
    with _opened(
        traces, teachers, folder, options, max_usd=max_usd, change_cap=change_cap, buy_again=buy_again,
        environ=environ, on_note=on_note,
    ) as begun:  # fmt: skip
        before, planned, ledger = begun
        for note in (*planned.panel_notes(), order_note(planned)):
            on_note(note)
        report, stopped = ReplayReport(), None
        market = Market(planned, ledger) if planned.options.order == AUTO else None
        _save_poll(folder, planned, before)
        try:
            votes = collect(
                traces, planned.panel, ledger, planned.options, environ=environ, report=report,
                on_progress=_with_total(on_progress, planned.num_expected), on_note=on_note,
                planned=planned, market=market,
            )  # fmt: skip
            save_votes(ledger.path, votes)
        except exits.Stopped as stop:
            stopped = stop
        if report.tally.num_steps:
            counts = _counts(report.tally, planned.num_traces, planned.num_steps)
            _save_poll(folder, planned, before, counts=counts, limit=market.limit if market else None)
        if market and report.tally.num_too_dear and market.limit < math.inf:
            on_note(
                f"{plural(report.tally.num_too_dear, 'step')} were left where a pair would have cost more than about "
                f"{show_usd(round(market.limit))} (--max-usd-per-pair; by default {DEAR} times the median so far)."
            )
        saved, budget = num_votes(ledger.path), ledger.budget()
    return ReplaySummary(
        folder, planned.options.order, saved, report.progress, report.tally, budget, planned.num_steps, stopped
    )


def pilot(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    folder: str | Path,
    options: ReplayOptions | None = None,
    *,
    max_usd: float,
    num_steps: int = PILOT_STEPS,
    change_cap: bool = False,
    buy_again: bool = False,
    environ: Mapping[str, str] = os.environ,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> Pilot:
    """Ask every teacher about a few steps of several traces, and plan the rest by their answers.

    A run in the same folder takes these answers and does not buy them again. `num_steps` counts in a new folder only.
    """
    options, folder = options or ReplayOptions(), Path(folder)
    with _opened(
        traces, teachers, folder, options, max_usd=max_usd, change_cap=change_cap, buy_again=buy_again,
        environ=environ, on_note=on_note,
    ) as begun:  # fmt: skip
        before, planned, ledger = begun
        num_steps = before.pilot if before and before.pilot else num_steps
        where = pilot_places(planned.askable, num_steps)
        asking = dataclasses.replace(
            planned, pilot=where, options=dataclasses.replace(options, order="all", audit=0.0, repeat=0.0)
        )
        report, votes, stopped = ReplayReport(), list[Vote](), None
        _save_poll(folder, planned, before, pilot=num_steps)
        try:
            for vote in collect(
                traces_of(traces, where), asking.panel, ledger, asking.options, environ=environ, report=report,
                on_progress=_with_total(on_progress, num_steps * len(asking.panel)), on_note=on_note, planned=asking,
                only_pilot=True,
            ):  # fmt: skip
                votes.append(vote)
        except exits.Stopped as stop:
            stopped = stop
        save_votes(ledger.path, votes)
        budget = ledger.budget()
    rows = [row for trace in traces_of(traces, where) for row in _answer_rows(trace, votes)]
    return Pilot(folder, rows, budget, forecast(traces, teachers, options, max_usd=max_usd, folder=folder), stopped)


@contextlib.contextmanager
def _opened(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    folder: Path,
    options: ReplayOptions,
    *,
    max_usd: float,
    change_cap: bool,
    buy_again: bool,
    environ: Mapping[str, str],
    on_note: Callable[[str], None],
) -> Iterator[tuple[Poll | None, ReplayPlan, Ledger]]:
    """Give the poll before, the plan and the ledger of a folder, once nothing speaks against asking."""
    cap = cap_of(max_usd)
    everyone = [*teachers, *([options.judge] if options.judge else [])]
    check_endpoints(everyone, options.own_endpoint)
    if unlisted := next((teacher.unlisted for teacher in everyone if teacher.unlisted), ""):
        raise TeacherError(unlisted)  # terms and context lengths are unknown
    before, planned = prepare(traces, teachers, options, folder)
    planned.check(cap)
    folder.mkdir(parents=True, exist_ok=True)
    with Ledger(folder / VOTES_FILE, cap=cap, change_cap=change_cap) as ledger:
        if before and not buy_again:
            _check_settings(before, planned.panel, ledger)
        for note in price_changes(ledger, everyone):
            on_note(note)
        note_usage(everyone, ledger, environ)
        yield before, planned, ledger


def _answer_rows(trace: Trace, votes: Sequence[Vote]) -> Iterator[dict[str, Any]]:
    """Yield the student's action and the teachers' votes for the steps of a trace that were asked about."""
    for step in trace.steps:
        answers = [vote for vote in votes if vote.step_id == step.step_id and not vote.excluded]
        if answers:
            yield {
                "trace": trace.trace_id,
                "step": step.index,
                "student": action_text(trace.messages[step.action]),
                "answers": {vote.teacher: _text_of(vote) if vote.status == VOTED else vote.status for vote in answers},
                "usd": round(sum(vote.cost_usd for vote in answers), 6),
            }


def _text_of(vote: Vote) -> str:
    action, _ = action_of(vote.answer)
    return action_text(action)


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
            f"{name} {paid_for} to {asked}"
            for name, paid_for, asked in (
                ("max_tokens", old.max_tokens, teacher.max_tokens),
                ("params", old.params, dict(teacher.params)),
            )
            if paid_for != asked
        ]
        if changes:
            raise exits.UsageError(
                f"Teacher {teacher.name} has {plural(row['settled'], 'answer')} in this run for "
                f"{show_usd(row['spent'])}. With {' and '.join(changes)}, all of them would be bought again. Leave the "
                "settings as they were, or add --buy-again."
            )


# --------------------------------------------------------------------------------------------------- the run's record


def _save_poll(
    folder: Path, planned: ReplayPlan, before: Poll | None, *, counts: PollCounts | None = None, pilot: int = 0,
    limit: float | None = None,
) -> None:  # fmt: skip
    options = planned.options
    Poll(
        order=options.order,
        teachers=tuple(teacher.name for teacher in planned.panel),
        policy=options.agreement,
        audit=options.audit,
        repeat=options.repeat,
        panel=tuple(_panel_teacher(teacher) for teacher in planned.panel),
        counts=counts or (before.counts if before else None),
        pilot=pilot or (before.pilot if before else 0),
        max_usd_per_pair=limit / NANO if limit is not None and limit < math.inf else options.max_usd_per_pair,
        judge=_panel_teacher(options.judge) if options.judge else None,
    ).write(folder)


def _panel_teacher(teacher: Teacher) -> PanelTeacher:
    rates = teacher.price.rates
    host = urlsplit(teacher.base_url).hostname or ""
    return PanelTeacher(
        name=teacher.name,
        model=teacher.model,
        family=teacher.family,
        served_from=f"{host} ({teacher.server})" if teacher.server else host,
        terms=teacher.terms,
        is_loopback=teacher.is_loopback,
        input_usd=rates.input / 1e6,
        cached_usd=rates.cached / 1e6 if teacher.price.caches else None,
        output_usd=rates.output / 1e6,
        price_stamp=teacher.price.stamp,
        identity=teacher.identity,
        max_tokens=teacher.max_tokens,
        params=dict(teacher.params),
    )


def _counts(tally: AuditTally, num_traces: int, num_steps: int) -> PollCounts:
    low, high = tally.recall_interval or (None, None)
    return PollCounts(
        num_traces=num_traces,
        num_steps=num_steps,
        num_answered=tally.num_steps - tally.num_unfinished,
        num_stopped_early=tally.num_stopped_early,
        num_audited=tally.num_audited,
        num_missed=tally.num_missed,
        recall=tally.recall,
        recall_low=low,
        recall_high=high,
    )


def purchase_of(folder: str | Path) -> Purchase | None:
    """Return the money of a run folder, None if it has no ledger."""
    path = Path(folder) / VOTES_FILE
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
    with Ledger(existing(Path(folder) / VOTES_FILE)) as ledger:
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
