"""What is claimed of a script is what Node sees when it runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from composer_hub.actions.scripts import script_of
from tests.actions.script_maker import script
from tests.quick import quick

RUNNER = Path(__file__).with_name("script_runner.js")
NUM_SCRIPTS = 2_500


def runs_of(scripts: list[str]) -> list[list[dict[str, Any]]]:
    """Return the calls and the error of each script under each of a few results of its calls."""
    node = shutil.which("node") or pytest.skip("no node here")
    lines = "\n".join(map(json.dumps, scripts))
    run = subprocess.run([node, RUNNER], input=lines, capture_output=True, text=True, timeout=300, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def plain(value: Any) -> Any:
    """Return a value without what is undefined or null: in a claim both are None."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items() if one is not None}
    return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("start", quick(1, range(0, 10 * NUM_SCRIPTS, NUM_SCRIPTS)))
def test_a_script_makes_the_calls_that_are_claimed(start: int) -> None:
    read = [(text, script_of(text)) for text in map(script, range(start, start + NUM_SCRIPTS))]
    claims = [(text, plain(one.calls)) for text, one in read if one and one.calls]
    assert len(claims) > NUM_SCRIPTS / 50
    wrong = [
        (text, calls, run["calls"])
        for (text, calls), runs in zip(claims, runs_of([text for text, _ in claims]), strict=True)
        for run in runs
        if not run["error"] and plain(run["calls"]) != calls
    ]
    assert not wrong, min(wrong, key=lambda one: len(one[0]))
