"""How good a set of pairs is: pairs and ballots -> the rows of the `report` config, and the tables of the card.

A row is one number: metric, scope (a teacher, a level, …), value, the 95 % interval over traces where there is one, and
n, what it was counted over. docs/pairs.md says how to read each.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from composer_hub.actions.forms import LEVELS
from composer_hub.pairs.ballots import Ballot, Cast
from composer_hub.pairs.make import duplicate_key
from composer_hub.pairs.stats import (
    Array,
    auc,
    fleiss_kappa,
    interval,
    kolmogorov_smirnov,
    krippendorff_alpha,
    mutual_information,
    quantile,
    ratio,
)
from composer_hub.pairs.style import style_leak
from composer_hub.records import Pair, action_text, stable_id


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of the report."""

    metric: str
    scope: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True)
class Slip:
    """What the report keeps of a teacher's answer."""

    teacher: str
    attempt: int
    status: str  # voted, or why it does not count
    levels: tuple[str, ...]  # digests of L0 to L3, and the tools
    cost_usd: float
    latency_s: float
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Tally:
    """What the report keeps of a ballot."""

    trace_id: str
    step_id: str
    position: float  # of the step in its trace, 0 to 1
    student: tuple[str, ...]
    slips: tuple[Slip, ...]

    @property
    def counted(self) -> tuple[Slip, ...]:
        return tuple(slip for slip in self.slips if slip.status == "voted" and slip.attempt == 0)


def tally(ballot: Ballot) -> Tally:
    """Return the short form of a ballot; a report over many traces keeps only these."""
    return Tally(
        ballot.trace.trace_id,
        ballot.step.step_id,
        _position(ballot.step.index, len(ballot.trace.steps)),
        _digests(ballot.form.levels),
        tuple(_slip(cast) for cast in ballot.casts),
    )


def report_rows(
    pairs: Sequence[Pair],
    ballots: Iterable[Ballot | Tally],
    *,
    drops: Mapping[str, int] | None = None,
    ambiguous_usd: float = 0.0,
    veto_level: str = "L3",
    seed: int = 0,
) -> list[Metric]:
    """Return every row of the report; the same input and seed give the same rows."""
    tallies = [one if isinstance(one, Tally) else tally(one) for one in ballots]
    traces = sorted({one.trace_id for one in tallies} | {pair.trace_id for pair in pairs})
    place = {trace_id: at for at, trace_id in enumerate(traces)}
    drawn = _Draws(place, seed)
    return [
        *_yield(pairs, tallies, drops or {}, drawn),
        *_agreement(tallies, drawn),
        *_self_agreement(tallies, drawn),
        *_bias(pairs, tallies, drawn, seed),
        *_soundness(pairs, tallies, veto_level),
        *_money(pairs, tallies, ambiguous_usd, drawn),
        *_teachers(tallies),
    ]


class _Draws:
    """Values grouped by trace, and the intervals that drawing traces gives."""

    def __init__(self, place: Mapping[str, int], seed: int) -> None:
        self.place, self.seed = place, seed

    def metric(self, name: str, scope: str, statistic: Callable[[Array], float], n: int) -> Metric:
        value = statistic(np.ones(len(self.place)))
        low, high = interval(statistic, len(self.place), seed=self.seed)
        return Metric(name, scope, _finite(value), low, high, n)

    def mean(self, name: str, scope: str, values: Iterable[tuple[str, float]]) -> Metric:
        """Return the mean of values that each belong to a trace."""
        above, below = np.zeros(len(self.place)), np.zeros(len(self.place))
        for trace_id, value in values:
            above[self.place[trace_id]] += value
            below[self.place[trace_id]] += 1
        return self.metric(name, scope, ratio(above, below), int(below.sum()))


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _position(index: int, num_steps: int) -> float:
    return index / (num_steps - 1) if num_steps > 1 else 0.0


def _digests(levels: Sequence[str]) -> tuple[str, ...]:
    return (*(stable_id(level)[:16] for level in levels[:-1]), levels[-1])


def _slip(cast: Cast) -> Slip:
    vote = cast.vote
    return Slip(
        vote.teacher,
        vote.attempt,
        cast.abstained or cast.excluded or "voted",
        _digests(cast.form.levels),
        vote.cost_usd,
        vote.latency_s,
        int(vote.usage.get("prompt_tokens") or 0),
        vote.cached_tokens,
    )


# ------------------------------------------------------------------------------------------------- yield and votes


def _yield(
    pairs: Sequence[Pair], tallies: Sequence[Tally], drops: Mapping[str, int], drawn: _Draws
) -> Iterator[Metric]:
    by_trace = Counter(pair.trace_id for pair in pairs)
    yield Metric("pairs", value=len(pairs), n=len(tallies))
    yield drawn.mean("pairs_per_trace", "", ((trace_id, by_trace[trace_id]) for trace_id in drawn.place))
    for reason, count in sorted(drops.items(), key=lambda item: (-item[1], item[0])):
        yield Metric("steps_without_pair", reason, count, n=len(tallies))
    yield from _votes_histogram(tallies)


def _votes_histogram(tallies: Iterable[Tally]) -> Iterator[Metric]:
    asked = [[slip.levels[2] for slip in one.counted] for one in tallies if one.slips]
    found = Counter((len(forms), max(Counter(forms).values(), default=0)) for forms in asked)
    for (num_votes, num_agree), count in sorted(found.items()):
        yield Metric("votes", f"{num_agree} of {num_votes}", count, n=len(asked))


# ------------------------------------------------------------------------------------------------------- agreement


def _agreement(tallies: Sequence[Tally], drawn: _Draws) -> Iterator[Metric]:
    together: dict[tuple[str, str], list[tuple[str, Slip, Slip]]] = defaultdict(list)
    for one in tallies:
        for a, b in combinations(one.counted, 2):
            together[a.teacher, b.teacher].append((one.trace_id, a, b))
    for (first, second), both in sorted(together.items()):
        for level in range(1, len(LEVELS)):
            agreed = ((trace_id, float(a.levels[level] == b.levels[level])) for trace_id, a, b in both)
            yield drawn.mean("agreement", f"{LEVELS[level]} {first} ~ {second}", agreed)
    rated = [one for one in tallies if len(one.counted) > 1]
    of = [drawn.place[one.trace_id] for one in rated]
    for name, statistic, level in (("fleiss_kappa", fleiss_kappa, 4), ("krippendorff_alpha", krippendorff_alpha, 2)):
        answers = [[slip.levels[level] for slip in one.counted] for one in rated]
        yield drawn.metric(name, LEVELS[level], statistic(answers, of), len(rated))


def _self_agreement(tallies: Sequence[Tally], drawn: _Draws) -> Iterator[Metric]:
    """Compare each repeated answer with the first: what a teacher does not agree on with itself is noise."""
    repeats: dict[str, list[tuple[str, Slip, Slip]]] = defaultdict(list)
    for one in tallies:
        first = {slip.teacher: slip for slip in one.slips if slip.attempt == 0}
        for slip in one.slips:
            if slip.attempt and slip.teacher in first and _answered(slip) and _answered(first[slip.teacher]):
                repeats[slip.teacher].append((one.trace_id, first[slip.teacher], slip))
    for teacher, both in sorted(repeats.items()):
        for level in range(1, len(LEVELS)):
            agreed = ((trace_id, float(a.levels[level] == b.levels[level])) for trace_id, a, b in both)
            yield drawn.mean("self_agreement", f"{LEVELS[level]} {teacher}", agreed)


def _answered(slip: Slip) -> bool:
    """Tell whether there is an action to compare; one of the student's own family is one."""
    return slip.status in ("voted", "same_family")


# ------------------------------------------------------------------------------------------------------------ bias


def _bias(pairs: Sequence[Pair], tallies: Sequence[Tally], drawn: _Draws, seed: int) -> Iterator[Metric]:
    chosen = [action_text(pair.chosen[0]) for pair in pairs]
    rejected = [action_text(pair.rejected[0]) for pair in pairs]
    longer = (
        (pair.trace_id, 1.0 if len(a) > len(b) else 0.5 if len(a) == len(b) else 0.0)
        for pair, a, b in zip(pairs, chosen, rejected, strict=True)
    )
    yield drawn.mean("chosen_longer", "", longer)
    lengths = auc([len(text) for text in chosen], [len(text) for text in rejected])
    yield Metric("length_auc", value=_finite(lengths), n=len(pairs))
    distance, p = kolmogorov_smirnov(
        [_position(pair.index, pair.num_steps) for pair in pairs], [one.position for one in tallies]
    )
    yield Metric("position_ks", value=_finite(distance), n=len(pairs))
    yield Metric("position_ks_p", value=_finite(p), n=len(pairs))
    yield from _tool_flips(pairs, tallies, seed)
    leak = style_leak(chosen, rejected, [pair.trace_id for pair in pairs], seed=seed)
    yield Metric("style_leak_auc", value=_finite(leak), n=len(pairs))


def _tool_flips(pairs: Sequence[Pair], tallies: Sequence[Tally], seed: int) -> Iterator[Metric]:
    """Count which tool the teachers took instead of which, and how far that is from pairing at random."""
    flips = [(student[4], teacher[4]) for student, teacher in _forms(pairs, tallies)]
    for (student, teacher), count in sorted(Counter(flips).items(), key=lambda item: (-item[1], item[0])):
        yield Metric("tool_flip", f"{student} → {teacher}", count, n=len(flips))
    yield Metric("tool_flip_bits", value=_finite(mutual_information(Counter(flips))), n=len(flips))
    rng = np.random.default_rng(seed)
    shuffled = [
        mutual_information(Counter((flips[a][0], flips[b][1]) for a, b in enumerate(rng.permutation(len(flips)))))
        for _ in range(20)
    ]
    # Few pairs look dependent by chance alone: this is how much.
    yield Metric("tool_flip_bits_by_chance", value=_finite(float(np.mean(shuffled))), n=len(flips))


def _forms(pairs: Iterable[Pair], tallies: Iterable[Tally]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the levels of the student's action and of the chosen one, for every pair whose ballot is at hand."""
    forms: dict[tuple[str, str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for one in tallies:
        for slip in one.slips:
            if slip.attempt == 0:
                forms[one.trace_id, one.step_id, slip.teacher] = one.student, slip.levels
    keys = [(pair.trace_id, pair.step_id, pair.chosen_teacher) for pair in pairs]
    return [forms[key] for key in keys if key in forms]


def _soundness(pairs: Sequence[Pair], tallies: Sequence[Tally], veto_level: str) -> Iterator[Metric]:
    level = LEVELS.index(veto_level)
    forms = _forms(pairs, tallies)
    near = sum(student[level] == teacher[level] for student, teacher in forms)
    yield Metric("near_equal_pairs", veto_level, near, n=len(forms))
    yield Metric("duplicate_pairs", value=len(pairs) - len({duplicate_key(pair) for pair in pairs}), n=len(pairs))
    yield Metric("after_error", value=_share([pair.after_error for pair in pairs]), n=len(pairs))
    known = [pair.resolved for pair in pairs if pair.resolved is not None]
    yield Metric("from_resolved", value=_share(known), n=len(known))


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


# ----------------------------------------------------------------------------------------------- money and teachers


def _money(pairs: Sequence[Pair], tallies: Sequence[Tally], ambiguous_usd: float, drawn: _Draws) -> Iterator[Metric]:
    slips = [slip for one in tallies for slip in one.slips]
    spent, made = np.zeros(len(drawn.place)), np.zeros(len(drawn.place))
    for one in tallies:
        spent[drawn.place[one.trace_id]] += sum(slip.cost_usd for slip in one.slips)
    for pair in pairs:
        made[drawn.place[pair.trace_id]] += 1
    yield Metric("usd", value=float(spent.sum()), n=len(slips))
    yield Metric("ambiguous_usd", value=ambiguous_usd, n=len(slips))
    yield drawn.metric("usd_per_pair", "", ratio(spent, made), len(pairs))
    yield drawn.metric("usd_per_trace", "", ratio(spent, np.ones(len(spent))), len(spent))
    yield Metric("cached_share", value=_cached_share(slips), n=sum(slip.prompt_tokens for slip in slips))


def _cached_share(slips: Iterable[Slip]) -> float | None:
    known = [slip for slip in slips if slip.prompt_tokens]
    total = sum(slip.prompt_tokens for slip in known)
    return sum(slip.cached_tokens for slip in known) / total if total else None


def _teachers(tallies: Iterable[Tally]) -> Iterator[Metric]:
    by_teacher: dict[str, list[Slip]] = defaultdict(list)
    for one in tallies:
        for slip in one.slips:
            by_teacher[slip.teacher].append(slip)
    for teacher, slips in sorted(by_teacher.items()):
        latencies = [slip.latency_s for slip in slips if slip.latency_s > 0]
        yield Metric("calls", teacher, len(slips), n=len(slips))
        for share in (50, 95, 99):
            yield Metric(f"latency_p{share}_s", teacher, _finite(quantile(latencies, share / 100)), n=len(latencies))
        total = sum(slip.cost_usd for slip in slips)
        yield Metric("usd_per_call", teacher, total / len(slips), n=len(slips))
        yield Metric("usd", teacher, total, n=len(slips))
        yield Metric("cached_share", teacher, _cached_share(slips), n=sum(slip.prompt_tokens for slip in slips))
        for reason, count in sorted(Counter(slip.status for slip in slips).items()):
            yield Metric("answers", f"{teacher}: {reason}", count, n=len(slips))
