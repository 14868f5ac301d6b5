"""Pairs of actions in the style of real agents, equal and unequal by hand, get equal and unequal forms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from composer_hub.actions.forms import ActionContext, NormalForm, normalize, same
from composer_hub.records import Message, ToolCall

CASES = [json.loads(line) for line in Path(__file__).with_name("agent_actions.jsonl").read_text("utf-8").splitlines()]


def form(calls: list[list[Any]], cwd: str) -> NormalForm:
    action = Message("assistant", "", tuple(ToolCall(name, arguments) for name, arguments in calls))
    return normalize(action, ActionContext(cwd=cwd, shell_cwd=cwd))


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_equal_actions_share_a_form_and_unequal_ones_do_not(case: dict[str, Any]) -> None:
    one, other = form(case["one"], case["cwd"]), form(case["other"], case["cwd"])
    # `rm -rf build/` spares a link, and a path without its directory may be another file: equal for the veto alone.
    assert same(one, other, case.get("level", "L2")) is case["same"]


@pytest.mark.parametrize("case", [case for case in CASES if not case["cwd"]], ids=lambda case: case["case"])
def test_with_the_directory_known_absolute_and_relative_paths_agree(case: dict[str, Any]) -> None:
    assert same(form(case["one"], "/home/u/proj"), form(case["other"], "/home/u/proj")) is case["same"]
