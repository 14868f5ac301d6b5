"""Plant secrets, personal data and look-alikes in a trace, and count what a redactor made of them.

In: kinds and a seed. Out: `Plant`s (what was planted where), a `Trace` that holds them among ordinary text, and
`score`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.planted_kinds import Kind, fill, luhn_card
from composer_hub.records import Message, Step, ToolCall, Trace

FILLER = (
    "def parse_token(text):\n    token = text.split()[0]\n    return token if token else None\n",
    "PASS tests/test_auth.py::test_password_is_hashed\n12 passed in 0.41s\n",
    "diff --git a/app.py b/app.py\nindex 83db48f..bf2a2c1 100644\n--- a/app.py\n+++ b/app.py\n@@ -1,4 "
    "+1,4 @@\n-x = 1\n+x = 2\n",
    "drwxr-xr-x  3 root root  4096 Nov 21 05:18 node_modules\n-rw-r--r--  1 root root 12093 Nov 21 "
    "05:18 package.json\n",
    "The function reads the key from the configuration and returns the cached object if its version matches.\n",
    '  "dependencies": {\n    "react": "^19.1.0",\n    "typescript": "~5.9.2"\n  },\n',
)


@dataclass(frozen=True)
class Plant:
    """A value, what it is, and the text around it."""

    kind: str
    klass: str
    value: str
    text: str


def plants(kinds: Sequence[Kind], seed: int, num_each: int = 3) -> list[Plant]:
    """Draw values of every kind, each in one of the texts it occurs in."""
    rng = random.Random(f"planted {seed}")
    return [_plant(kind, rng) for kind in kinds for _ in range(num_each)]


def _plant(kind: Kind, rng: random.Random) -> Plant:
    value = luhn_card("4", 16, rng) if kind.value == "CARD" else fill(kind.value, rng)
    context = fill(rng.choice(kind.around()), rng)
    # A value with quotes or line ends inside a JSON text is written as JSON writes it.
    written = json.dumps(value)[1:-1] if context.startswith('{{"') else value
    text = context.replace("{}", "\0").replace("{{", "{").replace("}}", "}").replace("\0", written)
    return Plant(kind.name, kind.klass, value, text)


def planted_trace(planted: Iterable[Plant], seed: int) -> Trace:
    """Return a trace with a call and a result for each plant: in arguments, nested JSON, or output among other text."""
    rng = random.Random(f"trace {seed}")
    messages = [Message("user", "Please fix the login.")]
    steps = []
    for i, plant in enumerate(planted):
        filler = rng.choice(FILLER)
        arguments = (
            {"command": plant.text, "timeout": 5000, "description": "Run it"}
            if i % 3 == 0
            else {"file_path": "src/app.py", "limit": i}
        )
        output = filler + plant.text + "\n" + rng.choice(FILLER)
        if i % 3 == 1:
            output = json.dumps({"stdout": output, "code": 0, "id": f"toolu_{i:04d}"}, ensure_ascii=bool(i % 2))
        if i % 3 == 0:
            output = filler
        messages.append(Message("assistant", filler.splitlines()[0], (ToolCall("Bash", arguments, f"call_{i}"),)))
        messages.append(Message("tool", output, tool_call_id=f"call_{i}", name="Bash"))
        at = len(messages) - 2
        steps.append(Step(f"step_{i}", i, at, ((0, at),), (at + 1,), model="claude-opus-4-6", family="anthropic"))
    return Trace(
        f"trace_{seed}",
        "claude_code",
        f"session_{seed}",
        tuple(messages),
        tuple(steps),
        cwd="/srv/app",
        model="claude-opus-4-6",
    )


@dataclass
class Score:
    """How many of each class were planted, and came out right: look-alikes are still there, the rest is gone."""

    planted: Counter[str]
    right: Counter[str]
    wrong: list[Plant]

    def rate(self, klass: str) -> float:
        return self.right[klass] / max(1, self.planted[klass])

    def __add__(self, other: Score) -> Score:
        return Score(self.planted + other.planted, self.right + other.right, self.wrong + other.wrong)


def score(planted: Sequence[Plant], texts: Sequence[str]) -> Score:
    """Compare each plant with what was made of the text that held it."""
    result = Score(Counter(), Counter(), [])
    for plant, text in zip(planted, texts, strict=True):
        there = _found(plant, text)
        right = there if plant.klass == "keep" else not there
        result.planted[plant.klass] += 1
        result.right[plant.klass] += right
        if not right:
            result.wrong.append(plant)
    return result


def _found(plant: Plant, text: str) -> bool:
    """Look for the value, and for a leak of a good part of it."""
    value = plant.value.rpartition("/")[2] if plant.value.startswith("https://") else plant.value
    spellings = [value, json.dumps(value)[1:-1]]
    if plant.klass == "secret":
        spellings += [line for line in value.splitlines() if len(line) >= 40]
        spellings += (
            [value[i : i + 12] for i in range(0, len(value) - 11, 6)] if len(value) >= 24 and "\n" not in value else []
        )
        # What a shape shows of itself (`eyJhbGciOiJIUzI1Ni…`) is no leak on its own.
    return any(spelling in text for spelling in spellings)


def texts_of(trace: Trace) -> list[str]:
    """Return, for each plant in order, the call and the result that may hold it."""
    pairs = zip(trace.messages[1::2], trace.messages[2::2], strict=True)
    return [
        json.dumps(call.tool_calls[0].arguments, ensure_ascii=False) + "\n" + result.content for call, result in pairs
    ]
