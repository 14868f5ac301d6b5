"""Traces, teachers and comparisons for replay's tests: small, invented, and with a known right answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from composer_hub.pairs.policy import Policy
from composer_hub.records import ErrorSite, Message, Step, ToolCall, Trace, action_text
from composer_hub.replay.cascade import Comparison
from composer_hub.replay.teachers import Teacher, fetch_models, resolve

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}


def trace_of(
    num_steps: int, *, name: str = "t", system: str = "You are a coding agent.", growth: int = 200, **fields: Any
) -> Trace:
    """Return a trace with growing prompts; every third step has an error that the next step fixes."""
    messages = [Message("system", system), Message("user", f"Fix the bug in {name}.")]
    steps = []
    for number in range(num_steps):
        action = len(messages)
        call = ToolCall("bash", {"command": f"run {name} {number}"}, f"c{number}")
        messages.append(Message("assistant", "", (call,), reasoning_content="secret thoughts"))
        messages.append(Message("tool", f"output {number} " + "x" * growth, tool_call_id=f"c{number}"))
        failed = number % 3 == 1
        site = ErrorSite("command_failed", "model", "exit", 1.0, "exit_code", "bash", f"c{number}", "exit 1")
        steps.append(Step(
            step_id=f"{name}-{number}", index=number, action=action, prompt=((0, action),), results=(action + 1,),
            family="student", error_sites=(site,) if failed else (),
        ))  # fmt: skip
    defaults = {"redaction": "rules", "tools": (TOOL,), "family": "student"}
    return Trace(name, "test", name, tuple(messages), tuple(steps), **{**defaults, **fields})


def compare(trace: Trace, policy: Policy | None = None) -> Comparison:
    """Compare actions by their text, because the teachers of these tests do not paraphrase."""

    def equal(step: Step, one: Message, other: Message) -> bool:
        return action_text(one) == action_text(other)

    def form(step: Step, action: Message) -> str:
        return action_text(action)

    return Comparison(agree=equal, repeats=equal, normal_form=form, did_later=lambda step, action: False)


def teachers_at(
    url: str,
    names: Sequence[str] = ("small", "medium", "large"),
    *,
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> list[Teacher]:
    """Return the teachers of a server, with a session per lane."""
    specs = [{"at": f"{url}#{name}", "cache_key": "session_id", "max_tokens": 200, **options} for name in names]
    return resolve(specs, list_models=fetch_models, environ=environ or {})
