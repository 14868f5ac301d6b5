"""Messages of verifiers in the words of TRL's tool loop, in which error turns are found.

In: the messages of a trace. Out: the same as plain chat, and its error turns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from composer_hub.train.turns import Rollout, TurnError, turn_errors


def chat_of(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Return messages of verifiers as TRL's tool loop would have left them."""
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
            plain |= _in_trls_words(str(plain["content"]), names.get(plain["tool_call_id"], ""))
        chat.append(plain)
    return chat


def errors_of(chat: Sequence[dict[str, Any]]) -> list[TurnError]:
    """Return the error turns of a conversation without looking at tokens."""
    texts = [str(message.get("content") or "") for message in chat if message["role"] == "assistant"]
    # One stand-in token a turn, its number, and one between turns: spans are all that is asked of them.
    ids = [number for turn in range(len(texts)) for number in (turn, -1)]
    rollout = Rollout([], ids, [int(number >= 0) for number in ids], chat, rounds_used_up=True)
    return list(turn_errors(rollout, lambda span: "".join(texts[number] for number in span)))


def _in_trls_words(content: str, name: str) -> dict[str, str]:
    """Return a tool's answer: verifiers and MCP have words of their own for calls that never reached the tool."""
    raised = f"Error executing tool {name}: "
    if content == f"error: unknown tool {name!r}":
        content = str({"error": f"Tool {name} not found."})
    elif content.startswith(raised):
        content = str({"error": content.removeprefix(raised)})
    return {"name": name, "content": content}


def _parsed(call: Mapping[str, Any]) -> Any:
    try:
        return json.loads(call["arguments"])
    except ValueError:
        return call["arguments"]
