"""The plan of a replay: how many questions each teacher would get, and what they would cost.

In: traces, teachers in order of price, options. Out: a `ReplayPlan`. Nothing is sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from composer_hub import exits
from composer_hub.money import show_usd, to_usd
from composer_hub.pairs.policy import Policy
from composer_hub.records import Step, Trace
from composer_hub.replay.cascade import Comparison, TraceRounds, share_of
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.prompts import Prompts, expected_tokens
from composer_hub.replay.teachers import Teacher

CACHE_BLOCK = 128  # tokens; caches hold whole blocks

# The share of the steps about which a teacher is asked: the first one, those that must agree with it, each further one.
# Simulated with 2 of 3 teachers, 55 % easy steps and correlated errors; an expectation for planning, not a limit.
EXPECTED_SHARE: Mapping[str, tuple[float, float, float]] = {
    "all": (1.0, 1.0, 1.0),
    "sequential": (1.0, 1.0, 0.33),
    "cascade": (1.0, 0.37, 0.23),
}


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
    num_steps: int = 0  # that it may be asked about
    num_expected: int = 0  # questions that the order will probably ask
    prompt_tokens: int = 0
    uncached: int = 0
    in_order: int = 0
    expected: int = 0  # in order, for the expected steps
    worst: int = 0


@dataclass(slots=True)
class ReplayPlan:
    """The questions and the cost of a run."""

    options: ReplayOptions
    teachers: list[TeacherShare] = field(default_factory=list)
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

    @property
    def num_expected(self) -> int:
        return sum(teacher.num_expected for teacher in self.teachers)

    @property
    def problem(self) -> str:
        """Return why no step can give a pair, if that is certain already."""
        needed, num_teachers = self.options.agreement.min_agree, len(self.teachers)
        if num_teachers >= needed:
            return ""
        return f"No step can give a pair: {needed} teachers must agree, but only {num_teachers} will be asked."

    def as_rows(self) -> list[dict[str, Any]]:
        """Return one row per teacher, in dollars."""
        return [
            {
                "teacher": part.teacher.name,
                "family": part.teacher.family,
                "steps": part.num_steps,
                "expected_steps": part.num_expected,
                "prompt_tokens": part.prompt_tokens,
                "worst_usd": to_usd(part.worst),
                "uncached_usd": to_usd(part.uncached),
                "in_order_usd": to_usd(part.in_order),
                "expected_usd": to_usd(part.expected),
                "price_stamp": part.teacher.price.stamp,
            }
            for part in self.teachers
        ]

    def notes(self, cap: int) -> Iterator[str]:
        """Yield sentences about the plan under a cap."""
        if self.problem:
            yield self.problem
        yield (
            f"{self.num_traces:,} traces, {self.num_steps:,} steps, order {self.options.order}: "
            f"about {show_usd(self.expected)} expected, {show_usd(self.worst)} at worst, cap {show_usd(cap)}."
        )
        for reason, count in self.excluded.items():
            yield f"Left out, {reason}: {count:,} (step, teacher) pairs."
        if self.expected > cap:
            yield "The cap will not cover everything: errors, first steps and edits are asked first."
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


def lane_cost(
    prompts: Sequence[tuple[int, int]], teacher: Teacher, output_tokens: int, bounds: Sequence[int] | None = None
) -> LaneCost:
    """Return the cost of asking prompts in order, each given as (tokens, tokens shared with the prompt before)."""
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
    options: ReplayOptions | None = None,
    *,
    output_tokens: int = 400,
) -> ReplayPlan:
    """Return the questions and the cost of replaying these traces. Nothing is sent."""
    result = ReplayPlan(options or ReplayOptions(), [TeacherShare(teacher) for teacher in teachers])
    for trace in traces:
        result.num_traces += 1
        result.num_steps += len(trace.steps)
        _plan_trace(result, trace, output_tokens)
    return result


def _plan_trace(result: ReplayPlan, trace: Trace, output_tokens: int) -> None:
    rounds = TraceRounds(trace, [part.teacher for part in result.teachers], result.options, _no_comparison)
    ranks = rounds.ranks()
    for reason in rounds.exclusions():
        result.excluded[reason] = result.excluded.get(reason, 0) + 1
    for part in result.teachers:
        steps = [step for step in trace.steps if part.teacher.name in ranks.get(step.step_id, ())]
        if not steps:
            continue
        lane = _lane_cost_of(rounds.prompts, steps, part.teacher, output_tokens)
        first, needed, further = EXPECTED_SHARE[result.options.order]
        shares = [first, *[needed] * (result.options.agreement.min_agree - 1), further]
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
        part.expected += _lane_cost_of(rounds.prompts, asked, part.teacher, output_tokens).in_order
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


def _no_comparison(trace: Trace, policy: Policy) -> Comparison:
    raise AssertionError("a plan compares no actions")
