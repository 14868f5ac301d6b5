"""Hidden differential oracles: calls recorded while the tests run, mutated, and answered once by the original code.

A recorded call is kept if the original gives the same answer in two processes with different hashes. A mutated call
must also return normally, or raise what a recorded call raised, so that an honest rewrite is not judged on calls that
nothing describes.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub.records import SourceEdit, canonical_json, stable_id
from composer_hub.tasks.bench import Bench, Job
from composer_hub.tasks.code import Function
from composer_hub.tasks.deletion import PackageModel
from composer_hub.tasks.gates import Checked
from composer_hub.tasks.language import files_of
from composer_hub.tasks.mutation import other_text

MAX_RECORDED, MAX_MUTATED = 12, 20  # calls per function
MIN_UNSEEN = 8  # calls and values that no test shows, or a table of a few rows is rewarded
_MANY = 400


@dataclass(frozen=True)
class AnsweredCall:
    """A call, the functions that it ran when it was recorded, and the original's answer."""

    call: Mapping[str, Any]
    touched: frozenset[str]
    answer: Any
    mutated: bool


def record(bench: Bench, model: PackageModel, symbols: Iterable[str], seed: int) -> list[AnsweredCall]:
    """Record, mutate and answer the calls that run some functions."""
    wanted = set(symbols)
    targets = {f"{one.path}:{one.first_line}": found for one in model.functions if (found := _target(one))}
    tests = set().union(*(model.tests_of(one) for one in model.functions if one.symbol in wanted))
    slowest = {id for id in tests if model.baseline.seconds.get(id, 0) > 2}
    files = files_of(tests - slowest)
    if not files:
        return []
    options = {"record": targets}
    job = Job("record", files, ids=tuple(sorted(tests - slowest)), seconds=300, test_seconds=30, options=options)
    (report,) = bench.run([job])
    recorded = report.values.get("recorded", ())
    calls: dict[str, tuple[Mapping[str, Any], frozenset[str], bool]] = {}
    counts: Counter[str] = Counter()
    for one in recorded:
        touched = frozenset(one["touched"])
        if any(counts[name] < MAX_RECORDED for name in touched & wanted):
            counts.update(touched & wanted)
            calls[canonical_json(one["call"])] = (one["call"], touched, False)
    for call, touched, _ in list(calls.values()):
        for number in range(3):
            changed = mutate(call, seed + number)
            if changed is not None:
                calls.setdefault(canonical_json(changed), (changed, touched, True))
    return _answered(bench, list(calls.values()))


def _target(function: Function) -> dict[str, str] | None:
    """Return the recorder's description of a function; None if its calls cannot be repeated."""
    kinds = {"staticmethod": "static", "classmethod": "class", "property": "property"}
    kind = next((kinds[one] for one in function.decorators if one in kinds), "")
    if any(one.endswith((".setter", ".deleter")) for one in function.decorators):
        return None
    if function.owner is None:
        kind = kind or "function"
    owner = f"{function.source.module}:{function.qualname.rpartition('.')[0]}"
    kind = kind or ("init" if function.node.name == "__init__" else "method")
    return {"name": function.symbol, "kind": kind, "class": owner}


def _answered(bench: Bench, calls: Sequence[tuple[Mapping[str, Any], frozenset[str], bool]]) -> list[AnsweredCall]:
    """Return the calls that the original answers alike in two processes."""
    parts = [calls[start : start + _MANY] for start in range(0, len(calls), _MANY)]
    jobs = [
        Job(f"{number}-{seed}", (), seconds=60 + len(part), options={"calls": [call for call, _, _ in part]}, seed=seed)
        for seed in (0, 1)
        for number, part in enumerate(parts)
    ]
    answers = [report.values.get("answers") for report in bench.run(jobs)]
    first, second = answers[: len(parts)], answers[len(parts) :]
    found = []
    for part, one, other in zip(parts, first, second, strict=True):
        if one is None or other is None:
            continue
        pairs = zip(part, one, other, strict=True)
        found += [AnsweredCall(*call[:2], a, call[2]) for call, a, b in pairs if a == b and _says_something(a)]
    raised = {(name, kind) for one in found if not one.mutated for kind in _raised(one.answer) for name in one.touched}
    return [
        one for one in found
        if not one.mutated or all(any((name, kind) in raised for name in one.touched) for kind in _raised(one.answer))
    ]  # fmt: skip


def _says_something(answer: Any) -> bool:
    return not {"opaque", "ends", "late"} & answer.keys() and " at 0x" not in canonical_json(answer)


def _raised(answer: Mapping[str, Any]) -> list[str]:
    return [one["raises"] for one in (answer, *answer.get("steps", ())) if "raises" in one]


def oracle_of(one: Checked, calls: Sequence[AnsweredCall]) -> dict[str, Any]:
    """Return the calls that run what a candidate changed, with their answers."""
    symbols = set(one.candidate.symbols)
    own = [call for call in calls if call.touched & symbols or _inside(call.touched, symbols)]
    plain = [call for call in own if not call.mutated][: MAX_RECORDED * 2]
    shown = {canonical_json(call.answer) for call in plain}
    # An answer that no test shows first: a table of those that tests show gives the others by chance.
    mutated = sorted((call for call in own if call.mutated), key=lambda call: canonical_json(call.answer) in shown)
    kept = [*plain, *mutated[: MAX_MUTATED * 2]]
    return {
        "calls": [dict(call.call) for call in kept],
        "answers": [call.answer for call in kept],
        "num_unseen": len(kept) - len(plain),
    }


def is_enough(oracle: Mapping[str, Any]) -> bool:
    """Return whether an oracle asks enough that no test shows, with more than one answer to it."""
    values = [value for *_, value in oracle.get("values", ())]
    unseen = [*oracle["answers"][len(oracle["answers"]) - oracle["num_unseen"] :], *values]
    return len(unseen) >= MIN_UNSEEN and len({canonical_json(one) for one in unseen}) > 1


def _inside(touched: frozenset[str], symbols: set[str]) -> bool:
    return any(name.startswith(f"{symbol}.") for symbol in symbols for name in touched)


def telling(bench: Bench, pairs: Sequence[tuple[Checked, Mapping[str, Any]]]) -> list[bool]:
    """Return whether the broken tree fails each oracle's calls; the original passes them by construction."""
    jobs = [
        Job(f"{number}", (), edits=one.edits, seconds=40 + len(oracle["calls"]), options={"calls": oracle["calls"]})
        for number, (one, oracle) in enumerate(pairs)
    ]
    done = []
    for (_, oracle), report in zip(pairs, bench.run(jobs), strict=True):
        answers = report.values.get("answers")
        is_other = answers is None or not _same(answers, oracle["answers"])
        done.append(report.problem != "late" and is_other)
    return done


def answered_alike(
    bench: Bench, ways: Iterable[Sequence[SourceEdit]], calls: Sequence[AnsweredCall]
) -> list[AnsweredCall]:
    """Return the calls that rewrites of the package answer alike; an oracle does not ask the others."""
    ways, kept = list(ways), list(calls)
    parts = [calls[start : start + _MANY] for start in range(0, len(calls), _MANY)]
    jobs = [
        Job(f"{way}-{number}", (), edits=tuple(edits), seconds=60 + len(part),
            options={"calls": [one.call for one in part]})
        for way, edits in enumerate(ways) for number, part in enumerate(parts)
    ]  # fmt: skip
    others = set[int]()
    for job, report in zip(jobs, bench.run(jobs), strict=True):
        answers, start = report.values.get("answers"), int(job.name.partition("-")[2]) * _MANY
        if answers is not None:
            others |= {
                start + number
                for number, answer in enumerate(answers)
                if not _same(answer, calls[start + number].answer)
            }
    # A way that answers most recorded calls otherwise is not the same program.
    return [one for number, one in enumerate(kept) if number not in others] if 2 * len(others) < len(kept) else kept


def _same(one: Any, other: Any) -> bool:
    return canonical_json(one) == canonical_json(other)


# ------------------------------------------------------------------------------------------------------------- mutation


def mutate(call: Mapping[str, Any], seed: int) -> dict[str, Any] | None:
    """Return a call with one argument changed to another value of its type; the same seed gives the same call."""
    changed = copy.deepcopy(dict(call))
    source = random.Random(stable_id(call, seed))
    holders = [changed["args"], changed["kwargs"]]
    holders += [part for step in changed.get("steps", ()) for part in step[2:]]
    places = [place for holder in holders for place in _places(holder)]
    if not places:
        return None
    holder, key = source.choice(places)
    value = _other(holder[key], source)
    if value == holder[key]:
        return None
    holder[key] = value
    return changed


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Return the places of plain values, as (container, key)."""
    found: list[tuple[Any, Any]] = []
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(data, list):
        items = enumerate(data)
    elif isinstance(data, dict) and set(data) & {"t", "s", "z", "d"}:
        return _places(next(iter(data.values())))
    elif isinstance(data, dict) and "f" in data:
        return []
    for key, value in items:
        if (isinstance(value, dict) and "f" in value) or not isinstance(value, (list, dict)):
            if value is not None:
                found.append((data, key))
        else:
            found += _places(value)
            if isinstance(value, list) and len(value) > 1:
                found.append((data, key))
    return found


def _other(value: Any, source: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return source.choice([value + 1, value - 1, -value, value * 2, value + 10, 0])
    if isinstance(value, str):
        return other_text(value, source)
    if isinstance(value, dict):
        return {"f": repr(source.choice([float(value["f"]) + 0.5, -float(value["f"]), float(value["f"]) * 3, 0.0]))}
    if isinstance(value, list):
        return source.choice([value[1:], value[:-1], value[::-1], [*value, value[0]]])
    return value
