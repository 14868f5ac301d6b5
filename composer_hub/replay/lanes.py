"""Lanes: one queue of questions per (trace, teacher), asked in step order so that the prefix cache pays.

In: the `TraceRounds` of each trace, a ledger, one client per teacher. Out: the finished `TraceRounds`. Started lanes
are finished before new ones begin. Among the lanes that are ready, the one whose cache expires first is next. The
concurrency of a teacher grows while it answers and shrinks when it replies "too many requests" (AIMD).

The cap, a stopped teacher and Ctrl-C only end the handing out of work: calls in flight are waited for, the ledger has
the rest, and the same command continues.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from composer_hub.money import show_usd
from composer_hub.pairs.prompts import paired
from composer_hub.replay import answers
from composer_hub.replay.cascade import Ask, AskOutcome, AuditTally, TraceRounds
from composer_hub.replay.client import ChatRequest, Client, Reply
from composer_hub.replay.ledger import Busy, CapReached, Ledger, Question, Reserved, Stored
from composer_hub.replay.prompts import Counted, Prompt, marked
from composer_hub.replay.retries import Again, Failure, StopTeacher, Wait, decide
from composer_hub.replay.teachers import Teacher

FIRST_LIMIT = 4
POLL_S = 0.5  # while another process has the question or the money
MAX_FAILURES = 10  # in a row, over all lanes of a teacher
STORED_AT_ONCE = 50  # stored answers read before other lanes get their turn


@dataclass(frozen=True, slots=True)
class Clock:
    """The source of time."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


@dataclass(slots=True)
class ReplayProgress:
    """The progress of a run, as the live line shows it."""

    num_traces: int = 0  # finished
    num_steps: int = 0  # of finished traces
    num_pairs: int = 0
    num_asked: int = 0  # questions with an outcome, including stored ones
    num_expected: int = 0  # questions that the plan expects
    num_requests: int = 0  # sent in this run
    spent: int = 0  # nano-dollars, in this run
    prompt_tokens: int = 0
    cached_tokens: int = 0
    stopped: dict[str, str] = field(default_factory=dict)  # teacher -> reason

    @property
    def cached_share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(slots=True, eq=False)
class _Lane:
    rounds: TraceRounds
    teacher: Teacher
    asks: list[Ask]
    number: int
    at: int = 0
    tries: int = 0
    waits: int = 0
    warm_until: float = 0.0  # 0: not started
    counted: Counted | None = None
    last_length: int = 0  # chat messages of the last prompt sent

    @property
    def name(self) -> str:
        return f"{self.rounds.trace.trace_id[:40]}.{self.teacher.name[:40]}"

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.asks)

    def next(self) -> None:
        self.at, self.tries, self.waits = self.at + 1, 0, 0


@dataclass(slots=True, eq=False)
class _Pool:
    """One teacher's queue and its limit."""

    teacher: Teacher
    client: Client
    limit: float = FIRST_LIMIT
    in_flight: int = 0
    paused_until: float = 0.0
    last_cut: float = float("-inf")
    was_cut: bool = False
    failures: int = 0
    last_failure: float = float("-inf")
    stopped: str = ""
    ready: list[tuple[int, float, int, _Lane]] = field(default_factory=list)

    @property
    def has_room(self) -> bool:
        return self.in_flight < int(self.limit)

    def push(self, lane: _Lane, now: float) -> None:
        rank = 2 if not lane.warm_until else 0 if lane.warm_until > now else 1
        heapq.heappush(self.ready, (rank, lane.warm_until, lane.number, lane))

    def pop(self, now: float, *, only_started: bool) -> _Lane | None:
        """Take the warm lane whose cache expires first, else a cold one, else a new one."""
        while self.ready:
            rank, warm_until, _, lane = self.ready[0]
            if rank == 2 and only_started:
                return None
            heapq.heappop(self.ready)
            if rank == 0 and warm_until <= now:
                self.push(lane, now)
                continue
            return lane
        return None

    def grew(self) -> None:
        """Allow one more call: at every answer until the first cut, then once per round."""
        step = 1 / self.limit if self.was_cut else 1.0
        self.limit = min(self.limit + step, float(self.teacher.max_concurrency))

    def failed(self, sent: float, now: float) -> None:
        """Count a failure; calls that were in flight at the last failure belong to the same event."""
        if sent >= self.last_failure:
            self.failures, self.last_failure = self.failures + 1, now

    def cut(self, sent: float, now: float) -> None:
        """Allow a third less; calls that were sent before the last cut are not new evidence."""
        if sent >= self.last_cut:
            self.limit, self.last_cut, self.was_cut = max(1.0, self.limit * 0.67), now, True


class Scheduler:
    """Run the lanes of many traces over a few teachers. Call `run` once."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        ledger: Ledger,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
    ) -> None:
        self.ledger, self.clock, self.rng = ledger, clock or Clock(), rng or random.Random()
        self.progress, self._on_progress = ReplayProgress(), on_progress
        self.tally = AuditTally()
        self.cap_reached: CapReached | None = None
        self.draining = False
        self._pools = {name: _Pool(client.teacher, client) for name, client in clients.items()}
        self._later: list[tuple[float, int, _Lane]] = []
        self._without_money: list[_Lane] = []
        self._open: dict[int, tuple[TraceRounds, int]] = {}  # id -> (run, lanes of the round not yet done)
        self._finished: list[TraceRounds] = []
        self._counted: set[str] = set()
        self._on_the_wire = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None
        self._wake = asyncio.Event()
        self._numbers = itertools.count()
        self._entry_teachers: set[str] = set(clients)

    def drain(self) -> None:
        """Hand out nothing more, and wait for the calls in flight."""
        self.draining = True
        self._wake.set()

    def abandon(self) -> None:
        """Leave at once; calls in flight stay counted as ambiguous."""
        self.draining = True
        for task in self._tasks:
            task.cancel()
        self._wake.set()

    async def run(self, todo: Iterator[TraceRounds]) -> AsyncIterator[TraceRounds]:
        """Yield each trace once its rounds are done, and at the end the traces that could not be finished."""
        try:
            while True:
                # Clear before looking, so that a change while the caller holds a trace is not missed.
                self._wake.clear()
                self._admit(todo)
                self._launch()
                while self._finished:
                    yield self._finished.pop()
                if not self._tasks and not self._has_work():
                    break
                await self._change()
            if self._error:
                raise self._error
            for rounds, _ in list(self._open.values()):
                self._count(rounds)
                yield rounds
        finally:
            self.abandon()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -------------------------------------------------------------------------------------------------- handing out

    def _admit(self, todo: Iterator[TraceRounds]) -> None:
        """Open traces while a teacher that starts them has room and nothing to do."""
        while not self.draining and not self.cap_reached and self._wants_more():
            rounds = next(todo, None)
            if rounds is None:
                self._entry_teachers = set()
                return
            self._start_round(rounds)

    def _wants_more(self) -> bool:
        pools = [self._pools[name] for name in self._entry_teachers if not self._pools[name].stopped]
        most = 4 * max((pool.limit for pool in pools), default=0)
        return len(self._open) < most and any(pool.in_flight + len(pool.ready) < int(pool.limit) for pool in pools)

    def _start_round(self, rounds: TraceRounds) -> None:
        lanes = rounds.next_round()
        if not lanes:
            self._open.pop(id(rounds), None)
            self._count(rounds)
            self._finished.append(rounds)
            return
        if id(rounds) not in self._open:
            self._entry_teachers = set(lanes)
        self._open[id(rounds)] = (rounds, len(lanes))
        for name, asks in lanes.items():
            lane = _Lane(rounds, self._pools[name].teacher, asks, next(self._numbers))
            self._plan(lane)
            self._pools[name].push(lane, self.clock.monotonic())

    def _plan(self, lane: _Lane) -> None:
        prompts = lane.rounds.prompts
        self.ledger.plan(self._question(lane, ask, prompts.of(ask.step)) for ask in lane.asks)

    def _launch(self) -> None:
        now = self.clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due = heapq.heappop(self._later)[2]
            self._pools[due.teacher.name].push(due, now)
        for pool in self._pools.values():
            while pool.has_room and not self.draining and not pool.stopped and pool.paused_until <= now:
                lane: _Lane | None = pool.pop(now, only_started=self.cap_reached is not None)
                if lane is None:
                    break
                pool.in_flight += 1
                task = asyncio.create_task(self._advance(pool, lane))
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._error = self._error or error
            self.draining = True
        self._wake.set()

    def _has_work(self) -> bool:
        """Return whether work is left that needs no call in flight."""
        if self.draining:
            return False
        alive = [pool for pool in self._pools.values() if not pool.stopped]
        waiting = any(not self._pools[lane.teacher.name].stopped for _, _, lane in self._later)
        ready = any(rank < 2 or not self.cap_reached for pool in alive for rank, *_ in pool.ready)
        return waiting or ready

    async def _change(self) -> None:
        """Wait until a call ends, a pause is over, or the run is stopped."""
        now = self.clock.monotonic()
        moments = [self._later[0][0]] if self._later else []
        moments += [pool.paused_until for pool in self._pools.values() if pool.ready and pool.paused_until > now]
        if not moments:
            await self._wake.wait()
            return
        sleeper = asyncio.ensure_future(self.clock.sleep(max(0.0, min(moments) - now)))
        waker = asyncio.ensure_future(self._wake.wait())
        _, pending = await asyncio.wait({sleeper, waker}, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()

    # ------------------------------------------------------------------------------------------------------- asking

    async def _advance(self, pool: _Pool, lane: _Lane) -> None:
        """Move a lane forward by one request, or past stored answers."""
        try:
            for _ in range(STORED_AT_ONCE):
                before = self.progress.num_requests
                if not await self._step(pool, lane):
                    return  # it is in another queue now
                if lane.is_done or self.draining or self.progress.num_requests != before:
                    break
        finally:
            pool.in_flight -= 1
        if lane.is_done:
            self._lane_done(lane)
        else:
            pool.push(lane, self.clock.monotonic())

    async def _step(self, pool: _Pool, lane: _Lane) -> bool:
        """Bring the lane's next question to an outcome; return False if it was put off."""
        ask = lane.asks[lane.at]
        prompts, teacher = lane.rounds.prompts, lane.teacher
        prompt = prompts.of(ask.step)
        bound = prompts.bound_after(prompt, lane.counted)
        amount = teacher.price.worst_case(bound, teacher.max_tokens)
        try:
            right = self.ledger.reserve(self._question(lane, ask, prompt), amount, price_stamp=teacher.price.stamp)
        except CapReached as reached:
            self._no_money(lane, reached)
            return False
        if isinstance(right, Busy):
            self._put_off(lane, POLL_S)
            return False
        if isinstance(right, Stored):
            self._take_stored(lane, ask, prompt, right)
            return True
        return await self._send(pool, lane, ask, prompt, right)

    async def _send(self, pool: _Pool, lane: _Lane, ask: Ask, prompt: Prompt, right: Reserved) -> bool:
        chat = paired(prompt.chat)
        wire = marked(chat, lane.last_length) if lane.teacher.cache_marks else chat
        sent = self.clock.monotonic()
        self.progress.num_requests += 1
        self._on_the_wire += 1
        try:
            reply = await pool.client.ask(ChatRequest(wire, lane.rounds.prompts.tools, lane.name))
        except BaseException:
            self.ledger.fail(right.try_id, "interrupted", cost=None)
            raise
        finally:
            self._on_the_wire -= 1
        now = self.clock.monotonic()
        lane.last_length, lane.warm_until = len(chat), now + lane.teacher.cache_ttl_s
        if isinstance(reply, Failure):
            return self._failed(pool, lane, ask, right, reply, sent)
        pool.failures = 0
        pool.grew()
        self._settle(pool, lane, ask, prompt, right, reply)
        self._money_freed()
        return True

    def _settle(self, pool: _Pool, lane: _Lane, ask: Ask, prompt: Prompt, right: Reserved, reply: Reply) -> None:
        answer = answers.read(reply.response, lane.teacher, lane.rounds.known_tools)
        self.ledger.settle(
            right.try_id,
            reply.body,
            cost=answer.cost,
            cost_source=answer.cost_source,
            latency_s=reply.latency_s,
            prompt_tokens=answer.counted.prompt_tokens or 0,
            cached_tokens=answer.counted.cached_tokens,
        )
        if answer.cost is not None and answer.cost > right.amount:
            # The cap relies on the price list, so an endpoint that bills more is not asked again.
            self._stop(
                pool,
                f"billed {show_usd(answer.cost)} for a call that its price list bounds at {show_usd(right.amount)}. "
                "Give its real price with --price and run again",
            )
        cost = right.amount if answer.cost is None else answer.cost
        self.progress.spent += cost
        self.progress.prompt_tokens += answer.counted.prompt_tokens or 0
        self.progress.cached_tokens += answer.counted.cached_tokens
        outcome = AskOutcome(answer.status, answer, cost, answer.cost_source, lane.teacher.price.stamp, reply.latency_s)
        self._record(lane, ask, prompt, outcome)

    def _failed(self, pool: _Pool, lane: _Lane, ask: Ask, right: Reserved, failure: Failure, sent: float) -> bool:
        """Apply the retry policy; after the last try the outcome is an abstention."""
        now = self.clock.monotonic()
        lane.tries += 1
        putting_off = failure.cost == 0 and failure.retry_after_s is not None
        decision = decide(failure, lane.tries, lane.waits + 1, self.rng)
        final = not isinstance(decision, (Wait, Again, StopTeacher)) and decision.final
        self.ledger.fail(right.try_id, failure.kind, cost=failure.cost, final=final)
        self._money_freed()
        if isinstance(decision, Wait):
            lane.tries, lane.waits = lane.tries - 1, lane.waits + 1
            pool.cut(sent, now)
            # A Retry-After holds for the whole teacher; a bare 429 only slows it down.
            if putting_off:
                pool.paused_until = max(pool.paused_until, now + decision.seconds)
            self._put_off(lane, decision.seconds)
            return False
        if isinstance(decision, StopTeacher):
            self._stop(pool, decision.reason)
            return False
        if not final:
            pool.failed(sent, now)
        if pool.failures >= MAX_FAILURES:
            self._stop(pool, f"failed {MAX_FAILURES} times in a row (last: {failure.kind}). Check it and run again")
            return False
        if isinstance(decision, Again):
            self._put_off(lane, decision.seconds)
            return False
        self._record(lane, ask, None, AskOutcome(failure.kind, price_stamp=lane.teacher.price.stamp))
        return True

    def _take_stored(self, lane: _Lane, ask: Ask, prompt: Prompt, stored: Stored) -> None:
        if stored.response is None:
            outcome = AskOutcome(stored.kind, cost=stored.cost, price_stamp=stored.price_stamp)
        else:
            answer = answers.read(answers.parse(stored.response), lane.teacher, lane.rounds.known_tools)
            outcome = AskOutcome(
                answer.status, answer, stored.cost, stored.cost_source, stored.price_stamp, stored.latency_s
            )
        self._record(lane, ask, prompt, outcome)

    def _record(self, lane: _Lane, ask: Ask, prompt: Prompt | None, outcome: AskOutcome) -> None:
        lane.rounds.record(lane.teacher.name, ask, outcome)
        counted = outcome.answer.counted.prompt_tokens if outcome.answer else None
        if prompt is not None and counted:
            lane.counted = Counted(prompt.positions, counted)
        lane.next()
        self.progress.num_asked += 1
        self._on_progress(self.progress)

    # ------------------------------------------------------------------------------------------------------ waiting

    def _put_off(self, lane: _Lane, seconds: float) -> None:
        heapq.heappush(self._later, (self.clock.monotonic() + seconds, next(self._numbers), lane))

    def _no_money(self, lane: _Lane, reached: CapReached) -> None:
        """Hold the lane back until a call in flight frees money; for good if none can."""
        if not reached.later:
            self.cap_reached = reached
        elif self._on_the_wire:
            self._without_money.append(lane)
        else:
            self._put_off(lane, POLL_S)  # another process has the money

    def _money_freed(self) -> None:
        for lane in self._without_money:
            self._put_off(lane, 0.0)
        self._without_money.clear()

    def _stop(self, pool: _Pool, reason: str) -> None:
        pool.stopped = pool.stopped or reason
        self.progress.stopped[pool.teacher.name] = pool.stopped

    # ------------------------------------------------------------------------------------------------------- ending

    def _lane_done(self, lane: _Lane) -> None:
        rounds, left = self._open[id(lane.rounds)]
        self._open[id(rounds)] = (rounds, left - 1)
        if left == 1:
            self._start_round(rounds)

    def _count(self, rounds: TraceRounds) -> None:
        tally = rounds.tally()
        self.tally += tally
        self._counted.add(rounds.trace.trace_id)  # with two sweeps, a trace comes twice
        self.progress.num_traces = len(self._counted)
        self.progress.num_steps += tally.num_steps
        self.progress.num_pairs += tally.num_pairs
        self._on_progress(self.progress)

    def _question(self, lane: _Lane, ask: Ask, prompt: Prompt) -> Question:
        teacher, trace = lane.teacher, lane.rounds.trace
        params: dict[str, Any] = {**teacher.params, "max_tokens": teacher.max_tokens}
        key = lane.rounds.prompts.key(teacher.route, prompt, params, ask.attempt)
        return Question(key, teacher.name, trace.trace_id, ask.step.step_id, ask.attempt)
