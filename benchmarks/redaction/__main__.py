"""Measure redaction: secrets and personal data that go, look-alikes that stay, structure, and speed.

In: seeds, and optionally a folder of session files. Out: a Markdown table on stdout.

    python -m benchmarks.redaction --seeds 9001 9002 9003 [--sessions DIR]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import orjson

from benchmarks.redaction.carriers import CARRIERS, carried, is_gone
from benchmarks.redaction.plants import NAMES, Score, planted_set, planted_trace, plants, score, texts_of
from composer_hub.records import Message, Trace
from composer_hub.redact import Redactor


def measure(name: str, half: str, seeds: list[int], num_each: int) -> tuple[Score, int]:
    """Return the score of a half of a set, and how many values changed their place, type or name."""
    total, broken = Score(), 0
    for seed in seeds:
        planted = plants(name, seed, num_each, half)
        trace = planted_trace(planted, seed)
        redacted = Redactor(b"benchmark").trace(trace)
        total += score(planted, texts_of(redacted))
        broken += sum(a != b for a, b in zip(_shapes(trace), _shapes(redacted), strict=True))
    return total, broken


def over_messages(name: str, seeds: list[int]) -> dict[str, tuple[int, int]]:
    """Return for each carrier how many secrets of a set are gone, and of how many."""
    gone: dict[str, tuple[int, int]] = {}
    for seed in seeds:
        for plant in plants(name, seed, 1):
            for carrier in CARRIERS if plant.kind.klass == "secret" else ():
                if (trace := carried(plant, carrier)) is not None:
                    right, total = gone.get(carrier, (0, 0))
                    redacted = Redactor(b"benchmark").trace(trace)
                    gone[carrier] = right + is_gone(plant, carrier, trace, redacted), total + 1
    return gone


def _shapes(trace: Trace) -> list[Any]:
    return [
        (
            *(message.role, message.name, message.tool_call_id),
            [(call.name, call.call_id, _shape(call.arguments)) for call in message.tool_calls],
            _shape(json.loads(message.content)) if message.content.startswith('{"') else "text",
        )
        for message in trace.messages
    ]


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    return [_shape(item) for item in value] if isinstance(value, list) else type(value).__name__


def speed(folder: Path) -> dict[str, float]:
    """Return MB/s of the bytes of session files: parsing alone, and redacting each string in them."""
    raw = b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*.jsonl")))
    start = time.process_time()
    parsed = [_loads(line) for line in raw.splitlines()]
    loaded = time.process_time()
    texts = [text for row in parsed for text in _strings(row) if len(text) > 40]
    trace = Trace("t", "x", "s", tuple(Message("user", text) for text in texts), ())
    ready = time.process_time()
    Redactor(b"benchmark").trace(trace)
    redacting = time.process_time() - ready
    return {
        "file MB": len(raw) / 1e6,
        "orjson MB/s": len(raw) / 1e6 / (loaded - start),
        "redaction, file MB/s": len(raw) / 1e6 / redacting,
        "redaction, text MB/s": sum(map(len, texts)) / 1e6 / redacting,
    }


def _loads(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:
        return None


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in _strings(item)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[9001, 9002, 9003])
    parser.add_argument("--num-each", type=int, default=4)
    parser.add_argument("--carriers", action="store_true", help="Only show secrets over several messages.")
    parser.add_argument("--sessions", type=Path)
    options = parser.parse_args()
    if options.carriers:
        print("| the fourth set's secrets, shown as | gone |\n|---|---|")
        for carrier, (right, total) in over_messages("fourth", options.seeds).items():
            print(f"| {carrier} | {right / total:.3f} ({total}) |")
        return
    print("| set | half | secrets gone | personal data gone | look-alikes kept | structure broken |")
    print("|---|---|---|---|---|---|")
    for name in NAMES:
        for half in dict.fromkeys(kind.half for kind in planted_set(name)[0]):
            result, broken = measure(name, half, options.seeds, options.num_each)
            rates = [f"{result.rate(klass):.3f} ({result.planted[klass]})" for klass in ("secret", "pii", "keep")]
            print(f"| {name} | {half} | {' | '.join(rates)} | {broken} |")
    if options.sessions:
        print("  ".join(f"{key} {value:.2f}" for key, value in speed(options.sessions).items()))


if __name__ == "__main__":
    main()
