"""Plant secrets, personal data and look-alikes in traces, and count what a redactor did to them.

In: the name of a set and a seed. Out: `Plant`s, a `Trace` that holds them among ordinary text, and a `Score`.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from benchmarks.redaction.language import SETS, Kind, Language
from composer_hub.records import Message, Step, ToolCall, Trace

NAMES = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class Plant:
    """A value, what it is, and the text around it."""

    kind: Kind
    value: str
    text: str


@cache
def planted_set(name: str) -> tuple[tuple[Kind, ...], Language]:
    """Return the kinds of a set and the language of their templates."""
    language = Language()
    list(language.read(SETS / "common.txt"))
    return tuple(language.read(SETS / f"{name}.txt")), language


def plants(name: str, seed: int, num_each: int = 2, half: str = "") -> list[Plant]:
    """Draw values of every kind in a set or a half of it, each in one of its contexts, shown as tools show text."""
    kinds, language = planted_set(name)
    return [
        _plant(kind, i, language, random.Random(f"{name} {kind.name} {seed} {i}"))
        for kind in kinds
        if half in ("", kind.half)
        for i in range(num_each)
    ]


def _plant(kind: Kind, number: int, language: Language, rng: random.Random) -> Plant:
    value = language.draw(kind.value, rng)
    around = language.draw(rng.choice(kind.contexts), rng)
    in_json = around.startswith('{"') and ('"' in value or "\n" in value)
    text = around.replace("§", json.dumps(value)[1:-1] if in_json else value)
    if "\f" in text:  # A terminal broke the lines.
        text = text.replace("\f", "")
        return Plant(kind, value, "\n".join(text[i : i + 80] for i in range(0, len(text), 80)))
    return Plant(kind, value, _carried(text, language.draw(f"«carrier_{rng.choice(language.carriers)}»", rng), rng))


def _carried(text: str, carrier: str, rng: random.Random) -> str:
    """Show a text as a tool does: `§` is the text, `§1` and `§2` the text in JSON, `each` a template for each line."""
    start = rng.randint(1, 800)
    if carrier.startswith("each "):
        each = carrier.removeprefix("each ")
        lines = enumerate(text.split("\n"), start)
        return "\n".join(each.replace("#", str(number)).replace("§", line) for number, line in lines)
    once = json.dumps(text)[1:-1]
    return carrier.replace("§2", json.dumps(once)[1:-1]).replace("§1", once).replace("§", text)


def planted_trace(planted: Sequence[Plant], seed: int) -> Trace:
    """Return a trace with a call and a result per plant: in arguments, in JSON, or in output among other text."""
    rng, filler = random.Random(f"trace {seed}"), planted_set("first")[1].texts("filler")
    messages = [Message("user", "Please fix the login.")]
    steps = []
    for i, plant in enumerate(planted):
        arguments: dict[str, object] = {"file_path": "src/app.py", "limit": i}
        output = rng.choice(filler)
        if i % 3 == 0:
            arguments = {"command": plant.text, "timeout": 5000, "description": "Run it"}
        else:
            output += plant.text + "\n" + rng.choice(filler)
        if i % 3 == 1:
            output = json.dumps({"stdout": output, "code": 0, "id": f"toolu_{i:04d}"}, ensure_ascii=bool(i % 2))
        at = len(messages)
        messages.append(Message("assistant", "I look at it.", (ToolCall("Bash", arguments, f"call_{i}"),)))
        messages.append(Message("tool", output, tool_call_id=f"call_{i}", name="Bash"))
        steps.append(Step(f"step_{i}", i, at, ((0, at),), (at + 1,), model="claude-opus-4-6", family="anthropic"))
    return Trace(f"trace_{seed}", "claude_code", f"session_{seed}", tuple(messages), tuple(steps), cwd="/srv/app")


def texts_of(trace: Trace) -> list[str]:
    """Return the call and the result of each plant, in order."""
    pairs = zip(trace.messages[1::2], trace.messages[2::2], strict=True)
    return [json.dumps(call.tool_calls[0].arguments, ensure_ascii=False) + "\n" + got.content for call, got in pairs]


@dataclass
class Score:
    """How many of each class were planted and treated correctly: look-alikes are still there, the rest is gone."""

    planted: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    wrong: list[Plant] = field(default_factory=list)

    def rate(self, klass: str) -> float:
        return self.right[klass] / max(1, self.planted[klass])

    def __add__(self, other: Score) -> Score:
        return Score(self.planted + other.planted, self.right + other.right, self.wrong + other.wrong)


def score(planted: Sequence[Plant], texts: Sequence[str]) -> Score:
    """Compare each plant with the text that held it after redaction."""
    result = Score()
    for plant, text in zip(planted, texts, strict=True):
        klass = plant.kind.klass
        right = _is_there(plant, text) == (klass == "keep")
        result.planted[klass] += 1
        result.right[klass] += right
        if not right:
            result.wrong.append(plant)
    return result


def _is_there(plant: Plant, text: str) -> bool:
    """Tell whether the value, or a good part of a secret, is in the text."""
    value = plant.value.rpartition("/")[2] if plant.value.startswith("https://") else plant.value
    if plant.kind.klass == "keep":
        # Line by line, as a tool may have numbered the lines, and however often JSON has escaped the text.
        return all(_unescaped(line) in _unescaped(text) for line in value.splitlines())
    spellings = [value, json.dumps(value)[1:-1]]
    if plant.kind.klass == "secret":
        spellings += [line for line in value.splitlines() if len(line) >= 40]
        if len(value) >= 24 and "\n" not in value:
            spellings += [value[i : i + 12] for i in range(0, len(value) - 11, 6)]
    return any(spelling in text for spelling in spellings)


def _unescaped(text: str) -> str:
    return re.sub(r"\\+n", "\n", text).replace("\\", "")
