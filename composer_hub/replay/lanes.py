"""Lanes: one queue of questions per (trace, teacher), asked in step order so that the prefix cache pays.

In: the `TraceRounds` of each trace, a ledger, one client per teacher. Out: the finished `TraceRounds`. Started lanes
are finished before new ones begin. Among the lanes that are ready, the one whose cache expires first is next. The
concurrency of a teacher grows while it answers and shrinks when it replies "too many requests" (AIMD).

A trace is opened only if the cap is likely to pay for all its rounds (`purse`). A lane whose next call the cap refuses
ends, and the others continue. A stopped teacher and Ctrl-C end the handing out of work: calls in flight are waited for,
the ledger has the rest, and the same command continues.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from composer_hub.pairs.prompts import paired
from composer_hub.replay import answers
from composer_hub.replay.cascade import Ask, AskOutcome, AuditTally, TraceRounds, outcome_of
from composer_hub.replay.client import ChatRequest, Client, Reply
from composer_hub.replay.ledger import Busy, CapReached, Ledger, Overbilled, Reserved, Stored
from composer_hub.replay.pools import Lane, Pool
from composer_hub.replay.prompts import Counted, Prompt, marked
from composer_hub.replay.purse import Purse
from composer_hub.replay.retries import Again, RequestFailure, StopTeacher, Wait, decide, pause

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
    waiting: dict[str, str] = field(default_factory=dict)  # teacher -> reason
    stopped: dict[str, str] = field(default_factory=dict)  # teacher -> reason

    @property
    def cached_share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


class Scheduler:
    """Run the lanes of many traces over a few teachers. Call `run` once."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        ledger: Ledger,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        purse: Purse | None = None,
        on_finished: Callable[[TraceRounds, AuditTally], None] = lambda rounds, tally: None,
        patience_s: float = 0.0,
        on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
        on_note: Callable[[str], None] = lambda note: None,
    ) -> None:
        self._purse, self._patience_s, self._on_note = purse, patience_s, on_note
        self._on_finished = on_finished
        self._held: TraceRounds | None = None  # waits until open traces have ended
        self._stalled: set[int] = set()  # traces with a lane that the cap refused
        self.ledger, self.clock, self.rng = ledger, clock or Clock(), rng or random.Random()
        self.progress, self._on_progress = ReplayProgress(), on_progress
        self.tally = AuditTally()
        self.cap_reached: CapReached | None = None
        self.draining = False
        self._pools = {name: Pool(client.teacher, client) for name, client in clients.items()}
        self._later: list[tuple[float, int, Lane]] = []
        self._without_money: list[Lane] = []
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
                if self._finished:
                    while self._finished:
                        yield self._finished.pop()
                    continue  # traces whose answers are all stored end at once and leave room for others
                if not self._tasks and not self._has_work():
                    break
                await self._change()
            if self._error:
                raise self._error
            if self._purse:
                self.cap_reached = self.cap_reached or self._purse.refused
            for rounds, _ in list(self._open.values()):
                self._count(rounds)
                yield rounds
        finally:
            self.abandon()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -------------------------------------------------------------------------------------------------- handing out

    def _admit(self, todo: Iterator[TraceRounds]) -> None:
        """Open traces while a teacher that starts them has room and nothing to do, and the cap can finish them."""
        while not self.draining and self._wants_more():
            rounds, self._held = self._held or next(todo, None), None
            if rounds is None:
                if self._purse and (last := self._purse.last()):
                    self._start_round(last)
                elif not (self._purse and self._purse.keeps_traces_back):
                    self._entry_teachers = set()
                return
            verdict = self._purse.decide(rounds) if self._purse else self.cap_reached is None
            if verdict is None:
                self._held = rounds
                return
            if verdict:
                self._start_round(rounds)

    def _wants_more(self) -> bool:
        pools = [self._pools[name] for name in self._entry_teachers if not self._pools[name].stopped]
        most = 4 * max((pool.limit for pool in pools), default=0)
        return len(self._open) < most and any(pool.in_flight + len(pool.ready) < int(pool.limit) for pool in pools)

    def _start_round(self, rounds: TraceRounds) -> None:
        finished = id(rounds) not in self._stalled
        lanes = rounds.next_round() if finished else {}
        while not lanes and self._purse and self._purse.close(rounds, finished=finished):
            lanes = rounds.next_round()  # the money that is left pays for further steps
        if not lanes:
            self._open.pop(id(rounds), None)
            self._stalled.discard(id(rounds))
            self._count(rounds)
            self._finished.append(rounds)
            return
        if id(rounds) not in self._open:
            self._entry_teachers = set(lanes)
        self._open[id(rounds)] = (rounds, len(lanes))
        for name, asks in lanes.items():
            lane = Lane(rounds, self._pools[name].teacher, asks, next(self._numbers))
            self._plan(lane)
            self._pools[name].push(lane, self.clock.monotonic())

    def _plan(self, lane: Lane) -> None:
        self.ledger.plan(lane.rounds.question(lane.teacher, ask) for ask in lane.asks)

    def _launch(self) -> None:
        now = self.clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due = heapq.heappop(self._later)[2]
            self._pools[due.teacher.name].push(due, now)
        for pool in self._pools.values():
            while pool.has_room and not self.draining and not pool.stopped and pool.paused_until <= now:
                lane: Lane | None = pool.pop(now)
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
        return waiting or any(pool.ready for pool in alive)

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

    async def _advance(self, pool: Pool, lane: Lane) -> None:
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

    async def _step(self, pool: Pool, lane: Lane) -> bool:
        """Bring the lane's next question to an outcome; return False if it was put off."""
        ask = lane.asks[lane.at]
        prompts, teacher = lane.rounds.prompts, lane.teacher
        prompt = lane.rounds.prompt_of(ask)
        bound = prompts.bound_after(prompt, lane.counted)
        amount = teacher.price.worst_case(bound, teacher.max_tokens)
        try:
            question = lane.rounds.question(teacher, ask)
            stamp, names = teacher.price.stamp, self._names(lane)
            right = self.ledger.reserve(question, amount, price_stamp=stamp, names=names)
        except CapReached as reached:
            self._no_money(lane, reached)
            return False
        except Overbilled as error:
            self._stop(pool, str(error))
            return False
        if isinstance(right, Busy):
            self._put_off(lane, POLL_S)
            return False
        if isinstance(right, Stored):
            self._take_stored(lane, ask, prompt, right)
            return True
        return await self._send(pool, lane, ask, prompt, right)

    def _names(self, lane: Lane) -> set[str]:
        """Return the names of all teachers that share the endpoint of a lane: the judge may be one of the panel."""
        return {name for name, pool in self._pools.items() if pool.teacher.route == lane.teacher.route}

    async def _send(self, pool: Pool, lane: Lane, ask: Ask, prompt: Prompt, right: Reserved) -> bool:
        chat = paired(prompt.chat)
        wire = marked(chat, lane.last_length) if lane.teacher.cache_marks else chat
        sent = self.clock.monotonic()
        self.progress.num_requests += 1
        self._on_the_wire += 1
        try:
            tools = [] if ask.judged else lane.rounds.prompts.tools
            reply = await pool.client.ask(ChatRequest(wire, tools, lane.name))
        except BaseException:
            self.ledger.fail(right.try_id, "interrupted", cost=None)
            raise
        finally:
            self._on_the_wire -= 1
        now = self.clock.monotonic()
        lane.last_length, lane.warm_until = len(chat), now + lane.teacher.cache_ttl_s
        if isinstance(reply, RequestFailure):
            return self._failed(pool, lane, ask, right, reply, sent)
        pool.failures = 0
        pool.grew()
        self._back(pool)
        self._settle(pool, lane, ask, prompt, right, reply)
        self._money_freed()
        return True

    def _settle(self, pool: Pool, lane: Lane, ask: Ask, prompt: Prompt, right: Reserved, reply: Reply) -> None:
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
        if reason := self.ledger.overbilled(self._names(lane), lane.teacher.price.stamp):
            self._stop(pool, reason)  # now, because the run may have no other question for it
        cost = right.amount if answer.cost is None else answer.cost
        self.progress.spent += cost
        if self._purse:
            self._purse.spend(lane.rounds, cost)
        self.progress.prompt_tokens += answer.counted.prompt_tokens or 0
        self.progress.cached_tokens += answer.counted.cached_tokens
        outcome = AskOutcome(answer.status, answer, cost, answer.cost_source, lane.teacher.price.stamp, reply.latency_s)
        self._record(lane, ask, prompt, outcome)

    def _failed(self, pool: Pool, lane: Lane, ask: Ask, right: Reserved, failure: RequestFailure, sent: float) -> bool:
        """Apply the retry policy; after the last try the outcome is an abstention."""
        now = self.clock.monotonic()
        if failure.kind == "not_connected" and self._wait_for(pool, lane, right, now):
            return False
        lane.tries += 1
        putting_off = failure.cost == 0 and failure.retry_after_s is not None
        decision = decide(failure, lane.tries, lane.waits + 1, self.rng)
        final = not isinstance(decision, (Wait, Again, StopTeacher)) and decision.final
        self.ledger.fail(right.try_id, failure.kind, cost=failure.cost, final=final, request_id=failure.request_id)
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

    def _take_stored(self, lane: Lane, ask: Ask, prompt: Prompt, stored: Stored) -> None:
        self._record(lane, ask, prompt, outcome_of(stored, lane.teacher, lane.rounds.known_tools))

    def _record(self, lane: Lane, ask: Ask, prompt: Prompt | None, outcome: AskOutcome) -> None:
        lane.rounds.record(lane.teacher.name, ask, outcome)
        counted = outcome.answer.counted.prompt_tokens if outcome.answer else None
        if prompt is not None and counted:
            lane.counted = Counted(prompt.positions, counted)
        lane.next()
        self.progress.num_asked += 1
        self._on_progress(self.progress)

    # ------------------------------------------------------------------------------------------------------ waiting

    def _wait_for(self, pool: Pool, lane: Lane, right: Reserved, now: float) -> bool:
        """Wait for a server that is away, which costs nothing, then stop it; return False without patience."""
        pool.away_since = pool.away_since or now
        left = pool.away_since + self._patience_s - now
        if not self._patience_s:
            return False
        self.ledger.fail(right.try_id, "not_connected", cost=0)
        self._money_freed()
        name = pool.teacher.name
        if left <= 0:
            self._stop(pool, f"could not be reached for {self._patience_s / 60:.1f} min. Start it and run again")
            return True
        if name not in self.progress.waiting:
            self.progress.waiting[name] = "cannot be reached"
            self._on_note(
                f"Teacher {pool.teacher} cannot be reached; waiting for it, up to {left / 60:.1f} min (--patience)."
            )
        if pool.paused_until <= now:
            pool.pauses += 1
            pool.paused_until = now + min(pause(pool.pauses, self.rng), left)
        self._put_off(lane, pool.paused_until - now)
        return True

    def _back(self, pool: Pool) -> None:
        pool.away_since, pool.pauses = 0.0, 0
        if self.progress.waiting.pop(pool.teacher.name, ""):
            self._on_note(f"Teacher {pool.teacher.name} answers again.")

    def _put_off(self, lane: Lane, seconds: float) -> None:
        heapq.heappush(self._later, (self.clock.monotonic() + seconds, next(self._numbers), lane))

    def _no_money(self, lane: Lane, reached: CapReached) -> None:
        """Hold the lane back until a call in flight frees money; for good if none can."""
        if not reached.later:
            # Only this lane ends: other teachers' calls may cost a hundredth.
            self.cap_reached = reached
            self._stalled.add(id(lane.rounds))
            self._lane_done(lane)
        elif self._on_the_wire:
            self._without_money.append(lane)
        else:
            self._put_off(lane, POLL_S)  # another process has the money

    def _money_freed(self) -> None:
        for lane in self._without_money:
            self._put_off(lane, 0.0)
        self._without_money.clear()

    def _stop(self, pool: Pool, reason: str) -> None:
        pool.stopped = pool.stopped or reason
        self.progress.stopped[pool.teacher.name] = pool.stopped

    # ------------------------------------------------------------------------------------------------------- ending

    def _lane_done(self, lane: Lane) -> None:
        rounds, left = self._open[id(lane.rounds)]
        self._open[id(rounds)] = (rounds, left - 1)
        if left == 1:
            self._start_round(rounds)

    def _count(self, rounds: TraceRounds) -> None:
        tally = rounds.tally()
        self.tally += tally
        self._on_finished(rounds, tally)
        self._counted.add(rounds.trace.trace_id)  # with two sweeps, a trace comes twice
        self.progress.num_traces = len(self._counted)
        self.progress.num_steps += tally.num_steps
        self.progress.num_pairs += tally.num_pairs
        self._on_progress(self.progress)
