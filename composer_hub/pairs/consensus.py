"""The action that enough teachers agree on: one trace and its votes -> pairs, and the steps that gave none by reason.

Teachers must agree on the effect of an action (strict, level L2 by default), and the student must have done something
else even when compared loosely (L3). `policy.py` holds both rules. A step without a pair has one of these reasons:

    agrees_with_student, too_close_to_student: the teachers did what the student did, or something close to it
    part_of_student: more or fewer of the same parallel calls
    same_result_as_student: the same file, written with another tool
    same_words: an action with the same words
    no_consensus, too_few_votes: the teachers disagree, or too few votes count
    no_vote_…: no vote counts; the name has the most frequent reason
    judged_yes, judged_order, judged_unsure: the judge finds the same effect, an order that does not matter,
        or cannot decide
    student_text_only, student_invalid_args: the student's action cannot be compared
    provider_failure, not_asked, prompt_too_long: there is nothing to compare
    duplicate: a copy of another step: forked sessions share their first steps
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from composer_hub.actions.arguments import parsed_arguments
from composer_hub.actions.forms import NormalForm, same
from composer_hub.pairs.ballots import Ballot, Cast, ballots
from composer_hub.pairs.parts import TracePairs, finished
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.report import summary_of
from composer_hub.pairs.rows import PairOptions, duplicate_key, pair_row, published_tools
from composer_hub.pairs.same_effect import Ruling, medoid, subject_of
from composer_hub.records import Pair, Step, Trace, Vote, num_prompt_chars

LATER = 10
"""Steps in which the student may still take the action that the teachers choose now."""


def build_pairs(
    trace: Trace,
    votes: Iterable[Vote],
    *,
    policy: Policy | None = None,
    options: PairOptions | None = None,
) -> tuple[list[Pair], Counter[str]]:
    """Return the pairs of a trace in the order of its steps, and the reasons why its other steps gave none.

    It leaves none aside: `make` does.
    """
    policy = policy or Policy()
    cast_ballots = list(ballots(trace, votes, exclude_same_family=policy.exclude_same_family))
    pairs, drops = pairs_from(cast_ballots, policy, options or PairOptions())
    return list(pairs.values()), drops


def parts(voted: Iterable[tuple[Trace, Sequence[Vote]]], policy: Policy, options: PairOptions) -> Iterator[TracePairs]:
    """Yield the pairs of each trace with votes."""
    for trace, votes in voted:
        if not votes:
            continue
        counted = list(ballots(trace, votes, exclude_same_family=policy.exclude_same_family))
        pairs, drops = pairs_from(counted, policy, options)
        yield finished(trace, pairs, drops, [summary_of(ballot) for ballot in counted], options, votes)


def pairs_from(
    cast_ballots: Sequence[Ballot], policy: Policy, options: PairOptions
) -> tuple[dict[bytes, Pair], Counter[str]]:
    """Return the pairs of one trace's ballots by the key of their content, which identifies copies."""
    pairs: dict[bytes, Pair] = {}
    drops: Counter[str] = Counter()
    if not cast_ballots:
        return pairs, drops
    prices = _mean_prices(cast for ballot in cast_ballots for cast in ballot.casts)
    tools = published_tools(cast_ballots[0].trace)
    for at, ballot in enumerate(cast_ballots):
        winners, reason = consensus(ballot, policy)
        if not winners:
            drops[reason] += 1
            continue
        best, ruling = _preferred(winners, prices, ballot)
        if ruling.forbids:
            drops[f"judged_{ruling.same}"] += 1
            continue
        later = [one.form for one in cast_ballots[at + 1 : at + 1 + LATER]]
        pair = pair_row(
            ballot.trace,
            ballot.step,
            best.action,
            tools=tools,
            options=options,
            level=policy.agree_level,
            num_agree=len(winners),
            num_votes=len(ballot.counted),
            teachers=tuple(cast.vote.teacher for cast in winners),
            excluded_teachers=tuple(sorted({cast.vote.teacher for cast in ballot.casts if cast.excluded})),
            families=tuple(sorted({cast.vote.family for cast in winners} - {""})),
            chosen_teacher=best.vote.teacher,
            cost_usd=sum(cast.vote.cost_usd for cast in ballot.casts) + ballot.judge_usd,
            judged=ruling.both_orders,
            judge_answer=ruling.same,
            judge_reason=ruling.reason,
            student_did_later=did_later(ballot.step, best.form, later, policy),
        )
        key = bytes.fromhex(duplicate_key(pair))
        if key in pairs:
            drops["duplicate"] += 1
        else:
            pairs[key] = pair
    return pairs, drops


def did_later(step: Step, chosen: NormalForm, later: Iterable[NormalForm], policy: Policy) -> bool:
    """Return whether the student takes the chosen action soon, and did nothing wrong at this step."""
    # After the student's own failure, its later action is a repair, not a matter of order.
    was_wrong = any(site.blame == "model" for site in step.error_sites)
    return not was_wrong and any(policy.veto(form, chosen) for form in later if form.calls)


def consensus(ballot: Ballot, policy: Policy) -> tuple[tuple[Cast, ...], str]:
    """Return the votes for the action that is preferred over the student's, or the reason why there is none."""
    if reason := _unfit(ballot, policy):
        return (), reason
    counted = ballot.counted
    clusters = policy.groups([cast.form for cast in counted])
    best = min(clusters, key=lambda group: (-len(group), counted[group[0]].form.at(policy.agree_level)))
    winners, size = tuple(counted[at] for at in best), len(best)
    repeats_student = same(winners[0].form, ballot.form, policy.agree_level)
    if repeats_student and len(clusters) == 1:
        return (), "agrees_with_student"
    if len(counted) < policy.min_agree:
        return (), "too_few_votes"
    if size < policy.needed(len(counted)):
        return (), "no_consensus"
    if repeats_student:
        return (), "agrees_with_student"
    veto = next((why for cast in winners if (why := policy.veto(ballot.form, cast.form))), "")
    return ((), veto) if veto else (winners, "")


def _unfit(ballot: Ballot, policy: Policy) -> str:
    if ballot.step.failed_by_provider:
        return "provider_failure"
    if not ballot.casts:
        return "not_asked"
    if ballot.form.problem == "text_only":
        return "student_text_only"
    if any(parsed_arguments(call) is None for call in ballot.student.tool_calls):
        return "student_invalid_args"  # A template cannot render a call whose arguments are not an object.
    if policy.max_prompt_chars is not None and num_prompt_chars(ballot.trace, ballot.step) > policy.max_prompt_chars:
        return "prompt_too_long"
    return "" if ballot.counted else _why_none_counts(ballot)


def _why_none_counts(ballot: Ballot) -> str:
    reasons = Counter(cast.abstained or cast.excluded for cast in ballot.casts if cast.vote.attempt == 0)
    most = min(reasons.items(), key=lambda item: (-item[1], item[0]))[0] if reasons else "repeats_only"
    return f"no_vote_{most}"


# --------------------------------------------------------------------------------------------------- which answer


def _mean_prices(casts: Iterable[Cast]) -> dict[str, float]:
    """Return the mean cost of each teacher's answers, so that one lucky cache hit makes no teacher the cheapest."""
    spent: dict[str, list[float]] = {}
    for cast in casts:
        spent.setdefault(cast.vote.teacher, []).append(cast.vote.cost_usd)
    return {teacher: sum(costs) / len(costs) for teacher, costs in spent.items()}


def _preferred(winners: Sequence[Cast], prices: Mapping[str, float], ballot: Ballot) -> tuple[Cast, Ruling]:
    """Return the answer to prefer and its ruling: the answer that was judged, else the medoid.

    Prices change as a run continues, and the medoid with them. This way a paid ruling is never lost.
    """
    subjects = [subject_of(cast.action) for cast in winners]
    judged = [at for at, subject in enumerate(subjects) if subject in ballot.rulings]
    asked = judged or list(range(len(winners)))
    ranks = [(prices[winners[at].vote.teacher], winners[at].vote.teacher) for at in asked]
    best = asked[medoid([winners[at].action for at in asked], ranks)]
    return winners[best], ballot.rulings.get(subjects[best], Ruling())
