"""The quality of a set of pairs: pairs and ballots -> the rows of the `report` config.

A row is one number: metric, scope (a teacher, a level, …), value, the 95 % interval over traces if there is one, and n,
the number of things it was counted over. The reference shows the table below.

Agreement is weighted by the inverse of each answer's `inclusion`, so that it means the same under every order. All
money is that of the ledger.

    pairs, pairs_per_trace: the yield
    steps_without_pair: steps by the reason why they gave no pair
    votes: asked steps by "k of n agree at L2"; mostly "n of n": the teachers add little to one another
    answered_steps, recall: share of the steps asked to the end, and of the pairs that the order finds there,
        by the audit
    fleiss_kappa: agreement on tools (L4) beyond chance (0), 1 at most
    agreement: two teachers' agreement at L2, weighted by `inclusion`, so the same under every order
    self_agreement: a teacher against itself, asked twice: the ceiling of agreement between teachers
    chosen_longer, length_auc: how well length alone separates chosen from rejected; 0.5: not at all
    style_leak_auc: how well spelling alone does (character n-grams, on unseen traces); above 0.8 look at the
        tools first
    pairs_by_length: pairs by their estimated tokens
    judged: share of pairs that a judge was asked about in both orders
    after_error, from_resolved: share of pairs after a failed step, and from solved traces (`n` of which the
        outcome is known)
    usd, usd_per_pair, usd_per_trace, cached_share: cost, by the ledger
    usd_retried, ambiguous_usd: billed without an answer; answers that never arrived and may have been billed
    calls, answers, latency_p50_s …, usd_per_call: by teacher: requests, abstentions, speed and cost
"""

from __future__ import annotations

import itertools
import math
import sys
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from composer_hub.actions.forms import LEVELS, shared_levels
from composer_hub.money import NANO, Budget, to_usd
from composer_hub.pairs.ballots import Ballot, Cast
from composer_hub.pairs.policy import Poll
from composer_hub.pairs.purchase import Purchase, TeacherBill
from composer_hub.pairs.stats import Array, auc, fleiss_kappa, interval, quantile, ratio
from composer_hub.pairs.style import MAX_PAIRS, style_leak
from composer_hub.records import Pair, action_text, stable_id

NOT_ASKED = "not_asked"


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
    was_asked: bool
    inclusion: float  # probability that this teacher was asked about the step
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
    judge_usd: float = 0.0

    @property
    def counted(self) -> tuple[AnswerSummary, ...]:
        return tuple(answer for answer in self.answers if answer.status == "voted" and answer.attempt == 0)

    @property
    def was_asked(self) -> bool:
        return any(answer.was_asked for answer in self.answers)


def summary_of(ballot: Ballot) -> BallotSummary:
    """Return the summary of a ballot."""
    levels = shared_levels([cast.form for cast in ballot.casts])
    answers = (_answer(cast, own) for cast, own in zip(ballot.casts, levels, strict=True))
    return BallotSummary(ballot.trace.trace_id, tuple(answers), ballot.judge_usd)


def report_rows(
    pairs: Collection[Pair],
    summaries: Collection[BallotSummary],
    *,
    drops: Mapping[str, int] | None = None,
    poll: Poll | None = None,
    purchase: Purchase | None = None,
    seed: int = 0,
) -> list[Metric]:
    """Return every row of the report; the same input and seed give the same rows.

    Money comes from `purchase`, the ledger of the run; without one, from the votes.
    """
    purchase = purchase or _purchase_of(summaries)
    traces = sorted({one.trace_id for one in summaries} | {pair.trace_id for pair in pairs} | purchase.by_trace.keys())
    drawn = _Draws({trace_id: at for at, trace_id in enumerate(traces)}, seed)
    return [
        *_yield(pairs, summaries, drops or {}, drawn),
        *_coverage(poll),
        _kappa(summaries, drawn),
        *_agreement(summaries, drawn),
        *_self_agreement(summaries, drawn),
        *_bias(pairs, drawn, seed),
        *_lengths(pairs),
        *_money(pairs, purchase, drawn),
        *_teachers(pairs, summaries, purchase),
    ]


def of_other_pairs(rows: Sequence[Metric], pairs: Collection[Pair]) -> list[Metric]:
    """Return a report with the numbers of other pairs; those of votes, agreement and money stay."""
    if not rows:
        return []
    places = {trace_id: at for at, trace_id in enumerate(sorted({pair.trace_id for pair in pairs}))}
    new = [*_origin(pairs), *_bias(pairs, _Draws(places, seed=0), seed=0), *_lengths(pairs)]
    names = {row.metric for row in new} | {"pairs_by_length"}
    growth = len(pairs) / (next((row.value for row in rows if row.metric == "pairs"), None) or math.nan)
    factors = {"pairs_per_trace": growth, "usd_per_pair": 1 / (growth or math.nan)}
    kept = [_scaled(row, factors.get(row.metric, 1.0)) for row in rows if row.metric not in names]
    counts: dict[str, dict[str, Any]] = {"pairs": {"value": len(pairs)}, "usd_per_pair": {"n": len(pairs)}}
    return [*(replace(row, **counts.get(row.metric, {})) for row in kept), *new]


def _scaled(row: Metric, factor: float) -> Metric:
    value, low, high = (None if one is None else _finite(one * factor) for one in (row.value, row.low, row.high))
    return replace(row, value=value, low=low, high=high)


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
        return self.weighted_mean(name, scope, ((trace_id, value, 1.0) for trace_id, value in values))

    def weighted_mean(self, name: str, scope: str, values: Iterable[tuple[str, float, float]]) -> Metric:
        """Return the mean of values, each given with its trace and its weight."""
        above, below, num = np.zeros(len(self.place)), np.zeros(len(self.place)), 0
        for trace_id, value, weight in values:
            above[self.place[trace_id]] += value * weight
            below[self.place[trace_id]] += weight
            num += 1
        return self.metric(name, scope, ratio(above, below), num)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _digests(levels: Sequence[str]) -> tuple[str, ...]:
    return (*(stable_id(level)[:16] for level in levels[:-1]), levels[-1])


def _answer(cast: Cast, levels: Sequence[str]) -> AnswerSummary:
    vote, was_asked = cast.vote, cast.vote.status != NOT_ASKED
    # A repeat is compared with the first answer, so it needs the status that it would have as a vote.
    excluded = "" if cast.excluded == "repeat" else cast.excluded
    return AnswerSummary(
        vote.teacher,
        vote.attempt,
        (was_asked and cast.abstained) or excluded or cast.abstained or "voted",
        was_asked,
        vote.inclusion,
        _digests(levels),
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
    yield from _origin(pairs)
    yield from _votes_histogram(summaries)


def _origin(pairs: Collection[Pair]) -> Iterator[Metric]:
    yield Metric("after_error", value=_share([pair.after_error for pair in pairs]), n=len(pairs))
    known = [pair.resolved for pair in pairs if pair.resolved is not None]
    yield Metric("from_resolved", value=_share(known), n=len(known))
    yield Metric("judged", value=_share([pair.judged for pair in pairs]), n=len(pairs))


def _votes_histogram(summaries: Iterable[BallotSummary]) -> Iterator[Metric]:
    asked = ([answer.levels[2] for answer in one.counted] for one in summaries if one.was_asked)
    counts = Counter((len(forms), max(Counter(forms).values(), default=0)) for forms in asked)
    for (num_votes, num_agree), count in sorted(counts.items()):
        yield Metric("votes", f"{num_agree} of {num_votes}", count, n=counts.total())


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _coverage(poll: Poll | None) -> Iterator[Metric]:
    """Return how much of the traces was answered, and the share of the pairs that the order finds there."""
    if counts := poll.counts if poll else None:
        yield Metric("answered_steps", value=_over(counts.num_answered, counts.num_steps), n=counts.num_steps)
        yield Metric("recall", "", counts.recall, counts.recall_low, counts.recall_high, counts.num_audited)


# ------------------------------------------------------------------------------------------------------- agreement


def _kappa(summaries: Iterable[BallotSummary], drawn: _Draws) -> Metric:
    """Return Fleiss' kappa of the tools (L4), the only categories that recur from step to step."""
    tools: list[tuple[tuple[str, float], ...]] = []
    traces: list[int] = []
    for one in summaries:
        if len(counted := one.counted) > 1:
            # Two teachers at 100,000 steps name few tools: every rating is kept once.
            tools.append(tuple((sys.intern(answer.levels[4]), answer.inclusion) for answer in counted))
            traces.append(drawn.place[one.trace_id])
    return drawn.metric("fleiss_kappa", "L4", fleiss_kappa(tools, traces), len(traces))


def _agreement(summaries: Iterable[BallotSummary], drawn: _Draws) -> Iterator[Metric]:
    """Compare each two teachers at L2, weighted for the steps at which the order asks only one of them."""
    # Whether they agree, the weight and the place of the trace: arrays, because there is one entry per step.
    both: dict[tuple[str, str], tuple[array[float], array[float], array[int]]] = {}
    for one in summaries:
        for a, b in itertools.combinations(sorted(one.counted, key=lambda answer: answer.teacher), 2):
            columns = both.setdefault((a.teacher, b.teacher), (array("d"), array("d"), array("l")))
            columns[0].append(float(a.levels[2] == b.levels[2]))
            columns[1].append(1 / min(a.inclusion, b.inclusion))
            columns[2].append(drawn.place[one.trace_id])
    traces = list(drawn.place)
    for (first, second), (same, weights, places) in sorted(both.items()):
        rows = ((traces[at], one, weight) for one, weight, at in zip(same, weights, places, strict=True))
        yield drawn.weighted_mean("agreement", f"{first} ~ {second}", rows)


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
    chosen, rejected = array("q"), array("q")  # lengths

    def longer() -> Iterator[tuple[str, float]]:
        for pair in pairs:
            a, b = len(action_text(pair.chosen[0])), len(action_text(pair.rejected[0]))
            chosen.append(a)
            rejected.append(b)
            yield pair.trace_id, 1.0 if a > b else 0.5 if a == b else 0.0

    yield drawn.mean("chosen_longer", "", longer())
    yield Metric("length_auc", value=_finite(auc(chosen, rejected)), n=len(pairs))
    drawn_pairs = set(np.random.default_rng(seed).permutation(len(pairs))[:MAX_PAIRS].tolist())
    texts = [
        (action_text(pair.chosen[0]), action_text(pair.rejected[0]), pair.trace_id)
        for number, pair in enumerate(pairs)
        if number in drawn_pairs
    ]
    leak = style_leak([a for a, _, _ in texts], [b for _, b, _ in texts], [trace for *_, trace in texts], seed=seed)
    yield Metric("style_leak_auc", value=_finite(leak), n=len(pairs))


def _lengths(pairs: Iterable[Pair]) -> Iterator[Metric]:
    """Count pairs by their estimated tokens, in steps of powers of two."""
    counts = Counter(1 << max((pair.num_tokens - 1).bit_length(), 9) for pair in pairs if pair.num_tokens)
    for limit, count in sorted(counts.items()):
        yield Metric("pairs_by_length", f"up to {limit:,}", count, n=sum(counts.values()))


# ----------------------------------------------------------------------------------------------- money and teachers


def _money(pairs: Collection[Pair], purchase: Purchase, drawn: _Draws) -> Iterator[Metric]:
    spent, made = np.zeros(len(drawn.place)), np.zeros(len(drawn.place))
    for trace_id, cost in purchase.by_trace.items():
        spent[drawn.place[trace_id]] += to_usd(cost)
    for pair in pairs:
        made[drawn.place[pair.trace_id]] += 1
    bills = purchase.teachers.values()
    requests, tokens = sum(bill.requests for bill in bills), sum(bill.prompt_tokens for bill in bills)
    yield Metric("usd", value=to_usd(purchase.budget.settled), n=requests)
    yield Metric("usd_retried", value=to_usd(sum(bill.retried for bill in bills)), n=requests)
    yield Metric("ambiguous_usd", value=to_usd(purchase.budget.ambiguous), n=requests)
    yield drawn.metric("usd_per_pair", "", ratio(spent, made), len(pairs))
    yield drawn.metric("usd_per_trace", "", ratio(spent, np.ones(len(spent))), len(spent))
    yield Metric("cached_share", value=_over(sum(bill.cached_tokens for bill in bills), tokens), n=tokens)


def _over(above: float, below: float) -> float | None:
    return above / below if below else None


def _teachers(pairs: Collection[Pair], summaries: Iterable[BallotSummary], purchase: Purchase) -> Iterator[Metric]:
    seconds: dict[str, array[float]] = {}
    statuses: dict[str, Counter[str]] = defaultdict(Counter)
    for one in summaries:
        for answer in one.answers:
            statuses[answer.teacher][answer.status] += 1
            if answer.latency_s > 0:
                seconds.setdefault(answer.teacher, array("d")).append(answer.latency_s)
    for teacher, counts in sorted(statuses.items()):
        bill = purchase.teachers.get(teacher, TeacherBill())
        latencies = seconds.get(teacher, array("d"))
        yield Metric("calls", teacher, bill.requests, n=bill.answers)
        for share in (50, 95, 99):
            yield Metric(f"latency_p{share}_s", teacher, _finite(quantile(latencies, share / 100)), n=len(latencies))
        total = to_usd(bill.spent)
        yield Metric("usd_per_call", teacher, _over(total, bill.answers), n=bill.answers)
        yield Metric("usd", teacher, total, n=bill.requests)
        yield Metric("usd_per_pair", teacher, _over(total, len(pairs)), n=len(pairs))
        yield Metric("ambiguous_usd", teacher, to_usd(bill.ambiguous), n=bill.requests)
        yield Metric("cached_share", teacher, _over(bill.cached_tokens, bill.prompt_tokens), n=bill.prompt_tokens)
        for reason, count in sorted(counts.items()):
            yield Metric("answers", f"{teacher}: {reason}", count, n=counts.total())


def _purchase_of(summaries: Iterable[BallotSummary]) -> Purchase:
    """Add up the money that the votes name, for votes without a ledger."""
    bills: dict[str, TeacherBill] = {}
    by_trace: Counter[str] = Counter()
    for one in summaries:
        by_trace[one.trace_id] += round(one.judge_usd * NANO)
        for answer in one.answers:
            if answer.was_asked:
                old, cost = bills.get(answer.teacher, TeacherBill()), round(answer.cost_usd * NANO)
                by_trace[one.trace_id] += cost
                bills[answer.teacher] = TeacherBill(
                    requests=old.requests + 1,
                    answers=old.answers + 1,
                    spent=old.spent + cost,
                    prompt_tokens=old.prompt_tokens + answer.prompt_tokens,
                    cached_tokens=old.cached_tokens + (answer.cached_tokens if answer.prompt_tokens else 0),
                )
    total = sum(by_trace.values())
    return Purchase(Budget(total, total), bills, by_trace)
