"""Small records for tests, made on demand."""

from __future__ import annotations

import dataclasses
from typing import Any

from composer_hub.records import Message, Pair, Step, ToolCall, Trace, ranges, stable_id


def call(name: str = "Bash", call_id: str = "c1", **arguments: Any) -> Message:
    """Return an assistant message with one tool call."""
    return Message("assistant", tool_calls=(ToolCall(name, arguments, call_id),))


def result(content: str = "ok", call_id: str = "c1", name: str = "Bash") -> Message:
    """Return the tool message that answers a call."""
    return Message("tool", content, tool_call_id=call_id, name=name)


def make_trace(number: int = 0, *, num_steps: int = 2, **changes: Any) -> Trace:
    """Return a linear trace: a task, then calls and their results."""
    messages = [Message("system", "You are a coding agent."), Message("user", f"Fix bug {number}.")]
    steps = []
    for index in range(num_steps):
        action = len(messages)
        call_id = f"c{index}"
        messages += [call(call_id=call_id, command=f"cat file{index}.py"), result(f"content {index}", call_id)]
        steps.append(Step(
            step_id=stable_id("step", number, index), index=index, action=action, prompt=ranges(range(action)),
            results=(action + 1,), model="claude-opus-4-7", family="anthropic",
        ))  # fmt: skip
    trace = Trace(
        trace_id=stable_id("trace", number), source="claude_code", session_id=f"session-{number}",
        messages=tuple(messages), steps=tuple(steps), cwd="/repo", redaction="rules-1",
    )  # fmt: skip
    return dataclasses.replace(trace, **changes)


def make_pair(number: int = 0, **changes: Any) -> Pair:
    """Return a preference pair with tool calls of mixed argument types."""
    pair = Pair(
        pair_id=stable_id("pair", number), trace_id=stable_id("trace", number // 2), step_id=stable_id("step", number),
        index=number, num_steps=2, prompt=(Message("user", f"Fix bug {number}."),),
        chosen=(call("Read", path=f"a{number}.py", limit=10),),
        rejected=(call("Bash", command="cat a.py", timeout=1.5, background=False, env=None),),
        tools=({"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}},), level="L2",
        num_agree=2, num_votes=3, teachers=("a", "b"), excluded_teachers=(), families=("openai", "deepseek"),
        chosen_teacher="a", source_model="claude-opus-4-7", source_family="anthropic",
    )  # fmt: skip
    return dataclasses.replace(pair, **changes)
