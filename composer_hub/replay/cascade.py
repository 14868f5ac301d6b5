"""Rounds over one trace: which teacher is asked about which step, cheapest teacher first.

In: a trace, teachers in order of price, the answers so far. Out: the next round, as one list of questions per teacher
in step order (so that each list becomes a lane over a growing prefix), and finally the `Vote`s.

- `all` asks every eligible teacher about every step.
- `sequential` asks the first k teachers about every step (k is the policy's `min_agree`), and each further one only
  while it may decide about a pair. It finds what `all` finds.
- `cascade` asks the cheapest teacher about every step, and the others, as above, until one repeats the student. It
  misses a pair if a teacher repeats the student and two others agree on something else.
- `auto` asks one teacher after the other, as long as a further pair is worth its price (`worth.py`).

The steps of a pilot and a share of the others (`audit`) are asked of every teacher, so that the missed pairs are
measured. A vote that only they asked for carries their share as its `inclusion`, so that a report can weight
it: agreement among the answers that an order asked for is biased, because the last teachers are asked only if
the first ones differ.

Once a step's votes would make a pair, the judge (`ReplayOptions.judge`) is asked whether both actions have
the same effect, and if the answer is no, once more with the actions in the other order.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from composer_hub.money import to_usd
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.prompts import read_prompt
from composer_hub.pairs.rows import keeps_books, published_action
from composer_hub.pairs.same_effect import (
    BOTH_ORDERS,
    BY_JUDGE,
    JUDGED,
    Ruling,
    answer_in,
    judgement_id,
    medoid,
    question,
    rulings,
    subject_of,
)
from composer_hub.pairs.stats import wilson
from composer_hub.pairs.windows import is_supported
from composer_hub.records import Message, Step, Trace, Vote, message_chars, stable_id, stable_share
from composer_hub.replay import answers
from composer_hub.replay.answers import TeacherAnswer, text_in
from composer_hub.replay.ledger import Question, Stored
from composer_hub.replay.options import AUTO, ReplayOptions
from composer_hub.replay.orders import Codes, canonical, has_pair, is_late, is_open, num_asked, num_next
from composer_hub.replay.prompts import Prompt, Prompts, alone, expected_tokens
from composer_hub.replay.teachers import Teacher

Same = Callable[[Step, Message, Message], bool]
"""(step, action, other action) -> whether they are the same."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of actions in one trace: strict between teachers, loose against the student."""

    agree: Same
    repeats: Same
    normal_form: Callable[[Step, Message], str]
    did_later: Callable[[Step, Message], bool]  # the student takes that action within its next steps


Compare = Callable[[Trace, Policy], Comparison]


@dataclass(frozen=True, slots=True)
class Ask:
    """One question of a lane."""

    step: Step
    attempt: int = 0  # of a question to the judge: in which order it sees the two actions
    judged: Message | None = None  # the action that the judge compares with the student's


@dataclass(frozen=True, slots=True)
class AskOutcome:
    """The result of a question."""

    status: str
    answer: TeacherAnswer | None = None
    cost: int = 0  # nano-dollars
    cost_source: str = ""
    price_stamp: str = ""
    latency_s: float = 0.0


@dataclass(slots=True)
class _State:
    step: Step
    eligible: tuple[Teacher, ...]
    excluded: dict[str, str]  # teacher -> reason for not asking it
    drawn: bool  # for the audit
    in_full: bool = False  # a step of the pilot
    late: bool = False  # it is in the last part of its trace
    worth: dict[int, bool] = field(default_factory=dict)  # answers so far -> whether one more is worth its price
    outcomes: dict[tuple[str, int], AskOutcome] = field(default_factory=dict)
    codes: Codes = ()  # of the outcomes so far
    chosen: Message | None = None  # the action that a pair would prefer, by these codes
    aside: bool | None = None  # whether that pair would be left out, whatever the ruling
    judge: str = ""  # why the judge is not asked
    judged: dict[tuple[str, int], AskOutcome] = field(default_factory=dict)  # (action, order) -> its answer

    @property
    def audited(self) -> bool:
        """Return whether every teacher is asked, whatever the order."""
        return self.drawn or self.in_full

    def first(self) -> Mapping[str, AskOutcome]:
        return {name: outcome for (name, attempt), outcome in self.outcomes.items() if attempt == 0}


@dataclass(slots=True)
class AuditTally:
    """The counts of pairs and of the audit, added up over traces."""

    num_steps: int = 0
    num_pairs: int = 0
    num_stopped_early: int = 0  # steps that the order ended early
    num_audited: int = 0  # of those, steps that the audit asked in full
    num_missed: int = 0  # of the audited steps, those with a pair

    num_refused: int = 0  # would-be pairs whose effects the judge does not call different
    num_unfinished: int = 0  # steps that still have a question
    num_too_dear: int = 0  # steps at which a further pair was not worth its price
    full: Counter[tuple[tuple[str, ...], Codes]] = field(default_factory=Counter)
    """(teachers, codes) -> steps of the audit and the pilot that every teacher has answered."""

    @property
    def recall(self) -> float | None:
        """Return the share of pairs that the order finds, as measured by the audit; None without audited steps."""
        # Audited steps are asked in full. Only the other steps that ended early can miss a pair.
        return self._recall(self.num_missed / self.num_audited) if self.num_audited else None

    @property
    def recall_interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of the recall (Wilson's, of the share of audited steps with a missed pair)."""
        if not self.num_audited:
            return None
        low, high = wilson(self.num_missed / self.num_audited, self.num_audited)
        ends = self._recall(high), self._recall(low)
        return None if ends[0] is None or ends[1] is None else (ends[0], ends[1])

    def _recall(self, missed_share: float) -> float | None:
        missed = missed_share * (self.num_stopped_early - self.num_audited)
        return self.num_pairs / (self.num_pairs + missed) if self.num_pairs + missed else None

    def __iadd__(self, other: AuditTally) -> AuditTally:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self


IsWorth = Callable[["TraceRounds", Step, Codes, Sequence[Teacher], bool], bool]
"""(rounds, step, codes so far, teachers left, whether its price counts) -> whether a pair there is worth it."""


class TraceRounds:
    """The rounds over one trace."""

    def __init__(
        self,
        trace: Trace,
        teachers: Sequence[Teacher],
        options: ReplayOptions,
        compare: Compare,
        *,
        in_full: Collection[int] = (),
        pilot_share: float = 0.0,
    ) -> None:
        """`in_full` are the places of the pilot's steps among those that may be asked about."""
        self.trace, self.options, self._compare = trace, options, compare
        self.is_worth: IsWorth = lambda *_: True
        self._inclusion = pilot_share + (1 - pilot_share) * options.audit
        self.teachers = {teacher.name: teacher for teacher in teachers}
        self.prompts = Prompts(trace)
        limited = options.agreement.max_prompt_chars is not None
        self._chars = [message_chars(message) for message in trace.messages] if limited else []
        self.known_tools = frozenset(tool["function"]["name"] for tool in self.prompts.tools)
        self._all = {step.step_id: self._state(step, teachers) for step in trace.steps}
        for place, state in enumerate(self._askable()):
            state.in_full = place in in_full
        self._states = self._all  # those that are asked about in this run

    @functools.cached_property
    def comparison(self) -> Comparison:
        return self._compare(self.trace, self.options.agreement)

    def next_round(self) -> dict[str, list[Ask]]:
        """Return the next questions once all earlier ones have an outcome; empty if the trace is done."""
        lanes: dict[str, list[Ask]] = {}
        for state in self._states.values():
            for teacher in self._next(state):
                lanes.setdefault(teacher.name, []).extend(self._asks(state, teacher))
            if self.options.judge and (ask := self._about_pair(state)):
                lanes.setdefault(self.options.judge.name, []).append(ask)
        return lanes

    def prompt_of(self, ask: Ask) -> Prompt:
        """Return the prompt of a question."""
        if ask.judged:
            return alone(question(self.trace, ask.step, ask.judged, ask.attempt))
        return self.prompts.of(ask.step)

    def record(self, teacher: str, ask: Ask, outcome: AskOutcome) -> None:
        """Record the outcome of a question."""
        state = self._states[ask.step.step_id]
        if ask.judged:
            state.judged[subject_of(ask.judged), ask.attempt] = outcome
        else:
            state.outcomes[teacher, ask.attempt] = outcome

    def ranks(self) -> dict[str, list[str]]:
        """Return the names of the teachers that may be asked about each step, cheapest first."""
        return {step_id: [teacher.name for teacher in state.eligible] for step_id, state in self._all.items()}

    def keep_first(self, num_steps: int | None) -> None:
        """Ask only about the first steps that a teacher may be asked about; None: about all of them again."""
        asked = [step_id for step_id, state in self._all.items() if state.eligible][:num_steps]
        self._states = self._all if num_steps is None else {step_id: self._all[step_id] for step_id in asked}

    def keep_full(self) -> None:
        """Ask only about the steps of the pilot."""
        self._states = {state.step.step_id: state for state in self._all.values() if state.in_full}

    def questions(self) -> Iterator[tuple[Teacher, Ask, Question]]:
        """Yield the first question of every teacher about every step that is kept, whatever the order.

        Those to the judge follow from the outcomes that the caller has recorded.
        """
        judge = self.options.judge
        for state in self._states.values():
            for teacher in state.eligible:
                ask = Ask(state.step)
                yield teacher, ask, self.question(teacher, ask)
            for _ in BOTH_ORDERS if judge else ():
                if judge and (about := self._about_pair(state)):
                    yield judge, about, self.question(judge, about)

    def question(self, teacher: Teacher, ask: Ask) -> Question:
        """Return a question as the ledger knows it."""
        params = {**teacher.params, "max_tokens": teacher.max_tokens}
        key = self.prompts.key(teacher.route, self.prompt_of(ask), params, ask.attempt)
        return Question(key, teacher.name, self.trace.trace_id, ask.step.step_id, ask.attempt)

    def panel_of(self, step: Step) -> tuple[str, ...]:
        """Return the names of the teachers that may be asked about a step."""
        return tuple(teacher.name for teacher in self._all[step.step_id].eligible)

    @property
    def num_askable(self) -> int:
        return sum(1 for _ in self._askable())

    @property
    def num_late(self) -> int:
        return sum(state.late for state in self._askable())

    @property
    def pilot_ids(self) -> frozenset[str]:
        """Return the steps of the pilot."""
        return frozenset(step_id for step_id, state in self._all.items() if state.in_full)

    def spent(self) -> int:
        """Return the nano-dollars of the answers so far."""
        return sum(outcome.cost for state in self._states.values() for outcome in state.outcomes.values())

    def exclusions(self) -> Iterator[str]:
        """Yield the reason for each teacher that is left out of a step."""
        for state in self._states.values():
            yield from state.excluded.values()

    def votes(self) -> Iterator[Vote]:
        """Yield one vote per outcome, and one for each teacher that is left out of a step."""
        for state in self._states.values():
            asked = {teacher.name for teacher in state.eligible[: self._num_by_order(state)]}
            for (name, attempt), outcome in state.outcomes.items():
                yield self._vote(
                    state, self.teachers[name], attempt, outcome, audited=state.audited and name not in asked
                )
            for name, reason in state.excluded.items():
                yield self._vote(state, self.teachers[name], 0, AskOutcome("not_asked"), excluded=reason)
            yield from self._judgements(state)

    def tally(self) -> AuditTally:
        """Count the pairs, and those that the audit found after an early end."""
        tally = AuditTally(num_steps=len(self._states))
        for state in self._states.values():
            codes = self._codes(state)
            unfinished = bool(self._next(state) or (self.options.judge and self._about_pair(state)))
            refused = self._ruling(state).forbids
            pair = has_pair(codes, self.options.agreement) and not refused
            tally.num_pairs += pair
            tally.num_refused += refused
            tally.num_unfinished += unfinished
            tally.num_too_dear += False in state.worth.values()
            if state.audited and state.eligible and len(codes) == len(state.eligible):
                tally.full[tuple(teacher.name for teacher in state.eligible), canonical(codes)] += 1
            if not unfinished and self._stops_early(state):
                tally.num_stopped_early += 1
                tally.num_audited += state.audited
                tally.num_missed += state.audited and pair
        return tally

    # --------------------------------------------------------------------------------------------------- inside

    def _state(self, step: Step, teachers: Sequence[Teacher]) -> _State:
        num_bytes = self.prompts.num_bytes(step)
        excluded = {t.name: why for t in teachers if (why := self._exclusion(step, t, num_bytes))}
        eligible = tuple(teacher for teacher in teachers if teacher.name not in excluded)
        drawn = share_of(step.step_id, "audit") < self.options.audit
        judge = self.options.judge
        state = _State(step, eligible, excluded, drawn, late=is_late(step.index, len(self.trace.steps)))
        state.judge = self._exclusion(step, judge, 0) if judge else ""
        return state

    def _askable(self) -> Iterator[_State]:
        return (state for state in self._all.values() if state.eligible)

    def _exclusion(self, step: Step, teacher: Teacher, num_bytes: int) -> str:
        if step.failed_by_provider:
            return "provider_failure"
        if not self.trace.messages[step.action].tool_calls:
            return "student_text_only"  # cannot become a pair
        family = step.family or self.trace.family
        agreement = self.options.agreement
        if agreement.exclude_same_family and family and teacher.family == family:
            return "same_family"
        limit = agreement.max_prompt_chars
        if limit is not None and sum(sum(self._chars[start:stop]) for start, stop in step.prompt) > limit:
            return "over_prompt_window"
        if teacher.context_length and expected_tokens(num_bytes) + teacher.max_tokens > teacher.context_length:
            return "too_long"
        return ""

    def _next(self, state: _State) -> tuple[Teacher, ...]:
        codes = self._codes(state)
        unasked = state.eligible[len(codes) :]
        num = self._num_next(state, codes, len(unasked))
        if not num and state.audited:
            # One after the other, so that the questions of the audit join the lanes of the order.
            num = len(unasked) if self.options.order == "all" else 1
        return unasked[:num]

    def _num_next(self, state: _State, codes: Codes, num_left: int) -> int:
        num = num_next(self.options.order, codes, num_left, self.options.agreement, late=state.late)
        if num and self.options.order == AUTO:
            at = len(codes)
            if at not in state.worth:  # decided once: a price that moves must not change what was asked
                state.worth[at] = self.is_worth(self, state.step, codes, state.eligible[at:], not state.audited)
            return num if state.worth[at] else 0
        return num

    def _num_by_order(self, state: _State) -> int:
        """Return how many teachers the order asks; the others were asked by the audit or the pilot."""
        missing = len(state.eligible) - len(self._codes(state))
        return num_asked(lambda codes, left: self._num_next(state, codes, left + missing), self._codes(state))

    def _stops_early(self, state: _State) -> bool:
        num = self._num_by_order(state)
        rest = len(state.eligible) - num
        return is_open(self._codes(state)[:num], rest, self.options.agreement)

    def _codes(self, state: _State) -> Codes:
        """Return the codes of the teachers asked so far, which are the first ones in order."""
        outcomes = state.first()
        asked = list(itertools.takewhile(lambda teacher: teacher.name in outcomes, state.eligible))
        if len(state.codes) != len(asked):
            state.chosen = state.aside = None
            actions: list[tuple[int, Message]] = []
            state.codes = tuple([self._code(state, outcomes[teacher.name], actions) for teacher in asked])
        return state.codes

    def _code(self, state: _State, outcome: AskOutcome, actions: list[tuple[int, Message]]) -> int:
        action = outcome.answer.action if outcome.answer else None
        if action is None or not self.comparison.agree(state.step, action, action):
            return 0  # an abstention or an invalid action is not a vote
        same = (code for code, other in actions if self.comparison.agree(state.step, other, action))
        code = next(same, 0)
        if not code:
            student = self.trace.messages[state.step.action]
            code = len(actions) + 1
            code = -code if self.comparison.repeats(state.step, student, action) else code
            actions.append((code, action))
        return code

    def _asks(self, state: _State, teacher: Teacher) -> list[Ask]:
        # Only the first teacher is asked twice: its lane is warm, and one teacher is enough to measure the noise.
        twice = teacher is state.eligible[0] and share_of(state.step.step_id, "repeat") < self.options.repeat
        return [Ask(state.step), *([Ask(state.step, attempt=1)] if twice else [])]

    # ------------------------------------------------------------------------------------------------- the judge

    def _about_pair(self, state: _State) -> Ask | None:
        """Return the next question to the judge, None if the votes make no pair or its answers suffice."""
        if state.judge or self._next(state) or (chosen := self._chosen(state)) is None:
            return None
        if state.aside is None:
            state.aside = self._is_aside(state.step, chosen)
        if state.aside:
            return None
        subject = subject_of(chosen)
        answers = [state.judged[subject, order] for order in BOTH_ORDERS if (subject, order) in state.judged]
        said_no = all(one.answer and answer_in(text_in(one.answer.message))[0] == "no" for one in answers)
        return Ask(state.step, len(answers), chosen) if said_no and len(answers) < len(BOTH_ORDERS) else None

    def _is_aside(self, step: Step, chosen: Message) -> bool:
        """Return whether `pairs build` leaves a pair out by default, however its prompt is cut."""
        action, prompt = published_action(chosen), read_prompt(self.trace, step)
        return (
            any(map(keeps_books, (action, self.trace.messages[step.action])))
            or self.comparison.did_later(step, chosen)
            or not is_supported(prompt, action, prompt)
        )

    def _chosen(self, state: _State) -> Message | None:
        """Return the action that a pair of this step would prefer over the student's."""
        codes = self._codes(state)
        if not has_pair(codes, self.options.agreement):
            return None
        if state.chosen is None:
            best = max(set(codes) - {0}, key=codes.count)
            firsts = zip(codes, state.eligible, strict=False)
            answers = (state.outcomes[teacher.name, 0].answer for code, teacher in firsts if code == best)
            actions = [answer.action for answer in answers if answer and answer.action]
            state.chosen = actions[medoid(actions, range(len(actions)))]
        return state.chosen

    def _ruling(self, state: _State) -> Ruling:
        chosen = self._chosen(state) if state.judged else None
        return rulings(self._judgements(state)).get(subject_of(chosen), Ruling()) if chosen else Ruling()

    def _judgements(self, state: _State) -> Iterator[Vote]:
        """Yield the answers of the judge as votes that do not count."""
        if judge := self.options.judge:
            for (subject, order), outcome in state.judged.items():
                vote = self._vote(state, judge, order, outcome, excluded=BY_JUDGE)
                status = JUDGED if outcome.answer else outcome.status
                name = judgement_id(state.step.step_id, judge.identity, order, subject)
                yield replace(vote, vote_id=name, status=status, normal_form=subject)

    def _vote(
        self,
        state: _State,
        teacher: Teacher,
        attempt: int,
        outcome: AskOutcome,
        *,
        excluded: str = "",
        audited: bool = False,
    ) -> Vote:
        answer, step = outcome.answer, state.step
        action = answer.action if answer else None
        return Vote(
            vote_id=stable_id(step.step_id, teacher.route, teacher.name, attempt),
            trace_id=self.trace.trace_id,
            step_id=step.step_id,
            index=step.index,
            teacher=teacher.name,
            family=teacher.family,
            status=outcome.status,
            answer=dict(answer.message) if answer else {},
            normal_form=self.comparison.normal_form(step, action) if action else "",
            usage=dict(answer.usage) if answer else {},
            cost_usd=to_usd(outcome.cost),
            cost_source=outcome.cost_source,
            cached_tokens=answer.counted.cached_tokens if answer else 0,
            latency_s=outcome.latency_s,
            provider=answer.provider if answer else teacher.server,
            served_model=answer.served_model if answer else "",
            request_id=answer.request_id if answer else "",
            price_stamp=outcome.price_stamp,
            attempt=attempt,
            excluded=excluded or ("repeat" if attempt else ""),
            inclusion=self._inclusion if audited else 1.0,
        )


def outcome_of(stored: Stored, teacher: Teacher, known_tools: Collection[str]) -> AskOutcome:
    """Return the outcome that the ledger has stored."""
    if stored.response is None:
        return AskOutcome(stored.kind, cost=stored.cost, price_stamp=stored.price_stamp)
    answer = answers.read(answers.parse_body(stored.response), teacher, known_tools)
    return AskOutcome(answer.status, answer, stored.cost, stored.cost_source, stored.price_stamp, stored.latency_s)


def share_of(step_id: str, purpose: str) -> float:
    """Hash a step to a stable number in [0, 1), so that sampling is the same on every machine."""
    return stable_share(f"{purpose} {step_id}")
