"""A pair needs teachers that agree, a student that plainly differs, and carries the action alone."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.actions.forms import same
from composer_hub.errors.vocabulary import KINDS
from composer_hub.pairs import PairOptions, Policy, PolicyError, build_pairs, split_of
from composer_hub.pairs import make as make_pairs
from composer_hub.pairs.ballots import ballots
from composer_hub.pairs.prompts import NO_RESULT, paired
from composer_hub.pairs.rows import published_tools
from composer_hub.records import ErrorSite, Message, Pair, Trace, Vote, from_row, to_row
from composer_hub.replay.prompts import Prompts
from tests.quick import cases

LS = ("Bash", {"command": "ls"})
READ = ("Read", {"file_path": "/repo/a.py"})
READ_TOO = ("Read", {"file_path": "a.py"})
GREP = ("Grep", {"pattern": "x"})
RM = ("Bash", {"command": "rm -rf ./build"})

Make = Callable[..., Any]


@pytest.fixture
def judge(make_trace: Make, make_vote: Make) -> Make:
    """Return a function from the student's call and each teacher's to the pairs and the drops of one step."""

    def run(student: Any, *answers: Any, policy: Policy | None = None, with_prose: bool = False, **fields: Any):
        trace = make_trace(student)
        votes = [
            make_vote(trace, 0, "abcdef"[at] + "-teacher", *([answer] if answer else []), **fields)
            for at, answer in enumerate(answers)
        ]
        return build_pairs(trace, votes, policy=policy, options=PairOptions(with_prose=with_prose))

    return run


def test_two_of_three_that_agree_on_the_effect_make_a_pair(judge: Make) -> None:
    pairs, drops = judge(LS, READ, GREP, READ_TOO)
    assert not drops
    (pair,) = pairs
    assert (pair.num_agree, pair.num_votes, pair.level) == (2, 3, "L2")
    assert pair.teachers == ("a-teacher", "c-teacher")
    assert pair.chosen[0].tool_calls[0].arguments == {"file_path": "/repo/a.py"}
    assert pair.rejected[0].tool_calls[0].arguments == {"command": "ls"}


@pytest.mark.parametrize(
    ("student", "answers", "reason"),
    [
        (LS, [], "not_asked"),
        (LS, [READ], "too_few_votes"),
        (LS, [LS], "agrees_with_student"),
        (LS, [("Bash", {"command": "ls ."}), LS], "agrees_with_student"),
        (LS, [READ, LS, LS], "agrees_with_student"),
        (LS, [READ, GREP], "no_consensus"),
        (LS, [READ, GREP, RM], "no_consensus"),
        (LS, [READ, READ, GREP, GREP], "no_consensus"),
        (READ, [("Read", {"file_path": "a.py", "offset": 9})] * 2, "too_close_to_student"),
        (("Bash", {"command": "cat a.py"}), [READ, READ_TOO], "too_close_to_student"),
        (("Bash", {"command": "head -20 a.py"}), [READ, READ_TOO], "too_close_to_student"),
        ("I am done.", [READ, READ], "student_text_only"),
        (("Bash", "{broken"), [READ, READ], "student_invalid_args"),
        (LS, [None, None], "no_vote_text_only"),
        (LS, [("Bash", "{broken"), ("Bash", "[]")], "no_vote_invalid_args"),
        (LS, [("Frob", {}), ("Frob", {})], "no_vote_unknown_tool"),
        (LS, [READ, None, ("Frob", {})], "too_few_votes"),
    ],
)
def test_every_step_without_a_pair_has_a_reason(judge: Make, student: Any, answers: list[Any], reason: str) -> None:
    pairs, drops = judge(student, *answers)
    assert (pairs, dict(drops)) == ([], {reason: 1})


@pytest.mark.parametrize("kind", [kind for kind, blame in KINDS.items() if blame == "provider"])
def test_a_step_that_a_provider_broke_off_gives_no_pair_whatever_the_votes(
    make_trace: Make, make_vote: Make, kind: str
) -> None:
    trace = make_trace(LS)
    broken = ErrorSite(kind, "provider", "flag", 0.97, "flag.provider_error")
    trace = dataclasses.replace(trace, steps=(dataclasses.replace(trace.steps[0], error_sites=(broken,)),))
    votes = [make_vote(trace, 0, name, READ) for name in ("a-x", "b-x")]
    assert build_pairs(trace, votes) == ([], {"provider_failure": 1})


@pytest.mark.parametrize("status", ["length", "refusal", "route_mismatch", "error"])
def test_an_answer_that_failed_is_kept_but_does_not_count(judge: Make, status: str) -> None:
    pairs, drops = judge(LS, READ, READ, status=status)
    assert (pairs, dict(drops)) == ([], {f"no_vote_{status}": 1})


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"error": "overloaded"},
        {"content": None, "tool_calls": None},
        {"content": [{"type": "text", "text": "Hm."}]},
        {"content": 5},
        {"tool_calls": [{"id": "1"}]},
        {"tool_calls": [{"function": {"name": None, "arguments": "{}"}}]},
        {"tool_calls": "none"},
    ],
    ids=str,
)
def test_an_answer_without_an_action_abstains(make_trace: Make, make_vote: Make, answer: dict[str, Any]) -> None:
    trace = make_trace(LS)
    votes = [dataclasses.replace(make_vote(trace, 0, name, READ), answer=answer) for name in ("a-x", "b-x")]
    assert build_pairs(trace, votes)[1] == {"no_vote_text_only": 1}


def test_a_call_of_a_missing_tool_can_be_rejected(judge: Make) -> None:
    (pair,), _ = judge(("Frob", {}), READ, READ_TOO)
    assert pair.rejected[0].tool_calls[0].name == "Frob"


def test_teachers_of_the_students_family_do_not_count_and_are_named(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(LS)
    votes = [make_vote(trace, 0, name, READ) for name in ("a-x", "b-x", "qwen-x")]
    (pair,), _ = build_pairs(trace, votes)
    assert (pair.num_agree, pair.num_votes, pair.excluded_teachers) == (2, 2, ("qwen-x",))
    assert pair.families == ("a", "b")
    (with_all,), _ = build_pairs(trace, votes, policy=Policy(exclude_same_family=False))
    assert (with_all.num_votes, with_all.excluded_teachers) == (3, ())
    assert build_pairs(trace, [votes[0], votes[2]])[1] == {"too_few_votes": 1}


def test_a_vote_excluded_earlier_stays_excluded(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(LS)
    votes = [make_vote(trace, 0, name, READ, excluded="terms") for name in ("a-x", "b-x")]
    assert build_pairs(trace, votes)[1] == {"no_vote_terms": 1}


def test_repeated_questions_and_votes_handed_over_twice_count_once(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(LS)
    votes = [make_vote(trace, 0, "a-x", READ), make_vote(trace, 0, "a-x", READ, attempt=1)]
    assert build_pairs(trace, votes)[1] == {"too_few_votes": 1}
    assert build_pairs(trace, [votes[0], votes[0]])[1] == {"too_few_votes": 1}


def test_an_edit_that_leaves_the_students_text_gives_no_pair(make_trace: Make, make_vote: Make) -> None:
    write = ("Write", {"file_path": "a.py", "content": "x = 1\n"})
    edit = ("Edit", {"file_path": "a.py", "old_string": "1", "new_string": "2"})
    trace = make_trace(write, ("Write", {"file_path": "a.py", "content": "x = 2\n"}))
    votes = [make_vote(trace, 1, name, edit) for name in ("a-x", "b-x")]
    assert build_pairs(trace, votes)[1] == {"not_asked": 1, "same_result_as_student": 1}


@pytest.mark.parametrize(
    ("student", "teacher", "reason"),
    [
        ((READ, GREP, RM), (READ,), "part_of_student"),
        ((READ, GREP, RM), (GREP, READ_TOO), "part_of_student"),
        ((READ,), (READ_TOO, GREP), "part_of_student"),
        # At the level of the veto another window of the same file is the same call.
        ((("Read", {"file_path": "a.py", "offset": 9}), RM), (READ,), "part_of_student"),
        ((READ, GREP), (GREP, READ_TOO), "agrees_with_student"),
        ((READ, GREP), (READ, RM), None),
        ((READ, GREP), (RM,), None),
    ],
)
def test_more_or_fewer_of_the_same_parallel_calls_are_not_a_disagreement(
    make_trace: Make, make_vote: Make, student: Any, teacher: Any, reason: str | None
) -> None:
    trace = make_trace(student)
    pairs, drops = build_pairs(trace, [make_vote(trace, 0, name, *teacher) for name in ("a-x", "b-x")])
    assert (len(pairs), dict(drops)) == ((0, {reason: 1}) if reason else (1, {}))


def test_the_medoid_is_chosen_and_between_equals_the_cheapest(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(LS)
    plain, dotted = ("Bash", {"command": "rm -r x"}), ("Bash", {"command": "rm --recursive ./x"})
    central = build_pairs(
        trace, [make_vote(trace, 0, n, c) for n, c in zip("abc", [dotted, plain, plain], strict=True)]
    )
    assert central[0][0].chosen_teacher == "b"
    tied = build_pairs(trace, [make_vote(trace, 0, "c", plain), make_vote(trace, 0, "b", dotted)])
    assert tied[0][0].chosen_teacher == "b"


def test_a_pair_carries_the_action_alone_and_the_words_in_columns(judge: Make) -> None:
    (pair,), _ = judge(LS, READ, READ_TOO, text="Let me look.")
    assert (pair.chosen[0].content, pair.rejected[0].content) == ("", "")
    assert (pair.chosen_text, pair.rejected_text) == ("Let me look.", "On it.")
    (with_prose,), _ = judge(LS, READ, READ_TOO, text="Let me look.", with_prose=True)
    assert (with_prose.chosen[0].content, with_prose.rejected[0].content) == ("Let me look.", "On it.")


def test_a_pair_is_valid_unicode_whatever_text_its_answers_hold(judge: Make) -> None:
    (pair,), _ = judge(LS, *[("Read", '{"file_path": "\\ud800.py", "\\udfff": ["\\ud800"]}')] * 2)
    assert pair.chosen[0].tool_calls[0].arguments == {"file_path": "\ufffd.py", "\ufffd": ["\ufffd"]}


def test_call_ids_do_not_reveal_who_wrote_a_call(judge: Make) -> None:
    (pair,), _ = judge(LS, READ, READ_TOO)
    ids = {pair.chosen[0].tool_calls[0].call_id, pair.rejected[0].tool_calls[0].call_id}
    assert len(ids) == 1
    assert all(len(one) == 9 and one.isalnum() for one in ids)


def test_a_prompt_has_no_thinking_and_objects_as_arguments(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(("Bash", "{broken"), ("Bash", '{"command": "ls"}'), LS)
    (pair,), _ = build_pairs(trace, [make_vote(trace, 2, name, READ) for name in "ab"])
    assert not any(message.reasoning_content for message in pair.prompt)
    arguments = [call.arguments for message in pair.prompt for call in message.tool_calls]
    assert arguments == [{"unparsed": "{broken"}, {"command": "ls"}]


def test_the_trainer_reads_the_prompt_that_the_teachers_read(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(("Bash", "{broken"), (READ, GREP), "I am not sure.", LS)
    lost = [index for index, message in enumerate(trace.messages) if message.tool_call_id == "s1.1"]
    silent = dataclasses.replace(trace.messages[lost[0]], role="assistant", content="", tool_call_id="", name="")
    messages = (*trace.messages[: lost[0]], silent, *trace.messages[lost[0] + 1 :])
    trace = dataclasses.replace(trace, messages=messages)
    (pair,), _ = build_pairs(trace, [make_vote(trace, 3, name, READ) for name in "ab"])
    sent = paired(Prompts(trace).of(trace.steps[3]).chat)
    assert [message["content"] for message in sent].count(NO_RESULT) == 1

    def plain(chat: list[dict[str, Any]]) -> list[Any]:
        for message in chat:
            for call in message.get("tool_calls", ()):
                arguments = call["function"]["arguments"]
                call["function"]["arguments"] = json.loads(arguments) if isinstance(arguments, str) else arguments
        return [{key: value for key, value in message.items() if key != "name"} for message in chat]

    assert plain([message.to_chat() for message in pair.prompt]) == plain(sent)
    assert {message.name for message in pair.prompt if message.role == "tool"} == {"Bash", "Read", "Grep"}


def test_an_error_before_the_step_differs_from_an_error_at_the_step(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(LS, LS, LS, errors=[1])
    votes = [make_vote(trace, index, name, READ) for index in range(3) for name in "ab"]
    pairs, _ = build_pairs(trace, votes)
    assert [(pair.error_kind, pair.after_error) for pair in pairs] == [
        ("", False),
        ("edit_no_match", False),
        ("", True),
    ]


def test_tools_without_a_recorded_schema_get_a_marked_permissive_one(make_trace: Make) -> None:
    recorded = {"type": "function", "function": {"name": "Bash", "parameters": {"type": "object", "properties": {}}}}
    trace = make_trace(LS, ("Read", {"file_path": "a", "limit": 3}), tools=(recorded, {"name": "Read"}))
    trace = dataclasses.replace(trace, tools_source="recorded")
    bash, read = (tool["function"] for tool in published_tools(trace))
    assert "x-synthesized" not in bash["parameters"]
    assert read["parameters"]["x-synthesized"]
    assert read["parameters"]["properties"] == {"file_path": {"type": "string"}, "limit": {"type": "integer"}}
    unlisted = published_tools(make_trace(LS, READ, tools=()))
    assert [tool["function"]["name"] for tool in unlisted] == ["Bash", "Read"]


def test_a_pair_costs_what_its_step_cost(judge: Make) -> None:
    (pair,), _ = judge(LS, READ, READ_TOO, GREP)
    assert pair.cost_usd == pytest.approx(0.01 + 0.02 + 0.04)


def test_the_same_votes_give_the_same_pairs_in_any_order(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(LS, RM, LS)
    votes = [make_vote(trace, at, name, READ if name < "c" else GREP) for at in range(3) for name in "abc"]
    assert build_pairs(trace, votes) == build_pairs(trace, votes[::-1])


def test_a_pairs_id_does_not_depend_on_who_voted(judge: Make) -> None:
    assert judge(LS, READ, READ)[0][0].pair_id == judge(LS, GREP, READ, READ)[0][0].pair_id
    assert judge(LS, READ, READ)[0][0].pair_id != judge(LS, GREP, GREP)[0][0].pair_id


def test_a_pair_survives_its_row(judge: Make) -> None:
    (pair,), _ = judge(LS, READ, READ_TOO)
    assert from_row(Pair, to_row(pair)) == pair


def test_steps_shared_by_forked_sessions_give_one_pair(make_trace: Make, make_vote: Make) -> None:
    trace = make_trace(LS)
    fork = dataclasses.replace(trace, trace_id="fork")
    made = make_pairs([trace, fork], [make_vote(one, 0, name, READ) for one in (trace, fork) for name in "ab"])
    assert [pair.trace_id for pair in made.pairs] == [trace.trace_id]
    assert made.drops == {"duplicate": 1}
    assert made.num_traces == 2


def test_votes_of_another_trace_are_left_out(make_trace: Make, make_vote: Make) -> None:
    trace, other = make_trace(LS), make_trace(LS, name="other")
    assert build_pairs(trace, [make_vote(other, 0, name, READ) for name in "ab"])[1] == {"not_asked": 1}
    assert build_pairs(make_trace(), []) == ([], {})


def test_long_prompts_can_be_left_out(judge: Make) -> None:
    assert judge(LS, READ, READ, policy=Policy(max_prompt_chars=3))[1] == {"prompt_too_long": 1}


@pytest.mark.parametrize(
    "fields",
    [{"min_agree": 1}, {"agree_level": "L9"}, {"veto_level": "none"}, {"agree_level": "L3", "veto_level": "L2"}],
)
def test_a_policy_that_contradicts_itself_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(PolicyError):
        Policy(**fields)


def test_a_repository_lies_on_one_side_of_the_split(make_trace: Make) -> None:
    traces = [make_trace(LS, name=f"r{number}") for number in range(400)]
    sides = [split_of(trace, test_share=0.2) for trace in traces]
    assert 0.1 < sides.count("test") / len(sides) < 0.3
    subagent = dataclasses.replace(traces[0], trace_id="sub", repository="", parent_trace_id="p")
    parent = dataclasses.replace(traces[0], trace_id="p", repository="")
    assert split_of(subagent, test_share=0.5) == split_of(parent, test_share=0.5)
    assert {split_of(trace, test_share=0.0) for trace in traces} == {"train"}


CALLS = [
    LS,
    ("Bash", {"command": "ls ./"}),
    READ,
    READ_TOO,
    ("Read", {"file_path": "a.py", "limit": 5}),
    GREP,
    RM,
    ("Bash", {"command": "rm -r f/build"}),
    ("Bash", {"command": "cat a.py"}),
    None,
]


@cases(100)
@given(st.lists(st.lists(st.sampled_from(CALLS), min_size=1, max_size=4), min_size=1, max_size=5))
def test_no_pair_prefers_the_action_it_rejects_and_every_step_is_counted(
    make_trace: Make, make_vote: Make, steps: list[list[Any]]
) -> None:
    trace: Trace = make_trace(*(step[0] or "Done." for step in steps))
    votes: list[Vote] = [
        make_vote(trace, at, "abc"[number] + "-x", *([answer] if answer else []))
        for at, step in enumerate(steps)
        for number, answer in enumerate(step[1:])
    ]
    pairs, drops = build_pairs(trace, votes)
    assert len(pairs) + sum(drops.values()) == len(steps)
    by_step = {ballot.step.step_id: ballot for ballot in ballots(trace, votes)}
    for pair in pairs:
        ballot = by_step[pair.step_id]
        agreeing = [cast for cast in ballot.casts if cast.vote.teacher in pair.teachers]
        assert Policy().groups([cast.form for cast in agreeing]) == [list(range(len(agreeing)))]
        assert not any(same(cast.form, ballot.form, "L3") for cast in agreeing)
        assert pair.num_agree * 2 > pair.num_votes
        assert isinstance(pair.chosen[0], Message)
