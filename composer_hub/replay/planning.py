"""The plan of a replay: the questions, cost and pairs of each order.

In: traces, teachers in the order of asking, options, and the facts of a pilot. Out: a `ReplayPlan`. Nothing is sent.

With a pilot, every order is played on the answers to its steps, so that dollars and pairs are expectations with a range
(drawing the steps again). Without one, lengths of answers and agreement are unknown, so a plan only bounds them.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from composer_hub import exits
from composer_hub.money import NANO, show_usd, to_usd
from composer_hub.output import Range, plural
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.same_effect import BOTH_ORDERS, question
from composer_hub.records import Step, Trace
from composer_hub.replay.cascade import Compare, Comparison, TraceRounds, share_of
from composer_hub.replay.facts import CACHE_BLOCK, Facts, Habits, Places
from composer_hub.replay.options import AUTO, ReplayOptions
from composer_hub.replay.orders import Codes, has_pair, num_asked, num_next
from composer_hub.replay.prompts import Prompts, alone
from composer_hub.replay.purse import Estimate
from composer_hub.replay.teachers import Teacher, unlisted_notes
from composer_hub.replay.worth import after

SHARES = (0.1, 0.25, 0.5, 1.0)
"""Shares of a lane's steps for which its cost is computed; between them it is interpolated."""
LENGTHS = (0.5, 3.0)
"""How far off the assumed length of an unknown teacher's answers may be."""
NUM_DRAWS = 200  # of the pilot's steps, for a range
RANGE = 0.05, 0.95
DEAR = 5
"""Times the median price of the pairs so far, above which `auto` leaves a pair, unless the user names a price."""
RULING_TOKENS = 80
"""Tokens of a judge's answer, before it was asked."""


@dataclass(frozen=True, slots=True)
class LaneCost:
    """The cost of one lane, in nano-dollars."""

    prompt_tokens: int
    uncached: int  # every prompt at the input price
    in_order: int  # steps in order, prefixes read from the cache
    worst: int  # the reservations for all of it
    need: int  # the smallest cap that finishes it: the last call is reserved in full after all others were paid


@dataclass(slots=True)
class TeacherShare:
    """The part of a plan that falls to one teacher, in nano-dollars."""

    teacher: Teacher
    habits: Habits
    spent: int = 0  # for the pilot
    num_steps: int = 0  # that it may be asked about
    num_pilot: int = 0  # of these, steps of the pilot
    prompt_tokens: int = 0
    uncached: int = 0
    in_order: int = 0
    worst: int = 0
    prompts: list[int] = field(default_factory=lambda: [0] * len(SHARES))  # cost of the prompts of a share of its steps
    answer: int = 0  # cost of one answer of its usual length

    def expected(self, share: float, length: float = 1.0) -> int:
        """Return the cost of asking it about a share of its steps, in order; the pilot's are paid."""
        points = [(0.0, 0), *zip(SHARES, self.prompts, strict=True)]
        (low, below), (high, above) = next(
            (pair for pair in itertools.pairwise(points) if share <= pair[1][0]), (points[-2], points[-1])
        )
        prompts = below + (above - below) * (min(share, 1.0) - low) / (high - low)
        answers = share * (self.num_steps - self.num_pilot) * self.answer * length
        return self.spent + round(prompts * max(1.0, share) + answers)

    def mean_question(self) -> float:
        """Return the expected cost of one question."""
        return self.expected(1.0) / self.num_steps if self.num_steps else 0.0


@dataclass(slots=True)
class JudgeShare:
    """The part of a plan that falls to the judge, which is asked about would-be pairs only."""

    teacher: Teacher
    habits: Habits
    spent: int = 0  # for the pilot
    num_steps: int = 0  # about which it may be asked
    prompt_tokens: int = 0  # of a question about each of them

    @property
    def answer_tokens(self) -> int:
        return round(self.habits.mean_output) if self.habits.answers else RULING_TOKENS

    def expected(self, num_pairs: float) -> int:
        """Return the cost of asking about pairs in both orders, in nano-dollars."""
        tokens = self.prompt_tokens / self.num_steps if self.num_steps else 0
        return round(num_pairs * len(BOTH_ORDERS) * self.teacher.price.cost(round(tokens), self.answer_tokens))

    def as_row(self, num_pairs: float | None) -> dict[str, Any]:
        """Return its row of `replay plan`; at worst every step is a would-be pair. None: nothing is known yet."""
        price, worst = self.teacher.price, self.expected(self.num_steps)
        return {
            "teacher": self.teacher.name,
            "family": self.teacher.family,
            "steps": self.num_steps,
            "expected_steps": None if num_pairs is None else round(num_pairs),
            "prompt_tokens": self.prompt_tokens,
            "answer_tokens": self.answer_tokens,
            "worst_usd": to_usd(worst),
            "uncached_usd": to_usd(worst),
            "in_order_usd": to_usd(worst),
            "pilot_usd": to_usd(self.spent),
            "expected_usd": None if num_pairs is None else to_usd(self.expected(num_pairs)),
            "price_stamp": price.stamp,
        }


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """The expected cost and pairs of an order."""

    order: str
    shares: Mapping[str, float]  # teacher -> share of its steps
    cost: float  # nano-dollars
    pairs: float
    cost_range: tuple[float, float]
    pairs_range: tuple[float, float]
    is_known: bool  # by a pilot; otherwise only the ranges count

    def as_row(self, cap: int) -> dict[str, Any]:
        """Return the row that `replay plan` prints."""
        share = min(1.0, cap / self.cost) if self.cost else 1.0
        return {
            "order": self.order,
            "expected_usd": to_usd(round(self.cost)) if self.is_known else None,
            "usd_range": Range(*(to_usd(round(value)) for value in self.cost_range)),
            "expected_pairs": round(self.pairs, 1) if self.is_known else None,
            "pairs_range": Range(*(round(value, 1) for value in self.pairs_range)),
            "usd_per_pair": self.cost / self.pairs / NANO if self.is_known and self.pairs else None,
            "pairs_under_cap": round(self.pairs * share, 1) if self.is_known else None,
        }


@dataclass
class ReplayPlan:
    """The questions and the cost of a run."""

    options: ReplayOptions
    facts: Facts
    pilot: Places = field(default_factory=dict)  # the steps that are asked of every teacher
    teachers: list[TeacherShare] = field(default_factory=list)
    num_traces: int = 0
    num_steps: int = 0
    num_late: int = 0  # steps that may be asked about, in the last part of a long trace
    askable: dict[str, int] = field(default_factory=dict)  # trace -> steps that may be asked about
    excluded: dict[str, int] = field(default_factory=dict)  # reason -> (step, teacher) pairs
    smallest_lane: int | None = None
    panels: Counter[tuple[str, ...]] = field(default_factory=Counter)  # teachers that may be asked -> steps
    judge: JudgeShare | None = None

    @property
    def panel(self) -> list[Teacher]:
        """Return the teachers in the order of asking."""
        return [part.teacher for part in self.teachers]

    @property
    def is_known(self) -> bool:
        """Return whether every teacher has answered the steps of a pilot."""
        return all(self.facts.of(teacher.name).answers for teacher in self.panel)

    @property
    def pilot_share(self) -> float:
        """Return the share of the steps that are in the pilot."""
        return sum(map(len, self.pilot.values())) / max(1, sum(self.askable.values()))

    @property
    def worst(self) -> int:
        return sum(teacher.worst for teacher in self.teachers)

    @property
    def num_expected(self) -> int:
        """Return the number of questions that the order will probably ask."""
        shares = self.order(self.options.order).shares
        return round(sum(shares[part.teacher.name] * part.num_steps for part in self.teachers))

    def order(self, name: str) -> OrderPlan:
        """Return the expected cost and pairs of an order."""
        if name not in self._orders:
            self._orders[name] = self._order(name)
        return self._orders[name]

    def as_rows(self) -> list[dict[str, Any]]:
        """Return one row per teacher and one for the judge, in dollars."""
        order = self.order(self.options.order)
        shares = order.shares
        judge = [self.judge.as_row(order.pairs if self.is_known else None)] if self.judge else []
        return [
            {
                "teacher": part.teacher.name,
                "family": part.teacher.family,
                "steps": part.num_steps,
                "expected_steps": round(shares[part.teacher.name] * part.num_steps) if self.is_known else None,
                "prompt_tokens": part.prompt_tokens,
                "answer_tokens": round(part.habits.mean_output) if self.is_known else None,
                "worst_usd": to_usd(part.worst),
                "uncached_usd": to_usd(part.uncached),
                "in_order_usd": to_usd(part.in_order),
                "pilot_usd": to_usd(part.spent),
                "expected_usd": to_usd(part.expected(shares[part.teacher.name])) if self.is_known else None,
                "price_stamp": part.teacher.price.stamp,
            }
            for part in self.teachers
        ] + judge

    def notes(self, cap: int) -> Iterator[str]:
        """Yield sentences about the plan under a cap."""
        yield from self.panel_notes()
        plan = self.order(self.options.order)
        about = f"{plural(self.num_traces, 'trace')}, {plural(self.num_steps, 'step')}, order {self.options.order}: "
        low, high = (show_usd(round(value)) for value in plan.cost_range)
        fewest, most = (f"{value:,.0f}" for value in plan.pairs_range)
        if self.is_known:
            yield (
                f"{about}about {show_usd(round(plan.cost))} ({low} to {high}), {show_usd(self.worst)} at worst, cap "
                f"{show_usd(cap)}; about {plan.pairs:,.0f} pairs ({fewest} to {most}), by the answers to "
                f"{plural(self.facts.num_steps, 'step')}."
            )
        else:
            yield (
                f"{about}{low} to {high}, {show_usd(self.worst)} at worst, cap {show_usd(cap)}; at most {most} pairs. "
                "How long these teachers' answers are, and how often they agree, is unknown until they are asked: "
                "--pilot buys the answers to a few steps and plans by them."
            )
        for reason, count in self.excluded.items():
            yield f"Left out, {reason}: {plural(count, '(step, teacher) pair')}."
        if self.is_known and plan.cost > cap:
            yield f"The cap will not cover everything: about {plan.as_row(cap)['pairs_under_cap']:,.0f} pairs."
        yield from unlisted_notes(self.panel)
        yield from sorted({part.teacher.provider.cap_advice for part in self.teachers} - {""})

    def panel_notes(self) -> Iterator[str]:
        """Yield notes on what the number of teachers means for pairs, unless that is obvious."""
        policy, num = self.options.agreement, len(self.teachers)
        majority = policy.needed(num)
        if reason := policy.too_few(num):
            yield reason
        elif majority > policy.min_agree:
            yield (
                f"Of {num} teachers {majority} must agree, whatever the order: a pair is what all of them would give. "
                "Of three teachers, two are enough."
            )

    def check(self, cap: int) -> None:
        """Refuse a cap that cannot finish even the smallest lane."""
        if self.num_steps == 0:
            raise exits.NothingToDo("The traces have no steps.")
        if self.smallest_lane is None:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.excluded.items())
            raise exits.NothingToDo(f"No teacher may be asked about any step ({reasons}).")
        if cap < self.smallest_lane:
            raise exits.UsageError(
                f"--max-usd {show_usd(cap)} cannot finish the smallest lane (one teacher through one trace), which "
                f"needs {show_usd(self.smallest_lane)}. Raise it, take a cheaper teacher, or a smaller --max-tokens."
            )

    def rounds(self, trace: Trace, compare: Compare) -> TraceRounds:
        """Return the rounds of a trace under this plan."""
        in_full = self.pilot.get(trace.trace_id, ())
        return TraceRounds(trace, self.panel, self.options, compare, in_full=in_full, pilot_share=self.pilot_share)

    def estimate(self, rounds: TraceRounds, num_steps: int | None = None) -> Estimate:
        """Return the expected cost of a trace, or of its first steps."""
        ranks = rounds.ranks()
        names = dict(itertools.islice(((step, panel) for step, panel in ranks.items() if panel), num_steps))
        shares = self.order(self.options.order).shares
        cost = headroom = 0
        for place, part in enumerate(self.teachers):
            steps = [step for step in rounds.trace.steps if part.teacher.name in names.get(step.step_id, ())]
            asked = [step for step in steps if share_of(step.step_id, "plan") < shares[part.teacher.name]]
            if asked:
                lane = _lane_of(rounds.prompts, asked, part.teacher, part.habits)
                cost += lane.in_order + len(asked) * part.answer
            if steps and place < self.options.agreement.min_agree:
                # Without the costly last teacher a trace may still give pairs, without the first ones never.
                tokens = int(rounds.prompts.num_bytes(steps[-1]) / part.habits.bytes_per_token)
                headroom = max(headroom, part.teacher.price.worst_case(tokens, part.teacher.max_tokens))
        if self.judge and self.num_steps:
            cost += self.judge.expected(self.order(self.options.order).pairs * len(names) / self.num_steps)
        return Estimate(cost, headroom)

    def question(self, rounds: TraceRounds, step: Step, teacher: Teacher) -> int:
        """Return the expected cost of one question whose lane has just asked about the step before."""
        part = next(one for one in self.teachers if one.teacher.name == teacher.name)
        steps = (*rounds.trace.steps[max(0, step.index - 1) : step.index], step)
        both = _lane_of(rounds.prompts, steps, teacher, part.habits).in_order
        before = _lane_of(rounds.prompts, steps[:-1], teacher, part.habits).in_order if len(steps) > 1 else 0
        return both - before + part.answer

    # --------------------------------------------------------------------------------------------------- inside

    @functools.cached_property
    def _orders(self) -> dict[str, OrderPlan]:
        return {}

    def _order(self, name: str) -> OrderPlan:
        lines = {panel: self.facts.lines_of(panel) for panel in self.panels}
        shares, pairs = self._play(name, lines)
        cost = float(self._cost(shares) + self._judging(pairs))
        if self.is_known:
            costs, found = [cost], [pairs]
            for rng in map(random.Random, range(NUM_DRAWS)):
                drawn = {panel: _drawn(of, rng) for panel, of in lines.items()}
                their_shares, their_pairs = self._play(name, drawn)
                costs.append(float(self._cost(their_shares) + self._judging(their_pairs)))
                found.append(their_pairs)
            return OrderPlan(name, shares, cost, pairs, _range(costs), _range(found), True)
        fewest = self._play(name, {panel: {(-1,) * len(panel): 1.0} for panel in self.panels})[0]
        most = self._play("sequential" if name == AUTO else name, {
            panel: {tuple(range(1, len(panel) + 1)): 1.0} for panel in self.panels
        })[0]  # fmt: skip
        num_steps = sum(count for panel, count in self.panels.items() if len(panel) >= self.options.agreement.min_agree)
        costs = [float(self._cost(fewest, LENGTHS[0])), float(self._cost(most, LENGTHS[1]) + self._judging(num_steps))]
        return OrderPlan(name, shares, cost, pairs, (costs[0], costs[1]), (0.0, float(num_steps)), False)

    def _play(
        self, order: str, lines: Mapping[tuple[str, ...], Mapping[Codes, float]]
    ) -> tuple[dict[str, float], float]:
        """Return the share of its steps that each teacher is asked about, and the number of pairs."""
        asked, pairs, audit = Counter[str](), 0.0, self.options.audit
        late_share = self.num_late / max(1, sum(self.askable.values()))
        for panel, num_steps in self.panels.items():
            total = sum(lines[panel].values())
            for codes, weight in lines[panel].items():
                for late, part in ((False, 1 - late_share), (True, late_share)):
                    share = weight / total * part * num_steps
                    end = num_asked(self._next_of(order, panel, late=late), codes)
                    for place, name in enumerate(panel):
                        asked[name] += share * (1.0 if place < end else audit)  # type: ignore[assignment]
                    pairs += share * (
                        (1 - audit) * has_pair(codes[:end], self.options.agreement)
                        + audit * has_pair(codes, self.options.agreement)
                    )
            if panel:
                asked[panel[0]] += num_steps * self.options.repeat  # type: ignore[assignment]
        return {
            part.teacher.name: asked[part.teacher.name] / part.num_steps if part.num_steps else 0.0
            for part in self.teachers
        }, pairs

    def _next_of(self, order: str, panel: tuple[str, ...], *, late: bool) -> Callable[[Codes, int], int]:
        """Return the rule by which an order asks, for a step of mean price."""
        policy = self.options.agreement
        if order != AUTO:
            return lambda codes, left: num_next(order, codes, left, policy, late=late)
        parts = {part.teacher.name: part.mean_question() for part in self.teachers}
        lines = self.facts.lines_of(panel)

        def price(codes: Codes) -> float:
            chance, asked = after(lines, codes, policy)
            costs = (share * parts[name] for share, name in zip(asked, panel[len(codes) :], strict=True))
            return sum(costs) / chance if chance else math.inf

        named = self.options.max_usd_per_pair
        limit = DEAR * price(()) if named is None else named * NANO
        return lambda codes, left: num_next(order, codes, left, policy) if price(codes) <= limit else 0

    def _judging(self, num_pairs: float) -> int:
        return self.judge.expected(num_pairs) if self.judge else 0

    def _cost(self, shares: Mapping[str, float], length: float = 1.0) -> int:
        return sum(part.expected(shares[part.teacher.name], length) for part in self.teachers)


def _drawn(lines: Mapping[Codes, float], rng: random.Random) -> dict[Codes, float]:
    """Draw as many steps again as were seen."""
    total = round(sum(lines.values()))
    found = rng.choices(list(lines), weights=list(lines.values()), k=total)
    return {codes: float(count) for codes, count in Counter(found).items()}


def _range(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    low, high = (ordered[round(share * (len(ordered) - 1))] for share in RANGE)
    return low, high


def lane_cost(
    prompts: Sequence[tuple[int, int]],
    teacher: Teacher,
    output_tokens: int,
    bounds: Sequence[int] | None = None,
    hit_rate: float = 1.0,
) -> LaneCost:
    """Return the cost of asking prompts in order, each given as (tokens, tokens shared with the prompt before)."""
    price, rates = teacher.price, teacher.price.rates
    explicit = rates.write != rates.input
    uncached = in_order = worst = last = step = 0
    for place, (tokens, shared) in enumerate(prompts):
        usable = price.caches and shared >= teacher.cache_min_tokens
        cached = int(shared * hit_rate) // CACHE_BLOCK * CACHE_BLOCK if usable else 0
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
    options: ReplayOptions | None = None,
    *,
    facts: Facts | None = None,
    pilot: Places | None = None,
) -> ReplayPlan:
    """Return the questions and the cost of replaying these traces. Nothing is sent."""
    known = facts or Facts()
    result = ReplayPlan(options or ReplayOptions(), known, pilot or {})
    for teacher in teachers:
        habits, rates = known.of(teacher.name), teacher.price.rates
        answer = min(teacher.max_tokens, habits.mean_output) * rates.output + rates.request
        spent = known.spent.get(teacher.name, 0)
        result.teachers.append(TeacherShare(teacher, habits, spent, answer=round(answer / 1000)))
    if judge := result.options.judge:
        result.judge = JudgeShare(judge, known.of(judge.name), known.spent.get(judge.name, 0))
    for trace in traces:
        result.num_traces += 1
        result.num_steps += len(trace.steps)
        _plan_trace(result, result.rounds(trace, _no_comparison))
    return result


def _plan_trace(result: ReplayPlan, rounds: TraceRounds) -> None:
    ranks = rounds.ranks()
    for reason in rounds.exclusions():
        result.excluded[reason] = result.excluded.get(reason, 0) + 1
    result.panels.update(tuple(names) for names in ranks.values() if names)
    result.askable[rounds.trace.trace_id] = rounds.num_askable
    result.num_late += rounds.num_late
    paid = rounds.pilot_ids
    if result.judge:
        for step in rounds.trace.steps:
            if ranks.get(step.step_id):
                # The teachers' action is not known; it is about as long as the student's.
                prompt = alone(question(rounds.trace, step, rounds.trace.messages[step.action], 0))
                result.judge.num_steps += 1
                result.judge.prompt_tokens += int(prompt.num_bytes / result.judge.habits.bytes_per_token) + 1
    for part in result.teachers:
        steps = [step for step in rounds.trace.steps if part.teacher.name in ranks.get(step.step_id, ())]
        if not steps:
            continue
        lane = _lane_of(rounds.prompts, steps, part.teacher, part.habits, with_answers=True)
        part.num_steps += len(steps)
        part.num_pilot += sum(step.step_id in paid for step in steps)
        part.prompt_tokens += lane.prompt_tokens
        part.uncached += lane.uncached
        part.in_order += lane.in_order
        part.worst += lane.worst
        for place, share in enumerate(SHARES):
            asked = [step for step in steps if step.step_id not in paid and share_of(step.step_id, "plan") < share]
            part.prompts[place] += _lane_of(rounds.prompts, asked, part.teacher, part.habits).in_order
        result.smallest_lane = min(lane.need, result.smallest_lane or lane.need)


def _lane_of(
    prompts: Prompts, steps: Sequence[Step], teacher: Teacher, habits: Habits, *, with_answers: bool = False
) -> LaneCost:
    sizes: list[tuple[int, int]] = []
    bounds: list[int] = []
    before: list[tuple[int, int]] = []
    for step in steps:
        here = prompts.sizes(step)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, here, strict=False))
        shared = sum(size for _, (_, size) in same)
        tools, per_token = prompts.tool_bytes, habits.bytes_per_token
        whole = int((tools + sum(size for _, size in here)) / per_token) + 1
        sizes.append((whole, int((tools + shared) / per_token) + 1 if before else 0))
        if with_answers:
            bounds.append(prompts.of(step).bound)
        before = here
    output = round(min(teacher.max_tokens, habits.mean_output)) if with_answers else 0
    return lane_cost(sizes, teacher, output, bounds or None, habits.hit_rate)


def _no_comparison(trace: Trace, policy: Policy) -> Comparison:
    raise AssertionError("a plan compares no actions")
