"""Show a secret over several messages, as sessions do: named in one and bare in the next, cut in two, spelled again.

In: a plant. Out: messages, and the text in which the value must be gone. The carriers' author knows the rules, so the
figures are no blind estimate; the values are those of the sets.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote

from benchmarks.redaction.plants import Plant
from composer_hub.records import Message, ToolCall, Trace

Messages = tuple[Message, ...]
MIN_CHARS = 10
"""Shorter values are not looked for away from their names."""


def _ran(arguments: dict[str, object], output: str, call: str = "c1") -> Messages:
    return (
        Message("assistant", "", (ToolCall("Bash", arguments, call),)),
        Message("tool", output, tool_call_id=call, name="Bash"),
    )


def _again(spell: Callable[[str], str]) -> Callable[[Plant], Messages]:
    def carry(plant: Plant) -> Messages:
        return (
            Message("user", plant.text),
            Message("assistant", "Done."),
            *_ran({"command": "x"}, f"got {spell(plant.value)} here"),
        )

    return carry


CARRIERS: dict[str, Callable[[Plant], Messages]] = {
    "a variable, then its value": lambda plant: _ran({"command": 'echo "$DEPLOY_TOKEN"'}, plant.value + "\n"),
    "a file of secrets": lambda plant: _ran({"command": "cat /run/secrets/service_password"}, plant.value),
    "a question, then the answer": lambda plant: (
        Message("assistant", "I need the password for staging. What is it?"),
        Message("user", plant.value),
    ),
    "a form": lambda plant: _ran({"element": "Password field", "text": plant.value}, "typed"),
    "two outputs": lambda plant: (
        *_ran({"id": 1}, plant.text[: plant.text.find(plant.value) + len(plant.value) // 2]),
        *_ran({"id": 1}, plant.text[plant.text.find(plant.value) + len(plant.value) // 2 :], "c2"),
    ),
    "in base64 only": lambda plant: _ran({"command": "x"}, base64.b64encode(f"# a\n{plant.text}\n".encode()).decode()),
    "again in base64": _again(lambda value: base64.b64encode(f"u:{value}:x".encode()).decode()),
    "again in hexadecimal": _again(lambda value: value.encode().hex()),
    "again in a URL": _again(lambda value: quote(value, safe="")),
    "again in HTML": _again(html.escape),
    "again in JSON": _again(lambda value: json.dumps(json.dumps(value))),
    "again in groups": _again(lambda value: "-".join(value[i : i + 4] for i in range(0, len(value), 4))),
    "again over lines": _again(lambda value: f"{value[: len(value) // 2]}\n    {value[len(value) // 2 :]}"),
    "again as literals": _again(lambda value: f'"{value[: len(value) // 2]}" + "{value[len(value) // 2 :]}"'),
}  # fmt: skip


def carried(plant: Plant, carrier: str) -> Trace | None:
    """Return a trace that shows the plant in this way, or None if it cannot."""
    if len(plant.value) < MIN_CHARS or "\n" in plant.value or plant.value not in plant.text:
        return None
    return Trace("t", "claude_code", "s", CARRIERS[carrier](plant), ())


def is_gone(plant: Plant, carrier: str, before: Trace, after: Trace) -> bool:
    """Tell whether neither the value nor the way it is shown is left."""
    shown = [message.content for message in after.messages if message.role != "assistant"]
    text = "\n".join([*shown, *(str(call.arguments) for message in after.messages for call in message.tool_calls)])
    value = plant.value.rpartition("/")[2] if plant.value.startswith("https://") else plant.value
    windows = [value[i : i + 12] for i in range(0, max(1, len(value) - 11), 6)]
    spelled = before.messages[-1].content if carrier.startswith(("again", "in")) else value
    return not any(window in text for window in windows) and spelled not in shown
