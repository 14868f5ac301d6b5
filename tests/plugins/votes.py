"""Small traces and votes to judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from composer_hub.records import ErrorSite, Message, Step, ToolCall, Trace, Vote, stable_id

TOOL_NAMES = ("Bash", "Read", "Edit", "Write", "Grep")


def calls_of(*calls: tuple[str, dict[str, Any]]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(name, arguments, f"c{number}") for number, (name, arguments) in enumerate(calls))


@pytest.fixture(scope="session")
def make_trace() -> Callable[..., Trace]:
    """Return a function from the student's calls, one per step, to a trace whose prompts grow."""

    def make(*actions: Any, name: str = "t", results: Sequence[str] = (), errors: Sequence[int] = (), **fields: Any):
        messages = [Message("system", "You code in /repo."), Message("user", f"Fix {name} in a.py.")]
        steps = []
        for number, action in enumerate(actions):
            prompt = ((0, len(messages)),)
            text, calls = (action, ()) if isinstance(action, str) else ("On it.", action)
            if calls and isinstance(calls[0], str):
                calls = (calls,)
            asked = tuple(ToolCall(tool, arguments, f"s{number}.{at}") for at, (tool, arguments) in enumerate(calls))
            at = len(messages)
            messages.append(Message("assistant", text, asked, reasoning_content="Let me think."))
            for call in asked:
                result = results[number] if number < len(results) else "ok"
                messages.append(Message("tool", result, tool_call_id=call.call_id, name=call.name))
            sites = (ErrorSite("edit_no_match", "model", "flag", 1.0, "r", call_id=f"s{number}.0"),)
            step = Step(
                stable_id(name, number), number, at, prompt, tuple(range(at + 1, len(messages))), model="qwen3",
                family="qwen", error_sites=sites if number in errors else (),
            )  # fmt: skip
            steps.append(step)
        about = {"source": "claude_code", "cwd": "/repo", "repository": f"org/{name}", "license": "mit", **fields}
        about.setdefault("tools", tuple({"name": tool} for tool in TOOL_NAMES))
        return Trace(trace_id=name, session_id=name, messages=tuple(messages), steps=tuple(steps), **about)

    return make


@pytest.fixture(scope="session")
def make_vote() -> Callable[..., Vote]:
    """Return a function from a trace, a step's number, a teacher and its call to a vote."""

    def make(trace: Trace, index: int, teacher: str, *calls: Any, text: str = "", **fields: Any) -> Vote:
        step = trace.steps[index]
        answer: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            answer["tool_calls"] = [
                {
                    "id": f"call_{teacher}_{at}",
                    "type": "function",
                    "function": {
                        "name": tool,
                        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                    },
                }
                for at, (tool, arguments) in enumerate(calls)
            ]
        about = {
            "family": teacher.split("-")[0], "status": "voted",
            "cost_usd": {"a": 0.01, "b": 0.02, "c": 0.04}.get(teacher[0], 0.03),
            "usage": {"prompt_tokens": 1000, "completion_tokens": 50}, "cached_tokens": 800, "latency_s": 1.0 + index,
            "normal_form": "", **fields,
        }  # fmt: skip
        vote_id = stable_id(trace.trace_id, index, teacher, about.get("attempt", 0))
        return Vote(vote_id, trace.trace_id, step.step_id, index, teacher, answer=answer, **about)

    return make
