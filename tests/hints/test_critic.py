"""The critic: a model's findings count only with words that are there."""

# ruff: noqa: E501  # a case is one line

from __future__ import annotations

import json
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.errors.find import find_errors
from composer_hub.hints import Critic, criticized
from composer_hub.hints.critic import RUBRIC
from composer_hub.hints.judge import UnredactedTrace
from composer_hub.records import Message, Step, ToolCall, Trace
from composer_hub.session import ResultFlag, Session


def trace_of(*made: tuple[str, object, str], redaction: str = "r1", failed: bool = False) -> Trace:
    """A linear trace: (tool, arguments, result), or ("say", text, "") and ("user", text, "")."""
    messages = [Message("user", "Fix the parser, and run nothing in production.")]
    steps: list[Step] = []
    flags: dict[int, ResultFlag] = {}
    for tool, arguments, result in made:
        action = len(messages)
        if tool == "user":
            messages.append(Message("user", str(arguments)))
            continue
        number = len(steps)
        if tool == "say":
            messages.append(Message("assistant", str(arguments)))
            steps.append(Step(f"s{number}", number, action, ((0, action),)))
            continue
        messages.append(Message("assistant", "", (ToolCall(tool, arguments, f"c{number}"),)))
        messages.append(Message("tool", result, tool_call_id=f"c{number}"))
        flags[action + 1] = (
            ResultFlag(exit_code=1 if result.startswith("FAIL") else 0)
            if tool == "Bash"
            else ResultFlag(is_error=False)
        )
        steps.append(Step(f"s{number}", number, action, ((0, action),), (action + 1,)))
    trace = Trace("t", "claude_code", "s", tuple(messages), tuple(steps), redaction=redaction)
    return find_errors(Session(trace, flags))


def kinds(trace: Trace) -> dict[int, list[str]]:
    return {
        step.index: [site.kind for site in step.error_sites if site.source == "critic"]
        for step in trace.steps
        if any(site.source == "critic" for site in step.error_sites)
    }


TALK = [
    ("Read", {"file_path": "/w/a.py"}, "x = 1"),
    ("say", "Everything works now and all tests pass.", ""),
    ("user", "Did you run them?", ""),
    ("say", "No, I did not run them.", ""),
]
CLAIM = {"step": 2, "kind": "style_unchecked_claim", "span": "all tests pass", "hint": "Run the tests before you say that they pass."}  # fmt: skip


def scripted(*answers: object) -> tuple[list[str], Critic]:
    prompts: list[str] = []

    def complete(prompt: str) -> str:
        prompts.append(prompt)
        answer = answers[min(len(prompts), len(answers)) - 1]
        return answer if isinstance(answer, str) else json.dumps(answer)

    return prompts, Critic("m", complete=complete)


def test_a_finding_with_words_of_its_step_becomes_a_site_and_a_hint() -> None:
    prompts, critic = scripted([CLAIM], [])
    trace = criticized(trace_of(*TALK), critic)
    (site,), (hint,) = trace.steps[1].error_sites, trace.steps[1].hints
    assert (site.kind, site.blame, site.source, site.message) == (
        "style_unchecked_claim",
        "model",
        "critic",
        "all tests pass",
    )
    assert hint.text == "Reminder: Run the tests before you say that they pass."
    assert len(prompts) == 2  # one per turn of the user
    assert all(kind in prompts[0] for kind in RUBRIC)


def test_a_finding_that_is_not_valid_unicode_is_repaired() -> None:
    _, critic = scripted([CLAIM | {"hint": "Run \ud800 first."}], [])
    (hint,) = criticized(trace_of(*TALK), critic).steps[1].hints
    assert hint.text == "Reminder: Run \ufffd first."


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        (CLAIM | {"span": "every test passes"}, "citation is not in the step"),
        (CLAIM | {"span": "all"}, "citation is not in the step"),
        (CLAIM | {"step": 1}, "citation is not in the step"),
        (CLAIM | {"step": 9}, "step is not in the turn"),
        (CLAIM | {"step": True}, "step is not in the turn"),
        (CLAIM | {"span": None}, "step is not in the turn"),
        (CLAIM | {"kind": "style_rude"}, "kind is not in the rubric"),
        (CLAIM | {"hint": " "}, "no hint"),
        (CLAIM | {"step": 1, "span": '"/w/a.py"', "hint": "Read /w/a.py first."}, "hint quotes the call"),
        ("words", "kind is not in the rubric"),
    ],
)
def test_a_finding_without_proof_is_dropped_and_counted(item: object, problem: str) -> None:
    _, critic = scripted([item], [])
    assert kinds(criticized(trace_of(*TALK), critic)) == {}
    assert critic.problems == {problem: 1}


@pytest.mark.parametrize("answer", ["I found nothing.", "[{]", "{}", ""])
def test_an_answer_without_a_list_finds_nothing(answer: str) -> None:
    _, critic = scripted(answer)
    assert kinds(criticized(trace_of(*TALK), critic)) == {}
    assert critic.problems


def test_a_turn_is_paid_for_once(tmp_path: Path) -> None:
    for asked in (2, 0):
        critic = Critic("m", complete=lambda prompt: "```json\n" + json.dumps([CLAIM]) + "\n```", cache_dir=tmp_path)
        assert kinds(criticized(trace_of(*TALK), critic)) == {1: ["style_unchecked_claim"]}
        assert critic.num_asked == asked


def test_a_trace_that_was_not_redacted_is_refused_and_a_full_budget_ends_the_questions() -> None:
    _, critic = scripted([CLAIM])
    with pytest.raises(UnredactedTrace):
        criticized(trace_of(*TALK, redaction=""), critic)

    def full(prompt: str, send: object) -> object:
        raise exits.Stopped("full")

    capped = Critic("m", complete=lambda prompt: "[]", budget=full)  # type: ignore[arg-type]
    assert kinds(criticized(trace_of(*TALK), capped)) == {}
    assert capped.problems == {"budget reached": 1}
