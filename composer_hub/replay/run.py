"""Replay: traces and teachers in, votes out, under a cap.

`plan` says what a run would ask and cost before anything is spent. `run` asks, keeps every answer in the ledger and
yields `Vote`s a trace at a time; run again with the same ledger it yields the same votes without paying twice, and goes
on where it stopped. Traces are streamed: only those being asked about are in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
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
from composer_hub.replay.cascade import Judge, JudgeOf, Rules, Tally, TraceRun, share_of
from composer_hub.replay.client import Client, connections
from composer_hub.replay.lanes import Clock, Progress, Scheduler
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.prompts import Prompts, expected_tokens
from composer_hub.replay.teachers import Teacher, key_of

CACHE_BLOCK = 128  # tokens; caches hold whole blocks

# Share of the steps that the first teacher, each of the others that must agree with it, and each further one is asked
# about. Simulated with 2 of 3 teachers, 55 % easy steps and correlated errors (docs/replay.md): an expectation for
# planning, never a limit.
EXPECTED_SHARE: Mapping[str, tuple[float, float, float]] = {
    "all": (1.0, 1.0, 1.0),
    "sequential": (1.0, 1.0, 0.33),
    "cascade": (1.0, 0.37, 0.23),
}


class Interrupted(exits.Stopped):
    """Somebody asked to stop; what was paid for is kept."""

    exit_code = exits.INTERRUPTED


# ------------------------------------------------------------------------------------------------------------- plan


@dataclass(frozen=True, slots=True)
class LaneCost:
    """What one lane costs, in nano-dollars."""

    prompt_tokens: int
    uncached: int  # every prompt at the input price
    in_order: int  # steps in order, prefixes read from the cache
    worst: int  # what the ledger would reserve for all of it
    need: int  # what the cap must hold to finish it: all but the last call as expected, the last reserved in full


@dataclass(slots=True)
class TeacherPlan:
    """One teacher's part of a plan, in nano-dollars."""

    teacher: Teacher
    num_steps: int = 0  # it may be asked about
    num_expected: int = 0  # the policy will ask about
    prompt_tokens: int = 0
    uncached: int = 0
    in_order: int = 0
    expected: int = 0  # in order, for the expected steps
    worst: int = 0


@dataclass(slots=True)
class Plan:
    """What a run would ask and cost."""

    rules: Rules
    teachers: list[TeacherPlan] = field(default_factory=list)
    num_traces: int = 0
    num_steps: int = 0
    excluded: dict[str, int] = field(default_factory=dict)  # reason -> (step, teacher) pairs
    smallest_lane: int | None = None

    @property
    def expected(self) -> int:
        return sum(teacher.expected for teacher in self.teachers)

    @property
    def worst(self) -> int:
        return sum(teacher.worst for teacher in self.teachers)

    def check(self, cap: int) -> None:
        """Refuse a cap under which not even the smallest lane can end."""
        if self.num_steps == 0:
            raise exits.NothingToDo("The traces hold no steps.")
        if self.smallest_lane is None:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.excluded.items())
            raise exits.NothingToDo(f"No teacher may be asked about any step ({reasons}).")
        if cap < self.smallest_lane:
            raise exits.UsageError(
                f"--max-usd {show_usd(cap)} cannot finish the smallest lane (one teacher through one trace), which "
                f"needs {show_usd(self.smallest_lane)}. Raise it, take a cheaper teacher, or a smaller --max-tokens."
            )


def lane_cost(
    prompts: Sequence[tuple[int, int]], teacher: Teacher, output_tokens: int, bounds: Sequence[int] | None = None
) -> LaneCost:
    """Return the cost of asking prompts in order; each is (tokens, tokens it shares with the one before)."""
    price, rates = teacher.price, teacher.price.rates
    explicit = rates.write != rates.input
    uncached = in_order = worst = last = 0
    for place, (tokens, shared) in enumerate(prompts):
        usable = price.caches and shared >= teacher.cache_min_tokens
        cached = shared // CACHE_BLOCK * CACHE_BLOCK if usable else 0
        uncached += price.cost(tokens, output_tokens)
        step = price.cost(tokens, output_tokens, cached=cached, written=tokens - cached if explicit else 0)
        last = price.worst_case(bounds[place] if bounds else tokens, teacher.max_tokens)
        in_order += step
        worst += last
    need = in_order - step + last if prompts else 0
    return LaneCost(sum(tokens for tokens, _ in prompts), uncached, in_order, worst, need)


def plan(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    rules: Rules | None = None,
    *,
    output_tokens: int = 400,
) -> Plan:
    """Return what replaying the traces would ask and cost; nothing is sent."""
    result = Plan(rules or Rules(), [TeacherPlan(teacher) for teacher in teachers])
    for trace in traces:
        result.num_traces += 1
        result.num_steps += len(trace.steps)
        _plan_trace(result, trace, output_tokens)
    return result


def _plan_trace(result: Plan, trace: Trace, output_tokens: int) -> None:
    run = TraceRun(trace, [part.teacher for part in result.teachers], result.rules, _no_judge)
    ranks = run.ranks()
    for reason in run.exclusions():
        result.excluded[reason] = result.excluded.get(reason, 0) + 1
    for part in result.teachers:
        steps = [step for step in trace.steps if part.teacher.name in ranks.get(step.step_id, ())]
        if not steps:
            continue
        lane = _lane_cost_of(run.prompts, steps, part.teacher, output_tokens)
        first, needed, further = EXPECTED_SHARE[result.rules.policy]
        shares = [first, *[needed] * (result.rules.agreement.min_agree - 1), further]
        asked = [
            step
            for step in steps
            if share_of(step.step_id, "plan")
            < shares[min(ranks[step.step_id].index(part.teacher.name), len(shares) - 1)]
        ]
        part.num_steps += len(steps)
        part.num_expected += len(asked)
        part.prompt_tokens += lane.prompt_tokens
        part.uncached += lane.uncached
        part.in_order += lane.in_order
        part.worst += lane.worst
        part.expected += _lane_cost_of(run.prompts, asked, part.teacher, output_tokens).in_order
        result.smallest_lane = min(lane.need, result.smallest_lane or lane.need)


def _lane_cost_of(prompts: Prompts, steps: Sequence[Step], teacher: Teacher, output_tokens: int) -> LaneCost:
    sizes: list[tuple[int, int]] = []
    bounds: list[int] = []
    before: list[tuple[int, int]] = []
    for step in steps:
        here = prompts.sizes(step)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, here, strict=False))
        shared = sum(size for _, (_, size) in same)
        tools = prompts.tool_bytes
        sizes.append(
            (expected_tokens(tools + sum(size for _, size in here)), expected_tokens(tools + shared) if before else 0)
        )
        bounds.append(prompts.of(step).bound)
        before = here
    return lane_cost(sizes, teacher, output_tokens, bounds)


def _no_judge(trace: Trace) -> Judge:
    raise AssertionError("a plan compares no actions")


# -------------------------------------------------------------------------------------------------------------- run


@dataclass(slots=True)
class Report:
    """What a run leaves behind beside its votes."""

    tally: Tally = field(default_factory=Tally)
    progress: Progress = field(default_factory=Progress)
    notes: list[str] = field(default_factory=list)


def run(
    traces: Iterable[Trace],
    teachers: Sequence[Teacher],
    ledger: Ledger,
    judge_of: JudgeOf,
    rules: Rules | None = None,
    *,
    own_endpoint: bool = False,
    environ: Mapping[str, str] = os.environ,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    report: Report | None = None,
    clock: Clock | None = None,
    rng: random.Random | None = None,
) -> Iterator[Vote]:
    """Ask the teachers about the traces and yield their votes; raise `Stopped` where not everything could be asked.

    Nothing is asked while the caller holds a vote. The first Ctrl-C ends the run once the calls in flight are back, the
    second at once.
    """
    rules, report = rules or Rules(), report or Report()
    check_endpoints(teachers, own_endpoint)
    wanted = _sweeps(traces, teachers, ledger, rules, report)
    runs = (
        TraceRun(checked(trace, own_endpoint), teachers, rules, judge_of, keep) for keep in wanted for trace in traces
    )
    loop = asyncio.new_event_loop()
    stream = _asked(runs, teachers, ledger, environ, on_progress, report, clock, rng)
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
    runs: Iterator[TraceRun],
    teachers: Sequence[Teacher],
    ledger: Ledger,
    environ: Mapping[str, str],
    on_progress: Callable[[Progress], None],
    report: Report,
    clock: Clock | None,
    rng: random.Random | None,
) -> AsyncGenerator[list[Vote], None]:
    """Yield the votes of one trace after the other."""
    async with connections(teachers):
        clients = {teacher.name: Client(teacher, key_of(teacher, environ)) for teacher in teachers}
        scheduler = Scheduler(clients, ledger, clock=clock, rng=rng, on_progress=on_progress)
        report.progress, report.tally = scheduler.progress, scheduler.tally
        try:
            with _sigint(scheduler) as pressed:
                async for run in scheduler.run(runs):
                    yield list(run.votes())
            _raise_if_stopped(scheduler, ledger, bool(pressed))
        finally:
            for client in clients.values():
                await client.close()


@contextlib.contextmanager
def _sigint(scheduler: Scheduler) -> Iterator[list[int]]:
    """Drain on the first Ctrl-C, leave on the second; only where signals arrive, in the main thread."""
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
        raise Interrupted(f"Stopped on request; {ledger.money()}. The same command goes on from here.")
    stopped = [f"{name} {reason}." for name, reason in scheduler.progress.stopped.items()]
    if stopped:
        raise exits.Stopped(f"Teacher {' Teacher '.join(stopped)} What was answered is kept; {ledger.money()}.")
    if scheduler.cap_reached:
        raise scheduler.cap_reached


def check_endpoints(teachers: Sequence[Teacher], own_endpoint: bool) -> None:
    """Refuse to call a remote endpoint one's own."""
    remote = [teacher.name for teacher in teachers if not teacher.is_loopback]
    if own_endpoint and remote:
        raise exits.Refused(
            f"--i-own-this-endpoint is for servers on this machine; {', '.join(remote)} is elsewhere. "
            "Redact the traces (composer-hub ingest) and leave the option out."
        )


def checked(trace: Trace, own_endpoint: bool) -> Trace:
    """Return the trace, or refuse one whose text was never redacted."""
    if not trace.redaction and not own_endpoint:
        raise exits.Refused(
            f"Trace {trace.trace_id} was never redacted, so it is not sent to any teacher. Ingest it again "
            "(composer-hub ingest redacts), or add --i-own-this-endpoint for a server on this machine."
        )
    return trace


def _sweeps(
    traces: Iterable[Trace], teachers: Sequence[Teacher], ledger: Ledger, rules: Rules, report: Report
) -> list[Callable[[Trace, Step], bool] | None]:
    """Return the filters of one sweep over everything, or of two, the more promising steps first."""
    everything: list[Callable[[Trace, Step], bool] | None] = [None]
    if iter(traces) is traces:
        return everything  # can be read only once
    money = ledger.money()
    budget = money.cap - money.ambiguous
    expected = plan(traces, teachers, rules).expected
    if expected <= budget:
        return everything
    valued = (pair for trace in traces for pair in _valued(trace, teachers, rules))
    least = voi.threshold(valued, budget)
    report.notes.append(
        f"About {show_usd(expected)} would be needed and the cap leaves {show_usd(budget)}: steps of value {least:g} "
        "and more are asked first (errors, first steps, edits)."
    )
    first = voi.at_least(least, rules.entropy)
    return [first, lambda trace, step: not first(trace, step)]


def _valued(trace: Trace, teachers: Sequence[Teacher], rules: Rules) -> Iterator[tuple[float, int]]:
    """Yield (value, expected cost) of each step, every step paying its share of the trace."""
    cost = plan([trace], teachers, rules).expected // max(len(trace.steps), 1)
    for place in range(len(trace.steps)):
        yield voi.value_of(trace, place, rules.entropy), cost
