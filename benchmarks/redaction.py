"""Measure redaction: recall, look-alikes kept, structure and speed, beside other tools on the same data in one run.

In: seeds that no rule was tuned on, and optionally session files. Out: a table on stdout.

    python -m benchmarks.redaction --seeds 9001 9002 9003 [--sessions DIR] [--others]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

from benchmarks.planted import Plant, Score, planted_trace, plants, score, texts_of
from benchmarks.planted_fourth import FOURTH, fourth_plants
from benchmarks.planted_heldout import HELD_OUT
from benchmarks.planted_kinds import KNOWN, Kind
from benchmarks.planted_second import TUNED, UNSEEN, second_plants
from benchmarks.planted_third import THIRD_TUNE, THIRD_UNSEEN, third_plants
from composer_hub.records import Message, Trace
from composer_hub.redact import Redactor

Rewrite = Callable[[list[str]], list[str]]


def ours(plants_of: Sequence[Plant], trace: Trace) -> tuple[list[str], int]:
    """Redact the trace; return its texts and how many values changed their place, type or name."""
    redacted = Redactor(b"benchmark").trace(trace)
    before, after = (_shapes(one) for one in (trace, redacted))
    return texts_of(redacted), sum(a != b for a, b in zip(before, after, strict=True))


def _shapes(trace: Trace) -> list[Any]:
    return [(m.role, m.name, m.tool_call_id, _calls(m), _json_shape(m.content)) for m in trace.messages]


def _calls(message: Message) -> Any:
    return [(call.name, call.call_id, _shape(call.arguments)) for call in message.tool_calls]


def _json_shape(text: str) -> Any:
    return _shape(json.loads(text)) if text.startswith('{"') else "text"


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(item) for key, item in value.items()}
    return [_shape(item) for item in value] if isinstance(value, list) else type(value).__name__


def others() -> dict[str, Rewrite]:
    """Return the other redactors that are installed, each as texts in, texts out."""
    found: dict[str, Rewrite] = {}
    if importlib.util.find_spec("teich"):
        from teich.anonymize import TraceAnonymizer  # type: ignore[import-not-found,unused-ignore]

        found["teich"] = lambda texts: [TraceAnonymizer().anonymize_text(text) for text in texts]
    if importlib.util.find_spec("detect_secrets"):
        found["detect-secrets"] = _detect_secrets
    return found


def _detect_secrets(texts: list[str]) -> list[str]:
    from detect_secrets.core.scan import scan_line
    from detect_secrets.settings import default_settings

    redacted = []
    with default_settings():
        for text in texts:
            for line in text.splitlines():
                for secret in scan_line(line):
                    text = text.replace(secret.secret_value or "\0", "[X]")
            redacted.append(text)
    return redacted


def measure(
    kinds: Sequence[Kind],
    seeds: Sequence[int],
    num_each: int,
    draw: Callable[[Sequence[Kind], int, int], list[Plant]] = plants,
) -> tuple[Score, int]:
    total, broken = None, 0
    for seed in seeds:
        drawn = draw(kinds, seed, num_each)
        texts, bad = ours(drawn, planted_trace(drawn, seed))
        one = score(drawn, texts)
        total, broken = (one if total is None else total + one), broken + bad
    assert total is not None
    return total, broken


def speed(folder: Path) -> dict[str, float]:
    """Return MB/s of the session files' bytes: parsing alone, and redacting each string they hold."""
    files = sorted(folder.rglob("*.jsonl"))
    raw = b"\n".join(path.read_bytes() for path in files)
    start = time.process_time()
    parsed = [_loads(line) for line in raw.splitlines()]
    loaded = time.process_time()
    texts = [text for row in parsed for text in _strings(row)]
    trace = Trace("t", "x", "s", tuple(Message("user", text) for text in texts if len(text) > 40), ())
    ready = time.process_time()
    Redactor(b"benchmark").trace(trace)
    done = time.process_time()
    megabytes, text_megabytes = len(raw) / 1e6, sum(len(m.content) for m in trace.messages) / 1e6
    return {
        "file MB": megabytes,
        "text MB": text_megabytes,
        "orjson MB/s": megabytes / (loaded - start),
        "redaction, file MB/s": megabytes / (done - ready),
        "redaction, text MB/s": text_megabytes / (done - ready),
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


def line(name: str, result: Score, broken: str) -> str:
    rates = "  ".join(
        f"{klass} {result.rate(klass):.3f} of {result.planted[klass]}" for klass in ("secret", "pii", "keep")
    )
    return f"{name:<24} {rates}  structure broken {broken}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[9001, 9002, 9003])
    parser.add_argument("--num-each", type=int, default=4)
    parser.add_argument("--sessions", type=Path)
    parser.add_argument(
        "--others", action="store_true", help="also run teich and detect-secrets where they are installed"
    )
    options = parser.parse_args()
    for name, kinds in (("known kinds", KNOWN), ("held-out kinds", HELD_OUT), ("all", (*KNOWN, *HELD_OUT))):
        result, broken = measure(kinds, options.seeds, options.num_each)
        print(line(name, result, str(broken)))
    for name, kinds in (("second set, tuned half", TUNED), ("second set, other half", UNSEEN)):
        result, broken = measure(kinds, options.seeds, options.num_each, second_plants)
        print(line(name, result, str(broken)))
    for name, kinds in (("third set, tune half", THIRD_TUNE), ("third set, unseen half", THIRD_UNSEEN)):
        result, broken = measure(kinds, options.seeds, options.num_each, third_plants)
        print(line(name, result, str(broken)))
    result, broken = measure(FOURTH, options.seeds, options.num_each, fourth_plants)
    print(line("fourth set", result, str(broken)))
    for name, rewrite in others().items() if options.others else ():
        drawn = plants((*KNOWN, *HELD_OUT), options.seeds[0], options.num_each)
        texts = texts_of(planted_trace(drawn, options.seeds[0]))
        print(line(name, score(drawn, rewrite(texts)), "not measured"))
    if options.sessions:
        print("  ".join(f"{key} {value:.2f}" for key, value in speed(options.sessions).items()))


if __name__ == "__main__":
    main()
