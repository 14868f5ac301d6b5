"""Preference pairs: a trace and its teachers' votes -> pairs for `DPOTrainer`, and a count of the steps that gave none.

A pair is made where enough teachers agree on the effect of an action (strict, L2) and the student did something else
even when seen from afar (loose, L3). The pair is the action alone: the calls are compared and trained on, the words
beside them stay in columns of their own.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from composer_hub.actions.forms import parsed_arguments, same
from composer_hub.pairs.ballots import Ballot, Cast, ballots
from composer_hub.pairs.policy import Policy
from composer_hub.records import Message, Pair, Step, ToolCall, Trace, Vote, num_prompt_chars, prompt_of, stable_id

TEST_SHARE = 0.05


def build_pairs(
    trace: Trace, votes: Iterable[Vote], *, policy: Policy | None = None, with_prose: bool = False
) -> tuple[list[Pair], Counter[str]]:
    """Return the pairs of a trace, in the order of its steps, and for every other step the reason why it gave none."""
    policy = policy or Policy()
    cast_ballots = ballots(trace, votes, exclude_same_family=policy.exclude_same_family)
    return pairs_from(cast_ballots, policy=policy, with_prose=with_prose)


def pairs_from(
    cast_ballots: Iterable[Ballot], *, policy: Policy, with_prose: bool = False
) -> tuple[list[Pair], Counter[str]]:
    """Return the pairs of one trace's ballots, and the steps without one, counted by reason."""
    counted = list(cast_ballots)
    pairs: list[Pair] = []
    drops: Counter[str] = Counter()
    if not counted:
        return pairs, drops
    prices = _mean_prices(cast for ballot in counted for cast in ballot.casts)
    tools = published_tools(counted[0].trace)
    seen: set[str] = set()
    for ballot in counted:
        winners, reason = consensus(ballot, policy)
        if not winners:
            drops[reason] += 1
            continue
        pair = _pair(ballot, winners, _medoid(winners, prices), tools, policy.agree_level, with_prose)
        if fresh := list(without_duplicates([pair], seen)):
            pairs += fresh
        else:
            drops["duplicate"] += 1
    return pairs, drops


def consensus(ballot: Ballot, policy: Policy) -> tuple[tuple[Cast, ...], str]:
    """Return the teachers whose common action is preferred over the student's, or why there are none."""
    reason = _unfit(ballot, policy)
    if reason:
        return (), reason
    counted = ballot.counted
    clusters = Counter(cast.form.at(policy.agree_level) for cast in counted)
    best, size = min(clusters.items(), key=lambda item: (-item[1], item[0]))
    winners = tuple(cast for cast in counted if cast.form.at(policy.agree_level) == best)
    if _as_student(ballot, winners[0], policy) and len(clusters) == 1:
        return (), "agrees_with_student"
    if len(counted) < policy.min_agree:
        return (), "too_few_votes"
    if size < policy.needed(len(counted)):
        return (), "no_consensus"
    if _as_student(ballot, winners[0], policy):
        return (), "agrees_with_student"
    veto = next((why for cast in winners if (why := policy.veto(ballot.form, cast.form))), "")
    return ((), veto) if veto else (winners, "")


def _as_student(ballot: Ballot, cast: Cast, policy: Policy) -> bool:
    return same(cast.form, ballot.form, policy.agree_level)


def _unfit(ballot: Ballot, policy: Policy) -> str:
    if ballot.step.failed_by_provider:
        return "provider_failure"
    if not ballot.casts:
        return "not_asked"
    if ballot.form.problem == "text_only":
        return "student_text_only"
    if any(parsed_arguments(call) is None for call in ballot.student.tool_calls):
        return "student_invalid_args"  # A template cannot render a call without an object of arguments.
    if policy.max_prompt_chars is not None and num_prompt_chars(ballot.trace, ballot.step) > policy.max_prompt_chars:
        return "prompt_too_long"
    if not ballot.counted:
        return _why_none_counts(ballot)
    return ""


def _why_none_counts(ballot: Ballot) -> str:
    reasons = Counter(cast.abstained or cast.excluded for cast in ballot.casts if cast.vote.attempt == 0)
    most = min(reasons.items(), key=lambda item: (-item[1], item[0]))[0] if reasons else "repeats_only"
    return f"no_vote_{most}"


# --------------------------------------------------------------------------------------------------- which teacher


def _mean_prices(casts: Iterable[Cast]) -> dict[str, float]:
    """Return what a teacher's answers cost on average, so that one lucky cache hit makes nobody the cheapest."""
    spent: dict[str, list[float]] = {}
    for cast in casts:
        spent.setdefault(cast.vote.teacher, []).append(cast.vote.cost_usd)
    return {teacher: sum(costs) / len(costs) for teacher, costs in spent.items()}


def _medoid(winners: Sequence[Cast], prices: Mapping[str, float]) -> Cast:
    """Return the answer that is closest to the others in its words; between equals the cheapest teacher's."""
    grams = [_grams(cast.form.at("L1")) for cast in winners]

    def rank(at: int) -> tuple[float, float, str]:
        distance = sum(_distance(grams[at], other) for other in grams)
        teacher = winners[at].vote.teacher
        return round(distance, 9), prices[teacher], teacher

    return winners[min(range(len(winners)), key=rank)]


def _grams(text: str, size: int = 5) -> frozenset[str]:
    return frozenset(text[at : at + size] for at in range(max(len(text) - size + 1, 1)))


def _distance(one: frozenset[str], other: frozenset[str]) -> float:
    return 1 - len(one & other) / len(one | other)


# ------------------------------------------------------------------------------------------------------- the pair


def _pair(
    ballot: Ballot, winners: Sequence[Cast], medoid: Cast, tools: tuple[Any, ...], level: str, with_prose: bool
) -> Pair:
    trace, step = ballot.trace, ballot.step
    chosen = published_action(medoid.action, with_prose=with_prose)
    rejected = published_action(ballot.student, with_prose=with_prose)
    sites = sorted(step.error_sites, key=lambda site: site.blame != "model")
    return Pair(
        pair_id=pair_id_of(trace.trace_id, step.step_id, (chosen,), (rejected,)),
        trace_id=trace.trace_id,
        step_id=step.step_id,
        index=step.index,
        num_steps=len(trace.steps),
        prompt=published_prompt(prompt_of(trace, step)),
        chosen=(chosen,),
        rejected=(rejected,),
        tools=tools,
        level=level,
        num_agree=len(winners),
        num_votes=len(ballot.counted),
        teachers=tuple(cast.vote.teacher for cast in winners),
        excluded_teachers=tuple(sorted({cast.vote.teacher for cast in ballot.casts if cast.excluded})),
        families=tuple(sorted({cast.vote.family for cast in winners} - {""})),
        chosen_teacher=medoid.vote.teacher,
        source_model=step.model or trace.model,
        source_family=step.family or trace.family,
        error_kind=sites[0].kind if sites else "",
        after_error=_follows_error(trace, step),
        resolved=trace.resolved,
        chosen_text=medoid.action.content,
        rejected_text=ballot.student.content,
        cost_usd=sum(cast.vote.cost_usd for cast in ballot.casts),
        license=trace.license,
        repository=trace.repository,
    )


def pair_id_of(trace_id: str, step_id: str, chosen: Sequence[Message], rejected: Sequence[Message]) -> str:
    """Return the id of a pair: the same preference at the same step has the same one, whoever voted for it."""
    return stable_id("pair", trace_id, step_id, list(chosen), list(rejected))


def published_action(action: Message, *, with_prose: bool = False) -> Message:
    """Return an action as both sides of a pair carry it: no thinking, objects as arguments, ids that tell nothing."""
    calls = tuple(
        # Providers write ids in their own style; nine letters and digits is what the strictest template takes.
        ToolCall(call.name, parsed_arguments(call) or {}, stable_id("call", number)[:9])
        for number, call in enumerate(action.tool_calls)
    )
    return Message("assistant", action.content if with_prose else "", calls)


def published_prompt(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return a prompt without thinking, every call's arguments an object as chat templates want it."""
    return tuple(_published_message(message) for message in messages)


def _published_message(message: Message) -> Message:
    calls = tuple(
        call if isinstance(call.arguments, dict) else replace(call, arguments=_as_object(call))
        for call in message.tool_calls
    )
    if not message.reasoning_content and calls == message.tool_calls:
        return message
    return replace(message, reasoning_content="", tool_calls=calls)


def _as_object(call: ToolCall) -> dict[str, Any]:
    parsed = parsed_arguments(call)
    return {"unparsed": call.arguments} if parsed is None else parsed


def published_tools(trace: Trace) -> tuple[dict[str, Any], ...]:
    """Return the tools as schemas; where the trace has only names, a permissive schema made from the calls seen."""
    listed = {}
    for tool in trace.tools:
        function = tool.get("function", tool)
        if function.get("name"):
            listed[function["name"]] = function
    seen = _arguments_seen(trace)
    names = list(listed) or sorted(seen)
    return tuple(_tool(name, listed.get(name, {}), seen.get(name, {})) for name in names)


def _tool(name: str, function: Mapping[str, Any], seen: Mapping[str, set[str]]) -> dict[str, Any]:
    parameters = function.get("parameters") or function.get("input_schema")
    if parameters:
        about = {"name": name, "description": function.get("description", ""), "parameters": dict(parameters)}
        return {"type": "function", "function": about}
    about = {
        "name": name,
        "description": function.get("description") or "Schema not recorded; made from the calls seen in the session.",
        "parameters": {
            "type": "object",
            "properties": {key: {"type": min(types)} if len(types) == 1 else {} for key, types in sorted(seen.items())},
            "additionalProperties": True,
            "x-synthesised": True,
        },
    }
    return {"type": "function", "function": about}


_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _arguments_seen(trace: Trace) -> dict[str, dict[str, set[str]]]:
    """Collect, for each tool that was called, its arguments and the types they had."""
    seen: dict[str, dict[str, set[str]]] = {}
    for message in trace.messages:
        for call in message.tool_calls:
            known = seen.setdefault(call.name, {})
            for key, value in (parsed_arguments(call) or {}).items():
                known.setdefault(key, set()).update({_JSON_TYPES[type(value)]} if type(value) in _JSON_TYPES else ())
    return seen


def _follows_error(trace: Trace, step: Step) -> bool:
    """Tell whether the last thing the student had done before this step went wrong."""
    read = (index for start, stop in reversed(step.prompt) for index in range(stop - 1, start - 1, -1))
    last = next((index for index in read if trace.messages[index].role == "assistant"), None)
    return any(before.action == last and before.error_sites for before in trace.steps)


# ------------------------------------------------------------------------------------------------ over all traces


def duplicate_key(pair: Pair) -> str:
    """Return what two pairs share that would train the same thing twice: prompt, chosen and rejected."""
    return stable_id(pair.prompt, pair.chosen, pair.rejected)


def without_duplicates(pairs: Iterable[Pair], seen: set[str] | None = None) -> Iterator[Pair]:
    """Yield pairs not seen before; forked and resumed sessions share their first steps. `seen` lasts over calls."""
    seen = set() if seen is None else seen
    for pair in pairs:
        key = duplicate_key(pair)
        if key not in seen:
            seen.add(key)
            yield pair


def split_of(row: Trace | Pair, *, test_share: float = TEST_SHARE) -> str:
    """Return train or test: all rows of a repository, or of a trace without one, always land on the same side."""
    key = row.repository or getattr(row, "parent_trace_id", "") or row.trace_id
    place = int.from_bytes(hashlib.sha256(f"split:{key}".encode("utf-8", "surrogatepass")).digest()[:8], "big")
    return "test" if place < test_share * 2**64 else "train"
