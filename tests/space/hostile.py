"""Datasets whose every field is hostile: what a trace can hold if anyone wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from composer_hub.records import (
    ErrorSite,
    Hint,
    Message,
    Pair,
    SourceEdit,
    Step,
    Task,
    ToolCall,
    Trace,
    Vote,
    stable_id,
)
from tests.hidden import FEW

PAYLOADS = (
    "<img src=x onerror=window.pwned=1>",
    "<script>window.pwned=1</script>",
    "\"><svg onload=window.pwned=1>",
    "' onmouseover='window.pwned=1' autofocus onfocus='window.pwned=1",
    "${window.pwned=1}",
    "`${(window.pwned=1)}`",
    "{{constructor.constructor('window.pwned=1')()}}",
    "<a href=\"javascript:window.pwned=1\">x</a>",
    "</pre></div></article></main></body><iframe srcdoc='<script>parent.pwned=1</script>'>",
    "<style>*{display:none}</style><meta http-equiv=refresh content='0;url=//evil.example'>",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07",
    FEW,
    "__proto__",
    "hf_" + "Ab1" * 11,
    "' or 1=1; drop table pairs; --",
    "%_LIKE_%",
)  # fmt: skip
LONG = "A" * 10_000_000
_state = 0


def any_payload() -> str:
    """Return the next payload, each with a number that makes it unique."""
    global _state
    _state += 1
    return f"{PAYLOADS[_state % len(PAYLOADS)]} {_state}"


def call(tool: str | None = None, **arguments: Any) -> ToolCall:
    given = arguments or {
        any_payload(): any_payload(),
        "__proto__": {"constructor": any_payload()},
        "list": [any_payload()],
    }
    return ToolCall(tool or any_payload(), given, any_payload())


def acting(*calls: ToolCall, content: str = "") -> Message:
    return Message("assistant", content, calls)


def trace(number: int) -> Trace:
    """Return a trace of two steps: the first goes wrong and has a hint."""
    trace_id = stable_id("hostile", number)
    messages = (
        Message("system", any_payload()),
        *(Message("user", any_payload()) for _ in range(4)),
        Message("user", any_payload() + (LONG if number == 0 else "")),
        acting(call(), content=any_payload()),
        Message("tool", any_payload(), name=any_payload()),
        acting(call(), content=any_payload()),
    )
    site = ErrorSite(any_payload(), "model", "flag", 0.9, any_payload(), any_payload(), "c", any_payload())
    hint = Hint(any_payload(), any_payload(), any_payload(), 1, site.kind, "c")
    first = Step(
        stable_id(trace_id, 0), 0, 6, ((0, 6),), (7,), any_payload(), "qwen", error_sites=(site,), hints=(hint,)
    )
    second = Step(stable_id(trace_id, 1), 1, 8, ((0, 8),), (), any_payload(), "qwen")
    return Trace(
        trace_id, any_payload(), any_payload(), messages, (first, second), repository=any_payload(), model=any_payload()
    )


def rollout(number: int) -> Trace:
    """Return a rollout with an episode."""
    one = trace(1000 + number)
    return replace(
        one,
        provenance={
            "run_id": any_payload(),
            "policy": any_payload(),
            "policy_step": number // 2,  # the first two are of one prompt
            "prompt_ids": [1, 2],
            "environment": any_payload(),
            "episode": {
                "task_id": stable_id("task", number),
                "reward": 0.5,
                "visible_reward": 1.0,
                "hack": [{"rule": any_payload(), "evidence": any_payload()}, any_payload()],
            },
            "rewards": {any_payload(): 1.0},
            "advantage": 0.5,
            "completion_ids": [1, 2, 3],
            "tool_mask": [1, 0, 1],
            "logps": [-0.5, -0.1, -2.0],
            "turns": [[0, 2], [2, 3]],
        },
    )


def pairs_of(one: Trace, number: int) -> tuple[Pair, list[Vote]]:
    """Return a pair of the first step of a trace, and the votes on it."""
    step = one.steps[0]
    teachers = (any_payload(), any_payload())
    shared = {"command": "pytest -q tests/test_a.py", any_payload(): any_payload()}
    chosen = acting(call("Bash", **shared, changed=any_payload()))
    rejected = acting(call("Bash" if number % 2 else None, **shared, changed=any_payload()))
    pair = Pair(
        pair_id=any_payload() if number == 1 else stable_id("pair", number),
        trace_id=one.trace_id,
        step_id=step.step_id,
        index=0,
        num_steps=2,
        prompt=one.messages[:6],
        chosen=(chosen,),
        rejected=(rejected,),
        tools=({"type": "function", "function": {"name": any_payload()}},),
        level=any_payload(),
        num_agree=2,
        num_votes=2 + number % 2,
        teachers=teachers,
        excluded_teachers=(),
        families=(any_payload(), "scripted-a"),
        chosen_teacher=teachers[0],
        source_model=any_payload(),
        source_family="qwen",
        error_kind=step.error_sites[0].kind if number % 3 else "",
        after_error=number % 4 == 0,
        chosen_text=any_payload(),
        rejected_text=any_payload(),
        cost_usd=number / 1000,
        repository=any_payload() if number % 5 else "org/plain",
    )
    answers = [
        Vote(
            vote_id=stable_id("vote", number, teacher),
            trace_id=one.trace_id,
            step_id=step.step_id,
            index=0,
            teacher=teacher,
            family="qwen",
            status=status,
            answer=answer,
            normal_form=any_payload(),
            cost_usd=0.001,
            latency_s=1.5,
            excluded=excluded,
        )
        for teacher, status, answer, excluded in (
            (teachers[0], "voted", chosen.to_chat(), ""),
            (teachers[1], "voted", {"role": any_payload(), "content": any_payload(), "tool_calls": any_payload()}, ""),
            (any_payload(), any_payload(), {"tool_calls": [1, None, {"function": any_payload()}]}, ""),
            (any_payload(), "voted", rejected.to_chat(), any_payload()),
        )
    ]
    return pair, answers


def tasks() -> Iterator[Task]:
    """Yield tasks with every field that the view shows."""
    for number in range(3):
        path = any_payload()
        yield Task(
            task_id=stable_id("task", number),
            kind=any_payload(),
            package=any_payload(),
            version=any_payload(),
            bundle_digest=any_payload(),
            license=any_payload(),
            copyleft=False,
            statement=any_payload(),
            statements=(any_payload(),),
            help_level=1,
            edits=(SourceEdit(path, f"a\n{any_payload()}\nb\n"),),
            solution=(SourceEdit(path, f"a\n{any_payload()}\nb\n"),),
            editable=(any_payload(),),
            tests=(any_payload(),),
            fail_to_pass=(any_payload(), any_payload()),
            pass_to_pass=(any_payload(),),
            symbols=(any_payload(),),
            difficulty=0.25,
            validation={"share_failing": 0.25},
            has_oracle=number == 0,
        )
