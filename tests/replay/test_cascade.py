"""Sequential voting finds every pair with fewer questions; the cascade measures the pairs that it misses."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.pairs.policy import Policy
from composer_hub.records import ErrorSite, Message, Step, ToolCall, Trace
from composer_hub.replay.answers import TeacherAnswer
from composer_hub.replay.cascade import AskOutcome, TraceRounds, share_of
from composer_hub.replay.comparison import by_normal_form
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.orders import is_late
from composer_hub.replay.prices import per_million
from composer_hub.replay.teachers import Teacher
from tests.quick import cases
from tests.replay.sample import compare, trace_of

PANEL = [
    Teacher(name, name, "http://127.0.0.1/v1", family=f"family-{name}", price=per_million(price, price))
    for name, price in (("cheap", "1"), ("middle", "2"), ("dear", "9"))
]


def outcome(word: str) -> AskOutcome:
    """Return a teacher's outcome: an action of this word, or an abstention for ""."""
    if not word:
        return AskOutcome("length")
    call = ToolCall("bash", {"command": word})
    return AskOutcome("voted", TeacherAnswer("voted", {}, Message("assistant", "", (call,))))


def play(
    trace: Trace, options: ReplayOptions, words: dict[str, dict[str, str]], panel: Sequence[Teacher] = PANEL
) -> TraceRounds:
    """Answer every question from a table of step -> teacher -> word until no question is left."""
    run = TraceRounds(trace, panel, options, compare)
    while lanes := run.next_round():
        for name, asks in lanes.items():
            assert [ask.step.index for ask in asks] == sorted(ask.step.index for ask in asks)
            for ask in asks:
                run.record(name, ask, outcome(words[ask.step.step_id][name]))
    return run


def draw(trace: Trace, rng: random.Random) -> dict[str, dict[str, str]]:
    """Let each teacher repeat the student, take one of two other actions, or abstain."""

    def word(step: Step) -> str:
        student = trace.messages[step.action].tool_calls[0].arguments["command"]
        return rng.choice([student, student, "left", "right", ""])

    return {step.step_id: {teacher.name: word(step) for teacher in PANEL} for step in trace.steps}


def draw_misses(trace: Trace, rng: random.Random) -> dict[str, dict[str, str]]:
    """Let the cheapest repeat the student at half of the steps, while the others sometimes agree on something else."""

    def words(step: Step) -> dict[str, str]:
        student = trace.messages[step.action].tool_calls[0].arguments["command"]
        better = rng.choice(["left", "left", student])
        return {"cheap": rng.choice([student, "left"]), "middle": better, "dear": better}

    return {step.step_id: words(step) for step in trace.steps}


def pairs(run: TraceRounds) -> dict[str, str]:
    """Return step -> the action on which at least two agree, unless it is the student's."""
    forms_of: dict[str, list[str]] = {}
    for vote in run.votes():
        if vote.status == "voted":
            forms_of.setdefault(vote.step_id, []).append(vote.normal_form)
    winners = {}
    for step in run.trace.steps:
        forms = forms_of.get(step.step_id, [])
        agreed = {form for form in forms if forms.count(form) >= 2}
        student = compare(run.trace).normal_form(step, run.trace.messages[step.action])
        for form in agreed - {student}:
            winners[step.step_id] = form
    return winners


def asked(run: TraceRounds) -> int:
    return sum(vote.status != "not_asked" for vote in run.votes())


@cases(60)
@given(seed=st.integers(0, 10**6))
def test_sequential_voting_finds_the_pairs_of_asking_all_for_fewer_calls(seed: int) -> None:
    trace = trace_of(15)
    words = draw(trace, random.Random(seed))
    everyone = play(trace, ReplayOptions(order="all", repeat=0), words)
    fewer = play(trace, ReplayOptions(order="sequential", repeat=0, audit=0), words)
    assert pairs(fewer) == pairs(everyone)
    assert fewer.tally().num_pairs == len(pairs(everyone))
    assert asked(fewer) < asked(everyone) == 45


@cases(40)
@given(seed=st.integers(0, 10**6))
def test_the_cascade_finds_no_false_pair_and_misses_one_only_late_or_if_a_teacher_repeats_the_student(
    seed: int,
) -> None:
    trace = trace_of(15)
    words = draw(trace, random.Random(seed))
    everyone = pairs(play(trace, ReplayOptions(order="all", repeat=0), words))
    cascade = play(trace, ReplayOptions(order="cascade", repeat=0, audit=0), words)
    found = pairs(cascade)
    assert found.items() <= everyone.items()
    for step_id in everyone.keys() - found.keys():
        step = next(step for step in trace.steps if step.step_id == step_id)
        student = trace.messages[step.action].tool_calls[0].arguments["command"]
        assert student in words[step_id].values() or is_late(step.index, len(trace.steps))


def test_an_audit_of_every_step_finds_every_pair_and_counts_the_ones_that_the_cascade_misses() -> None:
    trace = trace_of(60)
    words = draw_misses(trace, random.Random(5))
    everyone = pairs(play(trace, ReplayOptions(order="all", repeat=0), words))
    audited = play(trace, ReplayOptions(order="cascade", repeat=0, audit=1.0), words)
    assert pairs(audited) == everyone
    tally = audited.tally()
    assert tally.num_audited == tally.num_stopped_early > 0
    assert tally.num_missed == len(everyone) - len(pairs(play(trace, ReplayOptions(repeat=0, audit=0), words))) > 0
    assert tally.recall == 1.0


def test_the_recall_scales_the_audited_misses_to_all_steps_that_ended_early() -> None:
    trace = trace_of(400)
    words = draw_misses(trace, random.Random(9))
    everyone = play(trace, ReplayOptions(order="all", repeat=0), words)
    part = play(trace, ReplayOptions(order="cascade", repeat=0, audit=0.5), words)
    true_recall = len(pairs(part)) / len(pairs(everyone))
    assert part.tally().recall == pytest.approx(true_recall, abs=0.08)


def test_a_teacher_of_the_students_family_is_left_out_and_recorded() -> None:
    panel = [dataclasses.replace(PANEL[0], family="student"), *PANEL[1:]]
    trace = trace_of(4)
    run = play(trace, ReplayOptions(order="all", repeat=0), draw(trace, random.Random(1)), panel)
    left_out = [vote for vote in run.votes() if vote.excluded]
    assert {(vote.teacher, vote.excluded, vote.status) for vote in left_out} == {("cheap", "same_family", "not_asked")}
    assert len(left_out) == 4
    allowed = play(
        trace,
        ReplayOptions(order="all", agreement=Policy(exclude_same_family=False)),
        draw(trace, random.Random(1)),
        panel,
    )
    assert not [vote for vote in allowed.votes() if vote.excluded == "same_family"]


@pytest.mark.parametrize("reason", ["provider_failure", "student_text_only"])
def test_teachers_are_not_asked_about_a_step_that_cannot_become_a_pair(reason: str) -> None:
    trace = trace_of(3)
    steps, messages = list(trace.steps), list(trace.messages)
    if reason == "provider_failure":
        broken = ErrorSite("api_error", "provider", "flag", 0.97, "flag.provider_error", message="529 Overloaded")
        steps[1] = dataclasses.replace(steps[1], error_sites=(broken,))
    else:
        messages[steps[1].action] = Message("assistant", "All done.")
    trace = dataclasses.replace(trace, steps=tuple(steps), messages=tuple(messages))
    words = {step.step_id: dict.fromkeys(("cheap", "middle", "dear"), "left") for step in steps}
    run = play(trace, ReplayOptions("all", audit=1.0, repeat=1.0), words)
    asked = {vote.step_id for vote in run.votes() if vote.status == "voted"}
    assert asked == {steps[0].step_id, steps[2].step_id}
    left_out = {(vote.teacher, vote.excluded) for vote in run.votes() if vote.step_id == steps[1].step_id}
    assert left_out == {(teacher.name, reason) for teacher in PANEL}


def test_a_prompt_that_does_not_fit_a_teacher_or_the_window_is_left_out_with_its_reason() -> None:
    panel = [dataclasses.replace(PANEL[0], context_length=4500), *PANEL[1:]]
    trace = trace_of(20, growth=400)
    run = play(
        trace,
        ReplayOptions(order="all", repeat=0, agreement=Policy(max_prompt_chars=7000)),
        draw(trace, random.Random(1)),
        panel,
    )
    reasons = {(vote.teacher, vote.excluded) for vote in run.votes() if vote.excluded}
    assert ("cheap", "too_long") in reasons
    assert ("dear", "over_prompt_window") in reasons


def test_the_first_teacher_is_asked_twice_on_the_sampled_share_of_steps() -> None:
    trace = trace_of(300)
    run = play(trace, ReplayOptions(order="all", repeat=0.1), draw(trace, random.Random(3)))
    again = [vote for vote in run.votes() if vote.attempt == 1]
    assert {vote.teacher for vote in again} == {"cheap"}
    assert 15 <= len(again) <= 45
    assert {vote.excluded for vote in again} == {"repeat"}


def test_sampling_is_the_same_on_every_machine() -> None:
    assert share_of("step", "audit") == pytest.approx(0.539255039703)
    assert share_of("step", "audit") != share_of("step", "repeat")


def test_the_cascade_ends_where_the_cheapest_teacher_makes_a_part_of_the_students_calls() -> None:
    trace = trace_of(1, cwd="/repo")
    step, comparison = trace.steps[0], by_normal_form(trace, Policy())
    ls, rm, make = (ToolCall("bash", {"command": text}) for text in ("ls", "rm -r build", "make"))
    student = Message("assistant", "", (ls, rm))
    assert comparison.repeats(step, student, Message("assistant", "", (rm,)))
    assert not comparison.repeats(step, student, Message("assistant", "", (rm, make)))


def test_actions_are_compared_by_normal_form_and_not_by_spelling() -> None:
    trace = trace_of(1, cwd="/repo")
    step, comparison = trace.steps[0], by_normal_form(trace, Policy())

    def act(command: str) -> Message:
        return Message("assistant", "", (ToolCall("bash", {"command": command}),))

    assert comparison.agree(step, act("ls -l -a"), act("ls  -la"))
    assert not comparison.agree(step, act("rm -rf ./build"), act("rm -r f/build"))
    assert comparison.normal_form(step, act("ls -l -a")) == comparison.normal_form(step, act("ls -al"))
    # Text alone cannot become a pair, so equal texts are not an agreement.
    assert not comparison.agree(step, Message("assistant", "Done."), Message("assistant", "Done."))


def test_every_vote_knows_with_what_chance_it_was_asked_for() -> None:
    trace = trace_of(400)
    words = draw(trace, random.Random(11))
    run = play(trace, ReplayOptions(order="cascade", repeat=0, audit=0.25), words)
    votes = {(vote.step_id, vote.teacher): vote.inclusion for vote in run.votes()}
    audited = {step.step_id for step in trace.steps if share_of(step.step_id, "audit") < 0.25}
    assert {vote for vote in votes if vote[0] in audited} == {(s, t.name) for s in audited for t in PANEL}
    assert {inclusion for (step, _), inclusion in votes.items() if step not in audited} == {1.0}
    # The last teacher is as often right as the first, although the order asks it only where the others differ.
    agreed = [vote for vote in run.votes() if vote.teacher == "dear" and vote.status == "voted"]
    weights = sum(1 / vote.inclusion for vote in agreed)
    left = sum(1 / vote.inclusion for vote in agreed if "left" in vote.normal_form)
    assert left / weights == pytest.approx(0.25, abs=0.07)
