"""Sets of actions judged by hand: how often equal ones are kept apart or made a pair, and unequal ones are lost.

All were written by authors who had not read the rules. The rules were mended on all but set seven since, so the
figures of the others are tuned. docs/results/actions.md has the first looks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from composer_hub.actions.forms import ActionContext, normalize, same
from composer_hub.pairs.consensus import build_pairs
from composer_hub.records import Message, Step, ToolCall, Trace, Vote

CASES = [json.loads(line) for line in Path(__file__).with_name("judged_actions.jsonl").read_text("utf-8").splitlines()]
STEPS = [json.loads(line) for line in Path(__file__).with_name("judged_steps.jsonl").read_text("utf-8").splitlines()]
SETS = sorted({case["set"] for case in CASES})
FALSE_PAIRS = {"one": 1, "two": 1, "three": 5, "four": 10, "five": 10, "six": 45, "seven": 16}
FALSE_PAIRS_OF_STEPS = {"six": 3}


def action(calls: list[list[Any]], name: str = "c") -> Message:
    return Message("assistant", "", tuple(ToolCall(tool, own, f"{name}{at}") for at, (tool, own) in enumerate(calls)))


def of_set(name: str, *, same: bool) -> list[dict[str, Any]]:
    return [case for case in CASES if case["set"] == name and case["same"] is same]


def merged(case: dict[str, Any]) -> bool:
    context = ActionContext(cwd=case["cwd"] or "", shell_cwd=case["cwd"] or "")
    return same(normalize(action(case["one"]), context), normalize(action(case["other"]), context))


def gives_a_pair(case: dict[str, Any], *, records_cwd: bool) -> bool:
    """Return whether two teachers who chose the other action make a pair in a session that works in one directory."""
    where = case["cwd"] or "/home/dev/proj"
    before = [
        ["Bash", {"command": f"cd {where} && ls"}, "ok"],
        ["Read", {"file_path": f"{where}/README.md"}, "ok"],
        ["Bash", {"command": "cat src/main.py"}, "ok"],
    ]
    step = {"cwd": case["cwd"], "before": before, "student": case["one"], "teachers": [case["other"]] * 2}
    return step_gives_a_pair(step, records_cwd=records_cwd)


def step_gives_a_pair(step: dict[str, Any], *, records_cwd: bool) -> bool:
    messages = [Message("user", "Fix the failing test.")]
    for number, (tool, own, result) in enumerate(step["before"]):
        messages += [action([[tool, own]], f"h{number}."), Message("tool", result or "ok", tool_call_id=f"h{number}.0")]
    steps = (Step("s", 0, len(messages), ((0, len(messages)),), (), family="student"),)
    messages.append(action(step["student"]))
    trace = Trace("t", "claude_code", "t", tuple(messages), steps, cwd=(step["cwd"] or "") if records_cwd else "")
    votes = [
        Vote(name, "t", "s", 0, name, name, "voted", action(answer).to_chat(), "")
        for name, answer in zip("abc", step["teachers"], strict=False)
    ]
    pairs, _ = build_pairs(trace, votes)
    return bool(pairs)


@pytest.mark.parametrize("name", SETS)
def test_unequal_actions_are_never_merged(name: str) -> None:
    assert not [case for case in of_set(name, same=False) if merged(case)]


@pytest.mark.parametrize("records_cwd", [True, False], ids=["cwd", "no cwd"])
@pytest.mark.parametrize("name", SETS)
def test_few_equal_actions_make_a_pair_without_a_judge_and_most_unequal_ones_do(name: str, records_cwd: bool) -> None:
    equal = of_set(name, same=True)
    assert sum(gives_a_pair(case, records_cwd=records_cwd) for case in equal) <= FALSE_PAIRS.get(name, 0)
    unequal = of_set(name, same=False)
    assert sum(gives_a_pair(case, records_cwd=records_cwd) for case in unequal) >= 0.85 * len(unequal)


@pytest.mark.parametrize("name", sorted({step["set"] for step in STEPS}))
def test_steps_at_which_teachers_spell_one_action_differently_give_the_pairs_that_are_due(name: str) -> None:
    steps = [step for step in STEPS if step["set"] == name]
    made = {is_same: [step_gives_a_pair(step, records_cwd=True) for step in steps if step["same"] is is_same]
            for is_same in (True, False)}  # fmt: skip
    assert sum(made[True]) <= FALSE_PAIRS_OF_STEPS.get(name, 0)
    assert sum(made[False]) >= 0.75 * len(made[False])
