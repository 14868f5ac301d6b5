"""Scripted teachers answer whole messages: every call of the student, with the failed ones as they later worked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from composer_hub.pairs.prompts import paired
from composer_hub.replay.fake.scripts import SCRIPTED, act, digest_of, oracle_of
from composer_hub.replay.prompts import Prompts

READ = ("Read", {"file_path": "a.py"})
WRONG = ("Edit", {"file_path": "a.py", "old_string": "y", "new_string": "z"})
RIGHT = ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "z"})


def test_the_right_action_has_all_parallel_calls_and_mends_only_the_failed_one(make_trace: Callable[..., Any]) -> None:
    trace = make_trace((WRONG, READ), (RIGHT, READ), errors=[0])
    oracle = oracle_of([trace])
    chat = paired(Prompts(trace).of(trace.steps[0]).chat)
    assert [(call["name"], call["arguments"]) for call in oracle[digest_of(chat)]] == [RIGHT, READ]
    always, never = (dataclasses.replace(SCRIPTED[0], accuracy=accuracy) for accuracy in (1.0, 0.0))
    assert act(always, chat, [], oracle) == oracle[digest_of(chat)]
    wrong = act(never, chat, [], oracle)
    assert [call["name"] for call in wrong] == ["Edit", "Read"]
    assert wrong != oracle[digest_of(chat)]
