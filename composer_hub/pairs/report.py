"""The quality of a set of pairs: pairs and ballots -> the rows of the `report` config.

A row is one number: metric, scope (a teacher, a level, …), value, the 95 % interval over traces if there is one, and n,
the number of things it was counted over. docs/pairs.md explains how to read each.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from composer_hub.actions.forms import LEVELS
from composer_hub.pairs.ballots import Ballot, Cast
from composer_hub.pairs.stats import Array, auc, fleiss_kappa, interval, quantile, ratio
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
class AnswerSummary:
    """The part of a teacher's answer that the report needs."""

    teacher: str
    attempt: int
    status: str  # voted, or the reason why it does not count
    levels: tuple[str, ...]  # digests of L0 to L3, and the tools
    cost_usd: float
    latency_s: float
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class BallotSummary:
    """The part of a ballot that the report needs; a report over many traces keeps only these."""

    trace_id: str
    answers: tuple[AnswerSummary, ...]

    @property
    def counted(self) -> tuple[AnswerSummary, ...]:
        return tuple(answer for answer in self.answers if answer.status == "voted" and answer.attempt == 0)


def summary_of(ballot: Ballot) -> BallotSummary:
    """Return the summary of a ballot."""
    return BallotSummary(ballot.trace.trace_id, tuple(_answer(cast) for cast in ballot.casts))


def report_rows(
    pairs: Collection[Pair],
    summaries: Collection[BallotSummary],
    *,
    drops: Mapping[str, int] | None = None,
    ambiguous_usd: float = 0.0,
    seed: int = 0,
) -> list[Metric]:
    """Return every row of the report; the same input and seed give the same rows."""
    traces = sorted({one.trace_id for one in summaries} | {pair.trace_id for pair in pairs})
    drawn = _Draws({trace_id: at for at, trace_id in enumerate(traces)}, seed)
    return [
        *_yield(pairs, summaries, drops or {}, drawn),
        _kappa(summaries, drawn),
        *_self_agreement(summaries, drawn),
        *_bias(pairs, drawn, seed),
        *_lengths(pairs),
        *_money(pairs, summaries, ambiguous_usd, drawn),
        *_teachers(summaries),
    ]


class _Draws:
    """Values grouped by trace, with intervals from drawing traces."""

    def __init__(self, place: Mapping[str, int], seed: int) -> None:
        self.place, self.seed = place, seed

    def metric(self, name: str, scope: str, statistic: Callable[[Array], float], n: int) -> Metric:
        value = statistic(np.ones(len(self.place)))
        low, high = interval(statistic, len(self.place), seed=self.seed)
        return Metric(name, scope, _finite(value), low, high, n)

    def mean(self, name: str, scope: str, values: Iterable[tuple[str, float]]) -> Metric:
        """Return the mean of values, each given with its trace."""
        above, below = np.zeros(len(self.place)), np.zeros(len(self.place))
        for trace_id, value in values:
            above[self.place[trace_id]] += value
            below[self.place[trace_id]] += 1
        return self.metric(name, scope, ratio(above, below), int(below.sum()))


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _digests(levels: Sequence[str]) -> tuple[str, ...]:
    return (*(stable_id(level)[:16] for level in levels[:-1]), levels[-1])


def _answer(cast: Cast) -> AnswerSummary:
    vote = cast.vote
    return AnswerSummary(
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
    pairs: Collection[Pair], summaries: Collection[BallotSummary], drops: Mapping[str, int], drawn: _Draws
) -> Iterator[Metric]:
    by_trace = Counter(pair.trace_id for pair in pairs)
    yield Metric("pairs", value=len(pairs), n=len(summaries))
    yield drawn.mean("pairs_per_trace", "", ((trace_id, by_trace[trace_id]) for trace_id in drawn.place))
    for reason, count in sorted(drops.items(), key=lambda item: (-item[1], item[0])):
        yield Metric("steps_without_pair", reason, count, n=len(summaries))
    yield Metric("after_error", value=_share([pair.after_error for pair in pairs]), n=len(pairs))
    known = [pair.resolved for pair in pairs if pair.resolved is not None]
    yield Metric("from_resolved", value=_share(known), n=len(known))
    yield from _votes_histogram(summaries)


def _votes_histogram(summaries: Iterable[BallotSummary]) -> Iterator[Metric]:
    asked = [[answer.levels[2] for answer in one.counted] for one in summaries if one.answers]
    counts = Counter((len(forms), max(Counter(forms).values(), default=0)) for forms in asked)
    for (num_votes, num_agree), count in sorted(counts.items()):
        yield Metric("votes", f"{num_agree} of {num_votes}", count, n=len(asked))


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


# ------------------------------------------------------------------------------------------------------- agreement


def _kappa(summaries: Iterable[BallotSummary], drawn: _Draws) -> Metric:
    """Return Fleiss' kappa of the tools (L4), the only categories that recur from step to step."""
    rated = [one for one in summaries if len(one.counted) > 1]
    tools = [[answer.levels[4] for answer in one.counted] for one in rated]
    statistic = fleiss_kappa(tools, [drawn.place[one.trace_id] for one in rated])
    return drawn.metric("fleiss_kappa", "L4", statistic, len(rated))


def _self_agreement(summaries: Collection[BallotSummary], drawn: _Draws) -> Iterator[Metric]:
    """Compare each repeated answer with the first: the difference is the noise of a teacher."""
    repeats: dict[str, list[tuple[str, AnswerSummary, AnswerSummary]]] = defaultdict(list)
    for one in summaries:
        first = {answer.teacher: answer for answer in one.answers if answer.attempt == 0}
        for answer in one.answers:
            if answer.attempt and answer.teacher in first and _answered(answer) and _answered(first[answer.teacher]):
                repeats[answer.teacher].append((one.trace_id, first[answer.teacher], answer))
    for teacher, both in sorted(repeats.items()):
        for level in range(1, len(LEVELS)):
            agreed = ((trace_id, float(a.levels[level] == b.levels[level])) for trace_id, a, b in both)
            yield drawn.mean("self_agreement", f"{LEVELS[level]} {teacher}", agreed)


def _answered(answer: AnswerSummary) -> bool:
    """Return whether there is an action to compare; an answer of the student's own family has one."""
    return answer.status in ("voted", "same_family")


# ------------------------------------------------------------------------------------------------------------ bias


def _bias(pairs: Collection[Pair], drawn: _Draws, seed: int) -> Iterator[Metric]:
    chosen = [action_text(pair.chosen[0]) for pair in pairs]
    rejected = [action_text(pair.rejected[0]) for pair in pairs]
    longer = (
        (pair.trace_id, 1.0 if len(a) > len(b) else 0.5 if len(a) == len(b) else 0.0)
        for pair, a, b in zip(pairs, chosen, rejected, strict=True)
    )
    yield drawn.mean("chosen_longer", "", longer)
    lengths = auc([len(text) for text in chosen], [len(text) for text in rejected])
    yield Metric("length_auc", value=_finite(lengths), n=len(pairs))
    leak = style_leak(chosen, rejected, [pair.trace_id for pair in pairs], seed=seed)
    yield Metric("style_leak_auc", value=_finite(leak), n=len(pairs))


def _lengths(pairs: Iterable[Pair]) -> Iterator[Metric]:
    """Count pairs by their estimated tokens, in steps of powers of two."""
    counts = Counter(1 << max((pair.num_tokens - 1).bit_length(), 9) for pair in pairs if pair.num_tokens)
    for limit, count in sorted(counts.items()):
        yield Metric("pairs_by_length", f"up to {limit:,}", count, n=sum(counts.values()))


# ----------------------------------------------------------------------------------------------- money and teachers


def _money(
    pairs: Collection[Pair], summaries: Collection[BallotSummary], ambiguous_usd: float, drawn: _Draws
) -> Iterator[Metric]:
    answers = [answer for one in summaries for answer in one.answers]
    spent, made = np.zeros(len(drawn.place)), np.zeros(len(drawn.place))
    for one in summaries:
        spent[drawn.place[one.trace_id]] += sum(answer.cost_usd for answer in one.answers)
    for pair in pairs:
        made[drawn.place[pair.trace_id]] += 1
    yield Metric("usd", value=float(spent.sum()), n=len(answers))
    yield Metric("ambiguous_usd", value=ambiguous_usd, n=len(answers))
    yield drawn.metric("usd_per_pair", "", ratio(spent, made), len(pairs))
    yield drawn.metric("usd_per_trace", "", ratio(spent, np.ones(len(spent))), len(spent))
    yield Metric("cached_share", value=_cached_share(answers), n=sum(answer.prompt_tokens for answer in answers))


def _cached_share(answers: Iterable[AnswerSummary]) -> float | None:
    known = [answer for answer in answers if answer.prompt_tokens]
    total = sum(answer.prompt_tokens for answer in known)
    return sum(answer.cached_tokens for answer in known) / total if total else None


def _teachers(summaries: Iterable[BallotSummary]) -> Iterator[Metric]:
    by_teacher: dict[str, list[AnswerSummary]] = defaultdict(list)
    for one in summaries:
        for answer in one.answers:
            by_teacher[answer.teacher].append(answer)
    for teacher, answers in sorted(by_teacher.items()):
        latencies = [answer.latency_s for answer in answers if answer.latency_s > 0]
        yield Metric("calls", teacher, len(answers), n=len(answers))
        for share in (50, 95, 99):
            yield Metric(f"latency_p{share}_s", teacher, _finite(quantile(latencies, share / 100)), n=len(latencies))
        total = sum(answer.cost_usd for answer in answers)
        yield Metric("usd_per_call", teacher, total / len(answers), n=len(answers))
        yield Metric("usd", teacher, total, n=len(answers))
        yield Metric("cached_share", teacher, _cached_share(answers), n=sum(answer.prompt_tokens for answer in answers))
        for reason, count in sorted(Counter(answer.status for answer in answers).items()):
            yield Metric("answers", f"{teacher}: {reason}", count, n=len(answers))
