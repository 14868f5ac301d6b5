"""Messages of other frameworks in the form of TRL's tool loop, which is where error turns are found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from composer_hub.records import Step
from composer_hub.train.rollouts import Rollout


def tool_message(content: str, name: str, *, unknown: str, raised: str) -> dict[str, str]:
    """Return a tool's answer as TRL writes it, from the framework's prefixes for unknown tools and for exceptions."""
    if content.startswith(unknown):
        content = str({"error": f"Tool {name} not found."})
    elif content.startswith(raised):
        content = str({"error": content.removeprefix(raised)})
    return {"name": name, "content": content}


def chat_of(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Return messages of verifiers as TRL's tool loop would have written them."""
    chat: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        plain = message.model_dump(exclude_none=True)
        if calls := plain.pop("tool_calls", None):
            names |= {call["id"]: call["name"] for call in calls}
            plain["tool_calls"] = [
                {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": _parsed(call)}}
                for call in calls
            ]
        if plain["role"] == "tool":
            name = names.get(plain["tool_call_id"], "")
            unknown, raised = f"error: unknown tool {name!r}", f"Error executing tool {name}: "
            plain |= tool_message(str(plain["content"]), name, unknown=unknown, raised=raised)
        chat.append(plain)
    return chat


def failed_turns(chat: Sequence[dict[str, Any]]) -> list[Step]:
    """Return the turns of a conversation that have error sites; their tokens are not needed."""
    return [step for step in Rollout((), (), (), chat, rounds_used_up=True).trace.steps if step.error_sites]


def _parsed(call: Mapping[str, Any]) -> Any:
    try:
        return json.loads(call["arguments"])
    except ValueError:
        return call["arguments"]
