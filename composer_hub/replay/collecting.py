"""Collection of votes under the cap of a ledger: traces and teachers in, votes out.

Votes come one trace at a time. Every answer is kept in the ledger, so collecting again with the same ledger yields the
same votes without paying twice and continues after an interruption. Traces are streamed: only those being asked about
are in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from composer_hub import exits
from composer_hub.records import Trace, Vote
from composer_hub.replay.cascade import AuditTally, Compare, TraceRounds
from composer_hub.replay.client import Client, connections
from composer_hub.replay.comparison import by_normal_form
from composer_hub.replay.lanes import Clock, ReplayProgress, Scheduler
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.purse import Purse
from composer_hub.replay.teachers import Teacher, key_of

if TYPE_CHECKING:
    from composer_hub.replay.market import Market
    from composer_hub.replay.planning import ReplayPlan

T = TypeVar("T")


@dataclass(slots=True)
class ReplayReport:
    """The figures of a run, filled in while it collects votes."""

    tally: AuditTally = field(default_factory=AuditTally)
    progress: ReplayProgress = field(default_factory=ReplayProgress)


def collect(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    ledger: Ledger,
    options: ReplayOptions | None = None,
    *,
    compare: Compare = by_normal_form,
    environ: Mapping[str, str] = os.environ,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
    on_note: Callable[[str], None] = lambda note: None,
    planned: ReplayPlan | None = None,
    market: Market | None = None,
    only_pilot: bool = False,
    report: ReplayReport | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> Iterator[Vote]:
    """Ask the teachers about the traces and yield their votes; raise `Stopped` if questions are left.

    With `planned`, traces are opened only if the cap is likely to pay for all of their rounds; `only_pilot` asks about
    the steps of its pilot. With `market`, `auto` asks for a further pair only if it is worth its price. Nothing is
    asked while the caller holds a vote. The first Ctrl-C waits for the calls in flight, the second does not.
    """
    options, report = options or ReplayOptions(), report or ReplayReport()
    asked = [*teachers, *([options.judge] if options.judge else [])]
    check_endpoints(asked, options.own_endpoint)

    def todo() -> Iterator[TraceRounds]:
        for trace in map(functools.partial(need_redacted, own_endpoint=options.own_endpoint), traces):
            rounds = planned.rounds(trace, compare) if planned else TraceRounds(trace, teachers, options, compare)
            if only_pilot:
                rounds.keep_full()
            if market:
                rounds.is_worth = market.is_worth
            yield rounds

    def make(clients: Mapping[str, Client]) -> Scheduler:
        return Scheduler(
            clients,
            ledger,
            clock=clock,
            rng=rng,
            purse=Purse(ledger, planned.estimate) if planned and not only_pilot else None,
            on_finished=market.finish if market else lambda rounds, tally: None,
            patience_s=options.patience_s,
            on_progress=on_progress,
            on_note=on_note,
        )

    with contextlib.closing(_iterated(_asked(todo(), asked, ledger, environ, make, report))) as batches:
        for votes in batches:
            yield from votes


def _iterated(stream: AsyncGenerator[T]) -> Generator[T]:
    """Yield the items of an asynchronous generator; it rests while the caller holds one."""
    loop = asyncio.new_event_loop()
    with _runner(loop) as run:
        try:
            while True:
                try:
                    item = run(stream.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            run(stream.aclose())
            loop.close()


@contextlib.contextmanager
def _runner(loop: asyncio.AbstractEventLoop) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """Give a function that runs a coroutine to its end, also under a running event loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        yield loop.run_until_complete
        return
    # A thread runs one event loop at a time. The caller waits, so only one of both threads works.
    with ThreadPoolExecutor(1, "replay") as thread:
        yield lambda coroutine: thread.submit(loop.run_until_complete, coroutine).result()


async def _asked(
    todo: Iterator[TraceRounds],
    teachers: Sequence[Teacher],
    ledger: Ledger,
    environ: Mapping[str, str],
    make: Callable[[Mapping[str, Client]], Scheduler],
    report: ReplayReport,
) -> AsyncGenerator[list[Vote], None]:
    """Yield the votes of each trace."""
    async with connections(teachers):
        clients = {teacher.name: Client(teacher, key_of(teacher, environ)) for teacher in teachers}
        scheduler = make(clients)
        report.progress, report.tally = scheduler.progress, scheduler.tally
        try:
            with _signals(scheduler) as pressed:
                async for rounds in scheduler.run(todo):
                    yield list(rounds.votes())
            _raise_if_stopped(scheduler, teachers, ledger, bool(pressed))
        finally:
            for client in clients.values():
                await client.close()


@contextlib.contextmanager
def _signals(scheduler: Scheduler) -> Iterator[list[int]]:
    """Drain on the first Ctrl-C or SIGTERM and leave on the second. Only the main thread receives signals."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield pressed
        return

    def press() -> None:
        pressed.append(1)
        scheduler.drain() if len(pressed) == 1 else scheduler.abandon()

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *exits.END_SIGNALS)}
    before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in before:
        loop.add_signal_handler(number, press)
    try:
        yield pressed
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def _raise_if_stopped(scheduler: Scheduler, teachers: Sequence[Teacher], ledger: Ledger, pressed: bool) -> None:
    if pressed:
        raise exits.Interrupted(f"Stopped on request; {ledger.budget()}. The same command continues from here.")
    reasons = scheduler.progress.stopped
    stopped = [f"{teacher} {reasons[teacher.name]}." for teacher in teachers if teacher.name in reasons]
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


def need_redacted(trace: Trace, own_endpoint: bool) -> Trace:
    """Return the trace; refuse one whose text was never redacted."""
    if not trace.redaction and not own_endpoint:
        raise exits.Refused(
            f"Trace {trace.trace_id} was never redacted, so it is not sent to any teacher. Ingest it again "
            "(composer-hub ingest redacts), or add --i-own-this-endpoint for a server on this machine."
        )
    return trace
