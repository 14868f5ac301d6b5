"""Collection of votes under the cap of a ledger: traces and teachers in, votes out.

Votes come one trace at a time. Every answer is kept in the ledger, so collecting again with the same ledger yields the
same votes without paying twice and continues after an interruption. Traces are streamed: only those being asked about
are in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from composer_hub import exits
from composer_hub.money import show_usd
from composer_hub.records import Step, Trace, Vote
from composer_hub.replay import voi
from composer_hub.replay.cascade import AuditTally, Compare, TraceRounds
from composer_hub.replay.client import Client, connections
from composer_hub.replay.comparison import by_normal_form
from composer_hub.replay.lanes import Clock, ReplayProgress, Scheduler
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.planning import plan
from composer_hub.replay.teachers import Teacher, key_of


class Interrupted(exits.Stopped):
    """The user stopped the run. Paid answers are kept."""

    exit_code = exits.INTERRUPTED


@dataclass(slots=True)
class ReplayReport:
    """The figures of a run, filled in while it collects votes."""

    tally: AuditTally = field(default_factory=AuditTally)
    progress: ReplayProgress = field(default_factory=ReplayProgress)
    notes: list[str] = field(default_factory=list)


def collect(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    ledger: Ledger,
    options: ReplayOptions | None = None,
    *,
    compare: Compare = by_normal_form,
    environ: Mapping[str, str] = os.environ,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
    report: ReplayReport | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> Iterator[Vote]:
    """Ask the teachers about the traces and yield their votes; raise `Stopped` if questions are left.

    Nothing is asked while the caller holds a vote. The first Ctrl-C waits for the calls in flight, the second does not.
    """
    options, report = options or ReplayOptions(), report or ReplayReport()
    check_endpoints(teachers, options.own_endpoint)
    wanted = _sweeps(traces, teachers, ledger, options, report)
    todo = (
        TraceRounds(checked(trace, options.own_endpoint), teachers, options, compare, keep)
        for keep in wanted
        for trace in traces
    )
    loop = asyncio.new_event_loop()
    stream = _asked(todo, teachers, ledger, environ, on_progress, report, clock, rng)
    try:
        while True:
            try:
                votes = loop.run_until_complete(stream.__anext__())
            except StopAsyncIteration:
                return
            yield from votes
    finally:
        loop.run_until_complete(stream.aclose())
        loop.close()


async def _asked(
    todo: Iterator[TraceRounds],
    teachers: Sequence[Teacher],
    ledger: Ledger,
    environ: Mapping[str, str],
    on_progress: Callable[[ReplayProgress], None],
    report: ReplayReport,
    clock: Clock | None,
    rng: random.Random | None,
) -> AsyncGenerator[list[Vote], None]:
    """Yield the votes of each trace."""
    async with connections(teachers):
        clients = {teacher.name: Client(teacher, key_of(teacher, environ)) for teacher in teachers}
        scheduler = Scheduler(clients, ledger, clock=clock, rng=rng, on_progress=on_progress)
        report.progress, report.tally = scheduler.progress, scheduler.tally
        try:
            with _sigint(scheduler) as pressed:
                async for rounds in scheduler.run(todo):
                    yield list(rounds.votes())
            _raise_if_stopped(scheduler, ledger, bool(pressed))
        finally:
            for client in clients.values():
                await client.close()


@contextlib.contextmanager
def _sigint(scheduler: Scheduler) -> Iterator[list[int]]:
    """Drain on the first Ctrl-C and leave on the second. Only the main thread receives signals."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def press() -> None:
        pressed.append(1)
        scheduler.drain() if len(pressed) == 1 else scheduler.abandon()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _raise_if_stopped(scheduler: Scheduler, ledger: Ledger, pressed: bool) -> None:
    if pressed:
        raise Interrupted(f"Stopped on request; {ledger.budget()}. The same command continues from here.")
    stopped = [f"{name} {reason}." for name, reason in scheduler.progress.stopped.items()]
    if stopped:
        raise exits.Stopped(f"Teacher {' Teacher '.join(stopped)} Paid answers are kept; {ledger.budget()}.")
    if scheduler.cap_reached:
        raise scheduler.cap_reached


def check_endpoints(teachers: Sequence[Teacher], own_endpoint: bool) -> None:
    """Refuse `own_endpoint` for a remote endpoint."""
    remote = [teacher.name for teacher in teachers if not teacher.is_loopback]
    if own_endpoint and remote:
        raise exits.Refused(
            f"--i-own-this-endpoint is for servers on this machine; {', '.join(remote)} is elsewhere. "
            "Redact the traces (composer-hub ingest) and leave the option out."
        )


def checked(trace: Trace, own_endpoint: bool) -> Trace:
    """Return the trace; refuse one whose text was never redacted."""
    if not trace.redaction and not own_endpoint:
        raise exits.Refused(
            f"Trace {trace.trace_id} was never redacted, so it is not sent to any teacher. Ingest it again "
            "(composer-hub ingest redacts), or add --i-own-this-endpoint for a server on this machine."
        )
    return trace


def _sweeps(
    traces: Iterable[Trace], teachers: Sequence[Teacher], ledger: Ledger, options: ReplayOptions, report: ReplayReport
) -> list[Callable[[Trace, Step], bool] | None]:
    """Return the filters of one sweep over all steps, or of two: the more promising steps first."""
    everything: list[Callable[[Trace, Step], bool] | None] = [None]
    if iter(traces) is traces:
        return everything  # a one-time iterator cannot be swept twice
    money = ledger.budget()
    budget = money.cap - money.ambiguous
    expected = plan(traces, teachers, options).expected
    if expected <= budget:
        return everything
    valued = (pair for trace in traces for pair in _valued(trace, teachers, options))
    least = voi.threshold(valued, budget)
    report.notes.append(
        f"The cap leaves {show_usd(budget)} of about {show_usd(expected)} needed: steps of value {least:g} and more "
        "are asked first (errors, first steps, edits)."
    )
    first = voi.at_least(least, options.entropy)
    return [first, lambda trace, step: not first(trace, step)]


def _valued(trace: Trace, teachers: Sequence[Teacher], options: ReplayOptions) -> Iterator[tuple[float, int]]:
    """Yield (value, expected cost) of each step; the cost of a trace is divided equally among its steps."""
    cost = plan([trace], teachers, options).expected // max(len(trace.steps), 1)
    for place in range(len(trace.steps)):
        yield voi.value_of(trace, place, options.entropy), cost
