"""A small harness with one tool: it talks to an OpenAI-style server until the model calls no tool.

    scripted_harness.py URL KEY QUESTION [--compact]

With `--compact` it replaces two exchanges by a note, as harnesses do whose context is full.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ADD = {"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": SCHEMA}}


def asked(url: str, key: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": "student", "messages": messages, "tools": [ADD]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, headers)) as answer:
        return json.load(answer)["choices"][0]["message"]


def result_of(call: dict[str, Any]) -> str:
    if call["function"]["name"] != "add":
        return str({"error": f"Tool {call['function']['name']} not found."})
    given = json.loads(call["function"]["arguments"])
    return str(given["a"] + given["b"])


def main(url: str, key: str, question: str, *options: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    for _ in range(8):
        answer = asked(url, key, messages)
        messages.append({name: answer[name] for name in ("role", "content", "tool_calls") if answer.get(name)})
        if not answer.get("tool_calls"):
            return
        calls = answer["tool_calls"]
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": result_of(call)} for call in calls]
        if "--compact" in options and len(messages) == 5:
            messages[1:] = [{"role": "user", "content": "Your notes: the sum is already known."}]


if __name__ == "__main__":
    main(*sys.argv[1:])
