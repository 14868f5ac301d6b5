"""The fourth set of planted values: kinds and surroundings that no rule had been tuned on when it was first measured.

In: kinds and a seed. Out: `Plant`s. Each value and each text around it is drawn anew for each seed, and carried as
session files carry text. A template holds `«hole argument»`s, filled by `draw`; a context holds the value at `§`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from benchmarks.planted import Plant
from benchmarks.planted_fourth_draw import draw
from benchmarks.planted_fourth_rest import KEEP, PII
from benchmarks.planted_fourth_shown import SHOWN
from benchmarks.planted_fourth_tokens import TOKENS
from benchmarks.planted_fourth_written import WRITTEN
from benchmarks.planted_kinds import Kind
from benchmarks.planted_third import CARRIERS, Carrier

FOURTH = (*TOKENS, *WRITTEN, *SHOWN, *PII, *KEEP)


def _claude_line(text: str, rng: random.Random) -> str:
    block = {"tool_use_id": draw("toolu_01«an 22»", rng), "type": "tool_result", "content": text, "is_error": False}
    return json.dumps({"type": "user", "message": {"role": "user", "content": [block]}}, separators=(",", ":"))


def _codex_line(text: str, rng: random.Random) -> str:
    output = json.dumps({"output": text, "metadata": {"exit_code": 0, "duration_seconds": 0.2}})
    payload = {"type": "function_call_output", "call_id": draw("call_«an 24»", rng), "output": output}
    return json.dumps({"type": "response_item", "payload": payload})


def _openhands_event(text: str, rng: random.Random) -> str:
    event = {
        "id": rng.randint(1, 99),
        "observation": "run",
        "content": text,
        "extras": {"command": "cat", "exit_code": 0},
    }
    return json.dumps(event, indent=2)


def _observation(text: str, rng: random.Random) -> str:
    return (
        f"OBSERVATION:\n{text}\n(Open file: /testbed/{draw('«word»', rng)}.cfg)\n(Current directory: /testbed)\nbash-$ "
    )


def _containered(text: str, rng: random.Random) -> str:
    name = draw("«word»-«in 1-4»", rng)
    return "\n".join(f"{name}  | {line}" for line in text.split("\n"))


def _list_item(text: str, rng: random.Random) -> str:
    return f"{rng.randint(1, 9)}. {draw('«word»', rng)}:\n" + "\n".join(f"   {line}" for line in text.split("\n"))


ALL_CARRIERS: tuple[Carrier, ...] = (
    *CARRIERS,
    _claude_line,
    _codex_line,
    _openhands_event,
    _observation,
    _containered,
    _list_item,
)


def fourth_plants(kinds: Sequence[Kind], seed: int, num_each: int = 2) -> list[Plant]:
    """Draw values of every kind, each in one of its contexts, carried as a tool shows text."""
    rng = random.Random(f"fourth {seed}")
    return [_plant(kind, rng) for kind in kinds for _ in range(num_each)]


def _plant(kind: Kind, rng: random.Random) -> Plant:
    value = draw(kind.value, rng)
    around = draw(rng.choice(kind.contexts), rng).replace("§", value)
    return Plant(kind.name, kind.klass, value, rng.choice(ALL_CARRIERS)(around, rng))
