"""The third set of planted values: written by a hand that had not seen the rules or the other two sets.

In: kinds and a seed. Out: `Plant`s. Each value and each text around it is drawn anew for each seed. The name of a kind
decides by chance, before anything ran, whether it is in the half that rules may be mended on or in the half that nobody
looks into.

A template holds `«hole argument»`s, filled by `draw`; a context holds the value at `§`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

from benchmarks.planted import Plant
from benchmarks.planted_kinds import Kind
from benchmarks.planted_third_draw import draw
from benchmarks.planted_third_keep import KEEP
from benchmarks.planted_third_personal import PII
from benchmarks.planted_third_shown import SHOWN
from benchmarks.planted_third_tokens import TOKENS
from benchmarks.planted_third_written import WRITTEN

Carrier = Callable[[str, random.Random], str]


def _numbered(text: str, rng: random.Random) -> str:
    start = rng.randint(1, 900)
    return "\n".join(f"{start + i:6}\t{line}" for i, line in enumerate(text.split("\n")))


def _diff(text: str, rng: random.Random) -> str:
    sign, start = rng.choice("+-"), rng.randint(1, 300)
    body = "\n".join(sign + line for line in text.split("\n"))
    return f"@@ -{start},6 +{start},7 @@ {draw('«word»', rng)}:\n{body}\n "


def _coloured(text: str, rng: random.Random) -> str:
    colour = rng.choice(("32", "1;31", "36", "38;5;208"))
    return "\n".join(f"\x1b[{colour}m{line}\x1b[0m" for line in text.split("\n"))


def _grepped(text: str, rng: random.Random) -> str:
    place, start = draw("src/«word»/«word».«ext»", rng), rng.randint(1, 800)
    return "\n".join(f"{place}:{start + i}:{line}" for i, line in enumerate(text.split("\n")))


def _json_in_json(text: str, rng: random.Random) -> str:
    inner = json.dumps({"output": text, "exit_code": 0})
    return json.dumps({"event": draw("«word»", rng), "body": inner})


def _logged(text: str, rng: random.Random) -> str:
    stamp = draw("2026-0«num 1 1-9»-1«num 1»T0«num 1»:2«num 1»:4«num 1».«num 7»Z ", rng)
    return "\n".join(stamp + line for line in text.split("\n"))


def _fenced(text: str, rng: random.Random) -> str:
    return f"Here is what I found in the {draw('«word»', rng)} step:\n\n```\n{text}\n```\n"


def _quoted(text: str, rng: random.Random) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _plain(text: str, rng: random.Random) -> str:
    return text


CARRIERS: tuple[Carrier, ...] = (
    *((_plain,) * 6),
    _numbered,
    _diff,
    _coloured,
    _grepped,
    _json_in_json,
    _logged,
    _fenced,
    _quoted,
)


def for_tuning(kind: Kind) -> bool:
    """Return whether rules may be mended on this kind; the name alone decides, so that a new kind moves no other."""
    return random.Random(f"third set {kind.name}").random() < 0.5


THIRD = (*TOKENS, *SHOWN, *WRITTEN, *PII, *KEEP)
THIRD_TUNE = tuple(kind for kind in THIRD if for_tuning(kind))
THIRD_UNSEEN = tuple(kind for kind in THIRD if not for_tuning(kind))


def third_plants(kinds: Sequence[Kind], seed: int, num_each: int = 2) -> list[Plant]:
    """Draw values of every kind, each in one of its contexts, carried as a tool shows text."""
    rng = random.Random(f"third {seed}")
    return [_plant(kind, rng) for kind in kinds for _ in range(num_each)]


def _plant(kind: Kind, rng: random.Random) -> Plant:
    value = draw(kind.value, rng)
    around = draw(rng.choice(kind.contexts), rng)
    if "\f" in around:  # The terminal broke the line inside the value.
        return Plant(kind.name, kind.klass, value, _wrapped(around.replace("\f", ""), value))
    return Plant(kind.name, kind.klass, value, rng.choice(CARRIERS)(around.replace("§", value), rng))


def _wrapped(around: str, value: str, width: int = 80) -> str:
    text = around.replace("§", value)
    return "\n".join(text[i : i + width] for i in range(0, len(text), width))
