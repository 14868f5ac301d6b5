"""The votes at each step: a trace and its votes -> one ballot per step, with every action in its normal form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from composer_hub.actions.context import contexts
from composer_hub.actions.forms import ActionContext, NormalForm, normalize
from composer_hub.pairs.same_effect import JUDGED, Ruling, rulings
from composer_hub.records import Message, Step, Trace, Vote

VOTED = "voted"


@dataclass(frozen=True, slots=True)
class Cast:
    """One teacher's answer on a ballot."""

    vote: Vote
    action: Message
    form: NormalForm
    abstained: str  # why it is not a vote, "" if it is one
    excluded: str  # why the vote does not count, e.g. same_family

    @property
    def counts(self) -> bool:
        return not self.abstained and not self.excluded and self.vote.attempt == 0


@dataclass(frozen=True, slots=True)
class Ballot:
    """The student's action at one step and the action of each teacher."""

    trace: Trace
    step: Step
    student: Message
    form: NormalForm
    casts: tuple[Cast, ...]  # in the order of teacher and attempt
    rulings: Mapping[str, Ruling] = field(default_factory=dict)  # of the judge, by the action that it was asked about
    judge_usd: float = 0.0

    @property
    def counted(self) -> tuple[Cast, ...]:
        return tuple(cast for cast in self.casts if cast.counts)


def ballots(trace: Trace, votes: Iterable[Vote], *, exclude_same_family: bool = True) -> Iterator[Ballot]:
    """Yield the ballot of every step, with or without votes; votes of other traces are ignored."""
    by_step: dict[str, list[Vote]] = defaultdict(list)
    for vote in votes:
        if vote.trace_id == trace.trace_id:
            by_step[vote.step_id].append(vote)
    for step, context in contexts(trace):
        student = trace.messages[step.action]
        family = step.family or trace.family
        own = by_step.get(step.step_id, ())
        judged = [vote for vote in own if vote.status == JUDGED]
        casts = tuple(
            _cast(vote, context, family if exclude_same_family else "", exclude_same_family)
            for vote in _distinct([vote for vote in own if vote.status != JUDGED])
        )
        judge_usd = sum(vote.cost_usd for vote in judged)
        yield Ballot(trace, step, student, normalize(student, context), casts, rulings(judged), judge_usd)


def _distinct(votes: Sequence[Vote]) -> list[Vote]:
    """Keep one vote per teacher and attempt, in a fixed order: a resumed run may yield one twice."""
    kept: dict[tuple[str, int], Vote] = {}
    for vote in sorted(votes, key=lambda vote: (vote.teacher, vote.attempt, vote.status != VOTED, vote.vote_id)):
        kept.setdefault((vote.teacher, vote.attempt), vote)
    return list(kept.values())


def _cast(vote: Vote, context: ActionContext, family: str, exclude_same_family: bool) -> Cast:
    action = answer_message(vote.answer)
    form = normalize(action, context)
    abstained = vote.status if vote.status != VOTED else form.problem
    excluded = vote.excluded
    if excluded == "same_family" and not exclude_same_family:
        excluded = ""
    if not excluded and family and vote.family == family:
        excluded = "same_family"
    return Cast(vote, action, form, abstained, excluded)


def answer_message(answer: Mapping[str, Any]) -> Message:
    """Read a teacher's answer; one that is not a message (an error, a call without a name) gives an empty message."""
    try:
        message = Message.from_chat({**answer, "role": "assistant", "content": _text(answer.get("content"))})
    except (KeyError, TypeError, AttributeError):
        return Message("assistant")
    return message if all(isinstance(call.name, str) for call in message.tool_calls) else Message("assistant")


def _text(content: Any) -> str:
    """Return content as one text; some providers give it in parts."""
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""
