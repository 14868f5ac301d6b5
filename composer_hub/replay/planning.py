"""The plan of a replay: what each order would ask, cost and find.

In: traces, teachers in the order of asking, options, and the experience of earlier runs. Out: a `ReplayPlan`. Nothing
is sent. Dollars and pairs are expectations with a range (over all models that fit what was seen).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from composer_hub import exits
from composer_hub.money import NANO, show_usd, to_usd
from composer_hub.output import plural
from composer_hub.pairs.policy import Policy
from composer_hub.records import Step, Trace
from composer_hub.replay.cascade import Comparison, TraceRounds, share_of
from composer_hub.replay.experience import Experience, Habits
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.orders import Chances, Expectation, Model, chances, draws, interval
from composer_hub.replay.prompts import Prompts
from composer_hub.replay.purse import Estimate
from composer_hub.replay.teachers import Teacher, unlisted_notes

CACHE_BLOCK = 128  # tokens; caches hold whole blocks
SHARES = (0.1, 0.25, 0.5, 1.0)
"""Shares of a lane's steps for which its cost is computed; between them it is interpolated."""
LENGTHS = (0.5, 1.0, 3.0)
"""How far off the assumed length of an unknown teacher's answers may be."""
MAX_FURTHER = 2.0
"""A pair that only the dearer order finds may cost up to this many times a pair of the cheaper one."""


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
    num_steps: int = 0  # that it may be asked about
    prompt_tokens: int = 0
    uncached: int = 0
    in_order: int = 0
    worst: int = 0
    prompts: list[int] = field(default_factory=lambda: [0] * len(SHARES))  # cost of the prompts of a share of its steps
    answer: int = 0  # cost of one answer of its usual length

    def expected(self, share: float, length: float = 1.0) -> int:
        """Return the cost of asking it about a share of its steps, in order."""
        points = [(0.0, 0), *zip(SHARES, self.prompts, strict=True)]
        (low, below), (high, above) = next(
            (pair for pair in itertools.pairwise(points) if share <= pair[1][0]), (points[-2], points[-1])
        )
        prompts = below + (above - below) * (min(share, 1.0) - low) / (high - low)
        length = 1.0 if self.habits.answers else length
        return round(prompts * max(1.0, share) + share * self.num_steps * self.answer * length)


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """What an order is expected to cost and find; each with its range."""

    order: str
    shares: Mapping[str, float]  # teacher -> share of its steps
    cost: tuple[float, float, float]  # expected, lowest, highest, in nano-dollars
    pairs: tuple[float, float, float]
    draws: tuple[tuple[float, float], ...]  # cost and pairs, in each model that fits what was seen

    @property
    def per_pair(self) -> float:
        """Return what a pair is expected to cost, in nano-dollars."""
        return self.cost[0] / self.pairs[0] if self.pairs[0] else math.inf

    def under(self, cap: int) -> float:
        """Return the pairs to expect under a cap, in proportion to the money."""
        return _under(cap, self.cost[0], self.pairs[0])[1]

    def as_row(self, cap: int) -> dict[str, Any]:
        """Return the row that `replay plan` prints."""
        cost, low, high = (to_usd(round(value)) for value in self.cost)
        pairs = self.pairs[0]
        return {
            "order": self.order,
            "expected_usd": cost,
            "usd_range": [low, high],
            "expected_pairs": round(pairs, 1),
            "pairs_range": [round(value, 1) for value in self.pairs[1:]],
            "usd_per_pair": self.per_pair / NANO if pairs else None,
            "pairs_under_cap": round(self.under(cap), 1),
        }


@dataclass
class ReplayPlan:
    """The questions and the cost of a run."""

    options: ReplayOptions
    experience: Experience
    teachers: list[TeacherShare] = field(default_factory=list)
    num_traces: int = 0
    num_steps: int = 0
    excluded: dict[str, int] = field(default_factory=dict)  # reason -> (step, teacher) pairs
    smallest_lane: int | None = None
    panels: Counter[tuple[str, ...]] = field(default_factory=Counter)  # teachers that may be asked -> steps

    @property
    def panel(self) -> list[Teacher]:
        """Return the teachers in the order of asking."""
        return [part.teacher for part in self.teachers]

    @property
    def expected(self) -> int:
        return round(self.order(self.options.order).cost[0])

    @property
    def worst(self) -> int:
        return sum(teacher.worst for teacher in self.teachers)

    @property
    def num_expected(self) -> int:
        """Return the number of questions that the order will probably ask."""
        shares = self.order(self.options.order).shares
        return round(sum(shares[part.teacher.name] * part.num_steps for part in self.teachers))

    @property
    def problem(self) -> str:
        """Return why no step can give a pair, if that is certain already."""
        needed, num_teachers = self.options.agreement.min_agree, len(self.teachers)
        if num_teachers >= needed:
            return ""
        return f"No step can give a pair: {needed} teachers must agree, but only {num_teachers} will be asked."

    def order(self, name: str) -> OrderPlan:
        """Return what an order is expected to cost and find."""
        if name not in self._orders:
            self._orders[name] = self._order(name)
        return self._orders[name]

    def choose(self, cap: int) -> tuple[str, str]:
        """Return the order that `auto` takes under a cap, and the reason.

        It is the one with the cheaper pairs, unless the other finds further pairs that are worth their money in every
        model that fits what was seen. Before teachers are known, the number of further pairs is a guess.
        """
        plans = [self.order("cascade"), self.order("sequential")]
        cheap, dear = sorted(plans, key=lambda one: (one.per_pair, one.cost[0]))
        price = _further(cap, (cheap.cost[0], cheap.pairs[0]), (dear.cost[0], dear.pairs[0]))
        highest = max([price, *(_further(cap, *both) for both in zip(cheap.draws, dear.draws, strict=True))])
        reason = f"a pair by {cheap.order} costs about {show_usd(round(cheap.per_pair))}" if cheap.pairs[0] else ""
        if math.isinf(price):
            return cheap.order, f"{reason or 'no pair is expected'}; {dear.order} is not expected to find more"
        reason = f"{reason}, and each further pair by {dear.order} about {show_usd(round(price))}"
        if highest <= MAX_FURTHER * cheap.per_pair:
            return dear.order, reason
        return cheap.order, reason + ("" if math.isinf(highest) else f", or up to {show_usd(round(highest))}")

    def as_rows(self) -> list[dict[str, Any]]:
        """Return one row per teacher, in dollars."""
        shares = self.order(self.options.order).shares
        return [
            {
                "teacher": part.teacher.name,
                "family": part.teacher.family,
                "steps": part.num_steps,
                "expected_steps": round(shares[part.teacher.name] * part.num_steps),
                "prompt_tokens": part.prompt_tokens,
                "answer_tokens": round(part.habits.mean_output),
                "worst_usd": to_usd(part.worst),
                "uncached_usd": to_usd(part.uncached),
                "in_order_usd": to_usd(part.in_order),
                "expected_usd": to_usd(part.expected(shares[part.teacher.name])),
                "price_stamp": part.teacher.price.stamp,
            }
            for part in self.teachers
        ]

    def notes(self, cap: int) -> Iterator[str]:
        """Yield sentences about the plan under a cap."""
        if self.problem:
            yield self.problem
        plan = self.order(self.options.order)
        yield (
            f"{plural(self.num_traces, 'trace')}, {plural(self.num_steps, 'step')}, order {self.options.order}: "
            f"about {show_usd(self.expected)} expected, {show_usd(self.worst)} at worst, cap {show_usd(cap)}; "
            f"about {plan.pairs[0]:,.0f} pairs ({plan.pairs[1]:,.0f} to {plan.pairs[2]:,.0f})."
        )
        for reason, count in self.excluded.items():
            yield f"Left out, {reason}: {plural(count, '(step, teacher) pair')}."
        if self.expected > cap:
            yield f"The cap will not cover everything: about {plan.under(cap):,.0f} pairs, trace by trace."
        if not self.experience.knows(self.panel):
            yield "Lengths of answers and agreement are assumptions until these teachers were asked (--learn-from RUN)."
        yield from unlisted_notes(self.panel)
        yield from sorted({part.teacher.provider.cap_advice for part in self.teachers} - {""})

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

    def estimate(self, rounds: TraceRounds, num_steps: int | None = None) -> Estimate:
        """Return the expected cost of a trace, or of its first steps."""
        ranks = rounds.ranks()
        names = dict(itertools.islice(((step, panel) for step, panel in ranks.items() if panel), num_steps))
        cost = headroom = 0
        for place, part in enumerate(self.teachers):
            steps = [step for step in rounds.trace.steps if part.teacher.name in names.get(step.step_id, ())]
            asked = [step for step in steps if share_of(step.step_id, "plan") < self._shares[part.teacher.name]]
            if asked:
                lane = _lane_of(rounds.prompts, asked, part.teacher, part.habits)
                cost += lane.in_order + len(asked) * part.answer
            if steps and place < self.options.agreement.min_agree:
                # Without the dear last teacher a trace may still give pairs, without the first ones never.
                tokens = int(rounds.prompts.num_bytes(steps[-1]) / part.habits.bytes_per_token)
                headroom = max(headroom, part.teacher.price.worst_case(tokens, part.teacher.max_tokens))
        return Estimate(cost, headroom)

    # --------------------------------------------------------------------------------------------------- inside

    @functools.cached_property
    def _orders(self) -> dict[str, OrderPlan]:
        return {}

    def _order(self, name: str) -> OrderPlan:
        shares, pairs = self._expect(name, {panel: one for panel, (one, _) in self._chances.items()})
        costs, draws = [], []
        for number in range(min((len(many) for _, many in self._chances.values()), default=0)):
            drawn, num = self._expect(name, {panel: many[number] for panel, (_, many) in self._chances.items()})
            draws.append((float(self._cost(drawn)), num))
            costs += [self._cost(drawn, length) for length in LENGTHS]
        cost = float(self._cost(shares))
        found = [num for _, num in draws]
        return OrderPlan(
            name, shares, (cost, *interval([*costs, cost])), (pairs, *interval([*found, pairs])), tuple(draws)
        )

    @functools.cached_property
    def _shares(self) -> Mapping[str, float]:
        return self.order(self.options.order).shares

    @functools.cached_property
    def _chances(self) -> dict[tuple[str, ...], tuple[Chances, list[Chances]]]:
        """Return the expected chances of each panel, and those of the models that fit what was seen."""
        found = {}
        for panel in self.panels:
            seen = self.experience.seen(panel)
            found[panel] = chances(len(panel), seen, Model()), list(draws(len(panel), seen))
        return found

    def _expect(self, order: str, of: Mapping[tuple[str, ...], Chances]) -> tuple[dict[str, float], float]:
        """Return the share of its steps that each teacher is asked about, and the number of pairs."""
        asked, pairs = Counter[str](), 0.0
        for panel, num_steps in self.panels.items():
            expected: Expectation = of[panel].expect(order, self.options.agreement, self.options.audit)
            for place, name in enumerate(panel):
                twice = self.options.repeat if place == 0 else 0.0
                asked[name] += num_steps * (expected.asked[place] + twice)  # type: ignore[assignment]
            pairs += num_steps * expected.pair
        return {
            part.teacher.name: asked[part.teacher.name] / part.num_steps if part.num_steps else 0.0
            for part in self.teachers
        }, pairs

    def _cost(self, shares: Mapping[str, float], length: float = 1.0) -> int:
        return sum(part.expected(shares[part.teacher.name], length) for part in self.teachers)


def _under(cap: int, cost: float, pairs: float) -> tuple[float, float]:
    """Return what is spent and found under a cap: pairs in proportion to the money."""
    share = min(1.0, cap / cost) if cost else 1.0
    return cost * share, pairs * share


def _further(cap: int, cheap: tuple[float, float], dear: tuple[float, float]) -> float:
    """Return what each pair costs that only the dearer of two orders finds under a cap; each is (cost, pairs)."""
    (cost, pairs), (more_cost, more_pairs) = _under(cap, *cheap), _under(cap, *dear)
    if more_cost <= cost:
        return 0.0 if more_pairs >= pairs else math.inf
    return (more_cost - cost) / (more_pairs - pairs) if more_pairs > pairs else math.inf


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
    experience: Experience | None = None,
) -> ReplayPlan:
    """Return the questions and the cost of replaying these traces. Nothing is sent."""
    learned = experience or Experience()
    result = ReplayPlan(options or ReplayOptions(), learned)
    for teacher in teachers:
        habits = learned.of(teacher.name)
        rates = teacher.price.rates
        answer = min(teacher.max_tokens, habits.mean_output) * rates.output + rates.request
        result.teachers.append(TeacherShare(teacher, habits, answer=round(answer / 1000)))
    for trace in traces:
        result.num_traces += 1
        result.num_steps += len(trace.steps)
        _plan_trace(result, TraceRounds(trace, teachers, result.options, no_comparison))
    return result


def _plan_trace(result: ReplayPlan, rounds: TraceRounds) -> None:
    ranks = rounds.ranks()
    for reason in rounds.exclusions():
        result.excluded[reason] = result.excluded.get(reason, 0) + 1
    result.panels.update(tuple(names) for names in ranks.values() if names)
    for part in result.teachers:
        steps = [step for step in rounds.trace.steps if part.teacher.name in ranks.get(step.step_id, ())]
        if not steps:
            continue
        lane = _lane_of(rounds.prompts, steps, part.teacher, part.habits, with_answers=True)
        part.num_steps += len(steps)
        part.prompt_tokens += lane.prompt_tokens
        part.uncached += lane.uncached
        part.in_order += lane.in_order
        part.worst += lane.worst
        for place, share in enumerate(SHARES):
            asked = [step for step in steps if share_of(step.step_id, "plan") < share]
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


def no_comparison(trace: Trace, policy: Policy) -> Comparison:
    raise AssertionError("a plan compares no actions")
