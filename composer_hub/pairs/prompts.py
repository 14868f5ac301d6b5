"""The prompt of a step as teachers and trainers read it: messages of a trace in, a chat without gaps out.

Both read the same: no thinking, an object as the arguments of every call, and one result right after each call.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from composer_hub.actions.arguments import parsed_arguments
from composer_hub.records import Message, Step, ToolCall, Trace, canonical_json

NO_RESULT = "(no result was recorded)"


def read_prompt(trace: Trace, step: Step) -> tuple[Message, ...]:
    """Return the messages that teachers were sent for a step, with arguments as objects and tools by name."""
    indices = (index for start, stop in step.prompt for index in range(start, stop))
    wired = (wire_message(message_at(trace, index), index) for index in indices)
    chat = [message for message in wired if message is not None]
    names: dict[str, str] = {}
    messages = []
    for message in paired(chat):
        calls = tuple(
            ToolCall(call["function"]["name"], json.loads(call["function"]["arguments"]), call["id"])
            for call in message.get("tool_calls", ())
        )
        names |= {call.call_id: call.name for call in calls}
        answered = message.get("tool_call_id", "")
        messages.append(Message(message["role"], message["content"], calls, answered, names.get(answered, "")))
    return tuple(messages)


def message_at(trace: Trace, index: int) -> Message:
    """Return a message of a trace; an unrecorded system prompt names the folder in which the session began.

    Every harness gives its model the folder, and names in calls depend on it.
    """
    message = trace.messages[index]
    if message.role != "system" or trace.system_prompt_source != "synthetic" or not trace.cwd:
        return message
    return replace(message, content=f"{message.content}\n\nWorking directory: {trace.cwd}")


def as_object(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call as an object, under `unparsed` if they are none."""
    parsed = parsed_arguments(call)
    return {"unparsed": call.arguments} if parsed is None else parsed


def wire_message(message: Message, index: int) -> dict[str, Any] | None:
    """Return a message as endpoints take it: no thinking, arguments as JSON text. None if nothing is left.

    Some harnesses log an empty user message with each result. It has no content, and endpoints refuse it.
    """
    chat: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        chat["tool_calls"] = [
            {
                "id": call.call_id or f"call_{index}_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": canonical_json(as_object(call))},
            }
            for number, call in enumerate(message.tool_calls)
        ]
    elif message.role != "tool" and not message.content.strip():
        return None
    if message.role == "tool":
        chat["tool_call_id"] = message.tool_call_id
    return chat


def paired(chat: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the chat with one result right after each call; endpoints reject anything else.

    A call without a recorded result gets a placeholder. A result whose call is not in the prompt becomes a user
    message. Neither depends on later messages except results, so prompts keep their common prefix.
    """
    out: list[dict[str, Any]] = []
    open_calls: list[str] = []

    def close() -> None:
        out.extend({"role": "tool", "tool_call_id": call_id, "content": NO_RESULT} for call_id in open_calls)
        open_calls.clear()

    for message in chat:
        if message["role"] == "tool":
            if not message["tool_call_id"] and len(open_calls) == 1:
                message = {**message, "tool_call_id": open_calls[0]}
            if message["tool_call_id"] in open_calls:
                open_calls.remove(message["tool_call_id"])
                out.append(message)
            else:
                close()
                out.append({"role": "user", "content": message["content"]})
            continue
        close()
        out.append(message)
        open_calls.extend(call["id"] for call in message.get("tool_calls", ()))
    close()
    return out
