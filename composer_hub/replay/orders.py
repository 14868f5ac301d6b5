"""The orders of asking, on outcomes reduced to codes, and what they are expected to ask and find.

A step's outcomes are one code per teacher, in the order of asking: 0 for an abstention, a positive number for an action
that differs from the student's, a negative one for an action that repeats it; equal codes are equal actions. Everything
that an order decides depends on the codes so far, so the same functions drive a run (`cascade`) and predict one
(`planning`).

A prediction is a tree: the chance of each next code, given the codes before. It starts from a model of students and
teachers and learns from the codes of earlier runs. An order asks on depending on the codes so far only, so the shares
in each node of the tree are unbiased, whichever order asked.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from composer_hub.pairs.policy import Policy

Codes = tuple[int, ...]
LATE = 1 / 3  # the last part of a trace, in which the cascade breaks no ties
MIN_LONG = 12  # steps of a trace that has a last part
PRIOR_STEPS = 4.0  # the model counts as much as this many observed steps in each node


def num_next(order: str, codes: Codes, num_left: int, policy: Policy, *, late: bool = False) -> int:
    """Return how many of the teachers that are left an order asks next; `late`: in the dear last part of a trace."""
    if order == "all":
        return num_left
    if not codes:
        return min(num_left, 1 if order == "cascade" else policy.min_agree)
    if stops_early(order, codes) or (late and breaks_no_ties(order, codes, policy)):
        return 0
    sizes = _sizes(codes)
    largest, num_votes = max(sizes.values(), default=0), sum(sizes.values())
    still_open = largest < policy.needed(num_votes) and largest + num_left >= policy.needed(num_votes + num_left)
    return min(num_left, 1) if still_open else 0


def stops_early(order: str, codes: Codes) -> bool:
    """Return whether the cascade ends because a teacher repeats the student: a pair is unlikely from then on."""
    return order == "cascade" and any(code < 0 for code in codes)


def breaks_no_ties(order: str, codes: Codes, policy: Policy) -> bool:
    """Return whether the cascade leaves a step late in a trace as it is, once enough teachers to agree were asked."""
    return order == "cascade" and len(codes) >= policy.min_agree


def is_late(index: int, num_steps: int) -> bool:
    """Return whether a step is in the part of a trace whose prompts cost more than a further vote is worth."""
    return num_steps >= MIN_LONG and index >= num_steps * (1 - LATE)


def has_pair(codes: Codes, policy: Policy) -> bool:
    """Return whether enough teachers agree on an action that differs from the student's."""
    sizes = _sizes(codes)
    if not sizes:
        return False
    code, size = max(sizes.items(), key=lambda item: item[1])
    return code > 0 and size >= policy.needed(sum(sizes.values()))


def _sizes(codes: Codes) -> Counter[int]:
    return Counter(code for code in codes if code)


def canonical(codes: Codes) -> Codes:
    """Number the actions of a step by their first appearance, so that steps can be added up."""
    names: dict[int, int] = {0: 0}
    for code in codes:
        if code not in names:
            number = 1 + sum(one * code > 0 for one in names)
            names[code] = number if code > 0 else -number
    return tuple(names[code] for code in codes)


# ------------------------------------------------------------------------------------------------------- expectations


@dataclass(frozen=True, slots=True)
class Expectation:
    """What an order is expected to do at a step."""

    asked: tuple[float, ...]  # the chance that each teacher is asked
    pair: float  # the chance of a pair


@dataclass(frozen=True, slots=True)
class Chances:
    """The chance of each full line of codes."""

    of: Mapping[Codes, float]

    def expect(self, order: str, policy: Policy, audit: float = 0.0) -> Expectation:
        """Return what an order is expected to do; `audit` is the share of the steps asked in full."""
        num = len(next(iter(self.of), ()))
        asked, pair = [0.0] * num, 0.0
        for (codes, chance_of), late in itertools.product(self.of.items(), (False, True)):
            at, chance = 0, chance_of * (LATE if late else 1 - LATE)
            while step := num_next(order, codes[:at], num - at, policy, late=late):
                at += step
            for place in range(num):
                asked[place] += chance * (1.0 if place < at else audit)
            pair += chance * ((1 - audit) * has_pair(codes[:at], policy) + audit * has_pair(codes, policy))
        return Expectation(tuple(asked), pair)


def chances(num_teachers: int, seen: Mapping[Codes, float], model: Model) -> Chances:
    """Return the chances of lines of codes: the model's, corrected in each node by the codes that were seen."""
    prior = _prefix_sums(model.lines(num_teachers))
    counts = _prefix_sums({codes[:num_teachers]: count for codes, count in seen.items()})
    children: dict[Codes, set[Codes]] = {}
    for prefix in {*prior, *counts} - {()}:
        children.setdefault(prefix[:-1], set()).add(prefix)

    def walk(prefix: Codes, chance: float) -> Iterator[tuple[Codes, float]]:
        if len(prefix) == num_teachers:
            yield prefix, chance
            return
        after = sorted(children.get(prefix, {(*prefix, 0)}))
        # Steps that ended here say nothing about the next teacher.
        num_seen = sum(counts.get(one, 0.0) for one in after)
        base = sum(prior.get(one, 0.0) for one in after)
        for one in after:
            share = prior.get(one, 0.0) / base if base else 1 / len(after)
            yield from walk(one, chance * (counts.get(one, 0.0) + PRIOR_STEPS * share) / (num_seen + PRIOR_STEPS))

    return Chances(dict(walk((), 1.0)))


def _prefix_sums(lines: Mapping[Codes, float]) -> dict[Codes, float]:
    sums: dict[Codes, float] = defaultdict(float)
    for codes, value in lines.items():
        for end in range(len(codes) + 1):
            sums[codes[:end]] += value
    return dict(sums)


@dataclass(frozen=True, slots=True)
class Model:
    """How often the student and the teachers are right, before anything was seen."""

    student: float = 0.7
    teacher: float = 0.75
    shared: float = 0.5  # of the errors: the same for all who make it
    abstains: float = 0.05

    @functools.lru_cache(maxsize=256)  # noqa: B019 (models are few constants)
    def lines(self, num_teachers: int) -> Mapping[Codes, float]:
        """Return each line of codes with its chance."""
        sums: dict[Codes, float] = defaultdict(float)
        for student in ("right", "shared", "own"):
            for line in itertools.product(("right", "shared", "own", "none"), repeat=num_teachers):
                chance = self._chance(student, self.student) * math.prod(self._answer(one) for one in line)
                codes = tuple(_code(one, student, place) for place, one in enumerate(line))
                sums[canonical(codes)] += chance
        return sums

    def _answer(self, kind: str) -> float:
        return self.abstains if kind == "none" else (1 - self.abstains) * self._chance(kind, self.teacher)

    def _chance(self, kind: str, right: float) -> float:
        return {"right": right, "shared": (1 - right) * self.shared, "own": (1 - right) * (1 - self.shared)}[kind]


def _code(kind: str, student: str, place: int) -> int:
    if kind == "none":
        return 0
    if kind == "own":
        return 10 + place
    return -1 if kind == student else {"right": 1, "shared": 2}[kind]


MODELS = tuple(
    Model(student, teacher, shared)
    for student, teacher, shared in itertools.product((0.25, 0.7, 0.9), (0.55, 0.75, 0.92), (0.3, 0.6))
)
"""Models between which the truth probably lies; the middle is the expectation, the ends are the range."""


def resampled(seen: Mapping[Codes, float], rng: random.Random) -> dict[Codes, float]:
    """Draw as many steps again as were seen, to show how much the counts depend on chance."""
    total = round(sum(seen.values()))
    drawn = rng.choices(list(seen), weights=list(seen.values()), k=total) if total else []
    return {codes: float(count) for codes, count in Counter(drawn).items()}


def draws(num_teachers: int, seen: Mapping[Codes, float], seed: int = 0) -> Iterator[Chances]:
    """Yield chances that are all compatible with what was seen."""
    rng = random.Random(seed)
    # The lines of codes grow with the number of teachers faster than their use for a range.
    for model in MODELS if num_teachers <= 3 else MODELS[:: 3 if num_teachers == 4 else 6]:
        for _ in range(5 if seen else 1):
            yield chances(num_teachers, resampled(seen, rng), model)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest of some values: steps of one trace are alike, so draws differ too little."""
    return min(values), max(values)
