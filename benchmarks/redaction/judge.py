"""Train the learned judge of `composer_hub/redact/judge_model.py`, and measure it on authors and harnesses left out.

    pip install scikit-learn lightgbm
    python -m benchmarks.redaction.judge --measure            # leave two authors and a group of harnesses out
    python -m benchmarks.redaction.judge --write              # composer_hub/redact/data/judge.npz, from this repository

In: ten sets of sessions, the planted values, and ordinary text: this repository as tools print it, and with
`--sessions FOLDER` session files that are not in the repository. The weights of the package were made with those that
`sets/ordinary.txt` names.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.redaction.plants import NAMES, planted_trace, plants
from benchmarks.redaction.sessions import SETS, trace_of
from composer_hub.records import Message, ToolCall, Trace
from composer_hub.redact import Redactor, judge_model
from composer_hub.redact.atoms import Atoms, atoms_of
from composer_hub.redact.judge_model import (
    GATE,
    NUM_TOLD,
    SIZE,
    JudgeModel,
    Rows,
    Trees,
    cued,
    gate_features,
    rows_of,
    stacked,
    texts_of,
)

HERE = Path(__file__).parents[2]
WEIGHTS = HERE / "composer_hub" / "redact" / "data" / "judge.npz"
AUTHORS = ("sessions", *(f"sessions{number}" for number in range(2, 11)))
THRESHOLDS = (0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
ORDINARY, SECRET, PERSONAL, LOOK_ALIKE, UNKNOWN = range(5)
MAX_OF_HARNESS, MAX_OF_SESSION = 1_500_000, 150_000
"""Characters of ordinary sessions that are read."""
_NUM_INNER = NUM_FOLDS = 4
_MIN_CUED = 3
PASSED = 0.08
"""Share of atoms that pass the gate."""


@dataclass
class Reading:
    """A trace as the judge reads it, with a label per atom."""

    group: str  # an author or a harness: it is left out as a whole
    weight: float
    chunks: list[tuple[Atoms, NDArray[np.int8]]]
    trace: Trace
    texts: list[tuple[str, str]]
    values: dict[str, list[str]] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()  # values that the rules take from ordinary text: unread by people


# ------------------------------------------------------------------------------------------------------------ the data


def labelled() -> Iterator[Reading]:
    """Yield the sessions of the ten authors and the planted values."""
    for author in AUTHORS:
        for session in json.loads((SETS / f"{author}.json").read_text("utf-8")):
            values = {name: session[name] for name in ("secrets", "personal", "kept")}
            yield reading(author, 1.0, trace_of(session), values)
    for name in NAMES:
        for seed in (1, 2):
            planted = plants(name, seed, 1)
            lists = {"secret": "secrets", "pii": "personal", "keep": "kept"}
            values = {kept: [p.value for p in planted if lists[p.kind.klass] == kept] for kept in lists.values()}
            yield reading("planted", 0.5, planted_trace(planted, seed), values)


def repository() -> Iterator[Reading]:
    """Yield this repository as the tools of agents print it, without what speaks of redaction."""
    rng = random.Random(0)
    paths = [
        path
        for end in ("py", "md", "yaml", "toml", "txt", "js", "css", "html", "json", "jsonl")
        for folder in ("composer_hub", "tests", "docs", "space", "configs", "examples", "scripts", "dataset_cards")
        for path in sorted((HERE / folder).rglob(f"*.{end}"))
        if "redact" not in str(path.relative_to(HERE)) and path.stat().st_size < 200_000
    ]
    rng.shuffle(paths)
    paths = paths[: len(paths) // 3]
    for number in range(0, len(paths), 12):
        messages: list[Message] = [Message("user", "Read these files.")]
        for place, path in enumerate(paths[number : number + 12]):
            name, text = str(path.relative_to(HERE)), path.read_text("utf-8", "replace")
            call, printed = _printed(name, text, rng)
            messages.append(Message("assistant", "", (ToolCall(call[0], call[1], f"c{place}"),)))
            messages.append(Message("tool", printed, tool_call_id=f"c{place}", name=call[0]))
        trace = Trace(f"repository-{number}", "repository", "", tuple(messages), ())
        yield reading("repository", 0.5, trace, taken=taken_by_rules(trace))


def _printed(name: str, text: str, rng: random.Random) -> tuple[tuple[str, dict[str, Any]], str]:
    """Return a call that shows a file, and what it prints."""
    lines = text.splitlines()
    way = rng.randrange(6)
    if way == 0:
        return ("Read", {"file_path": f"/srv/app/{name}"}), "\n".join(f"{i:6}\t{x}" for i, x in enumerate(lines, 1))
    if way == 1:
        return ("Bash", {"command": f"cat {name}"}), text
    if way == 2:
        return ("Grep", {"pattern": "e", "path": "."}), "\n".join(
            f"{name}:{i}:{x}" for i, x in enumerate(lines, 1) if "e" in x
        )
    if way == 3:
        return ("Bash", {"command": "git diff"}), f"--- a/{name}\n+++ b/{name}\n" + "\n".join(f"+{x}" for x in lines)
    if way == 4:
        ids = (hashlib.sha1(x.encode()).hexdigest() for x in lines)
        log = (f"{next(ids)[: rng.choice((7, 9, 40))]} {x.strip()}" for x in lines if x.strip())
        return ("Bash", {"command": "git log --oneline"}), "\n".join(log)
    kinds = ("msg", "req", "evt", "toolu")
    record = (
        {"id": f"{rng.choice(kinds)}_{zlib.crc32(x.encode()):08x}{rng.getrandbits(64):016x}", "line": i, "text": x}
        for i, x in enumerate(lines, 1_700_000_000_000)
    )
    return ("Bash", {"command": "tail log.jsonl"}), "\n".join(map(json.dumps, record))


def sessions_in(folder: Path) -> Iterator[Reading]:
    """Yield the sessions of a folder, each under its harness."""
    from composer_hub.ingest.one_file import ReadOptions
    from composer_hub.ingest.reading import Reading as Files

    read: Counter[str] = Counter()
    for session in Files([folder], ReadOptions(workers=1)):
        if read[session.trace.source] < MAX_OF_HARNESS:
            trace = replace(session.trace, messages=tuple(_beginning(session.trace.messages)), tools=(), steps=())
            yield (one := reading(trace.source, 0.5, trace, taken=taken_by_rules(trace)))
            read[trace.source] += sum(len(text) for _, text in one.texts)


def _beginning(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield messages until they have as many characters as are read of one session."""
    left = MAX_OF_SESSION
    for message in messages:
        if left > 0:
            yield message
        left -= (
            len(message.content)
            + len(message.reasoning_content)
            + sum(len(str(c.arguments)) for c in message.tool_calls)
        )


def taken_by_rules(trace: Trace) -> frozenset[str]:
    """Return what the rules take from ordinary text; unread by people, it is neither private nor ordinary."""
    redactor = Redactor(b"judge", max_samples=1_000_000, judge=None)
    redactor.trace(trace)
    return frozenset(sample.value for sample in redactor.samples.values())


def reading(
    group: str,
    weight: float,
    trace: Trace,
    values: dict[str, list[str]] | None = None,
    taken: frozenset[str] = frozenset(),
) -> Reading:
    values = values or {}
    texts = list(texts_of(trace))
    lists = [
        (LOOK_ALIKE, values.get("kept", ())),
        (UNKNOWN, taken),
        (PERSONAL, values.get("personal", ())),
        (SECRET, values.get("secrets", ())),
    ]
    chunks = [(atoms, labels(atoms, lists)) for atoms in atoms_of(texts)]
    return Reading(group, weight, chunks, trace, texts, values, taken)


def labels(atoms: Atoms, lists: Sequence[tuple[int, Sequence[str] | frozenset[str]]]) -> NDArray[np.int8]:
    """Return the label of each atom: that of most of its characters."""
    codes = np.zeros(len(atoms.buffer) + 1, np.int8)
    for label, values in lists:
        for value in sorted(values):
            if value in atoms.buffer:
                for match in re.finditer(bounded(value), atoms.buffer):
                    codes[match.start() : match.end()] = label
    middle = codes[(atoms.start + atoms.end) // 2]
    return np.where(codes[atoms.start] == middle, middle, np.maximum(codes[atoms.start], middle)).astype(np.int8)


def bounded(value: str) -> str:
    """Return the pattern of a value as a whole word."""
    return (
        (r"(?<!\w)" if re.match(r"\w", value) else "")
        + re.escape(value)
        + (r"(?!\w)" if re.search(r"\w$", value) else "")
    )


# ----------------------------------------------------------------------------------------------------- the three stages


def learn_cues(readings: Sequence[Reading]) -> NDArray[np.uint64]:
    """Return the words that precede private values far more often than they occur elsewhere."""
    before: dict[int, set[tuple[str, int]]] = defaultdict(set)
    near: Counter[int] = Counter()
    everywhere: Counter[int] = Counter()
    for number, one in enumerate(readings):
        for atoms, label in one.chunks:
            for column in (atoms.low, atoms.tail):
                words, counts = np.unique(column, return_counts=True)
                everywhere.update(dict(zip(words.tolist(), counts.tolist(), strict=True)))
            private = np.flatnonzero((label == SECRET) | (label == PERSONAL))
            for back in (1, 2, 3):
                places = np.maximum(private - back, 0)
                fits = (
                    (label[places] == ORDINARY)
                    & (atoms.line[places] == atoms.line[private])
                    & (atoms.flags[places] & 3 > 0)
                )
                for column in (atoms.low, atoms.tail):
                    for word in set(column[places[fits]].tolist()):
                        before[word].add((one.group, number))
                    near.update(column[places[fits]].tolist())
    words = [
        word
        for word, where in before.items()
        if len(where) >= _MIN_CUED and near[word] / everywhere[word] > 0.02 and word
    ]
    return np.sort(np.array(words, np.uint64))


def learn_gate(readings: Sequence[Reading], cues: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Return weights whose sum is above 0 for the share PASSED of ordinary atoms that most look private."""
    features, private = [], []
    for one in readings:
        for atoms, label in one.chunks:
            kept = np.flatnonzero(~atoms.is_about & (label != UNKNOWN))
            features.append(gate_features(atoms, cued(atoms, cues))[kept].astype(np.int32))
            private.append((label[kept] == SECRET) | (label[kept] == PERSONAL))
    table, is_private = np.concatenate(features), np.concatenate(private)
    weights, _ = logistic(table, is_private, np.where(is_private, 8.0, 1.0), GATE, alpha=1e-5, epochs=2)
    weights -= np.quantile(weights[table].sum(1), 1 - PASSED) / table.shape[1]
    return weights.astype(np.float16).astype(np.float32)


def logistic(
    features: NDArray[np.int32],
    target: NDArray[np.bool_],
    weights: NDArray[Any],
    size: int,
    *,
    alpha: float,
    epochs: int,
) -> tuple[NDArray[np.float32], float]:
    """Return weights and bias of a logistic regression over hashed features."""
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import SGDClassifier

    rows, width = features.shape
    matrix = csr_matrix(
        (np.ones(rows * width, np.float32), features.ravel(), np.arange(0, rows * width + 1, width)), (rows, size)
    )
    model = SGDClassifier(loss="log_loss", alpha=alpha, max_iter=epochs, tol=None, average=True, random_state=1)
    model.fit(matrix, target, sample_weight=weights)
    return model.coef_[0].astype(np.float32), float(model.intercept_[0])


@dataclass
class Table:
    """The rows of readings that pass the gate."""

    features: NDArray[np.int32]
    labels: NDArray[np.int8]
    weights: NDArray[np.float32]
    groups: list[str]
    rows: list[tuple[int, int, Rows]]  # first row, last row, and where they come from


def table_of(readings: Sequence[Reading], gate: NDArray[np.float32], cues: NDArray[np.uint64]) -> Table:
    features, label_parts, weights, groups, places, at = [], [], [], [], [], 0
    for one in readings:
        for atoms, label in one.chunks:
            rows = rows_of(atoms, gate, cues)
            if not len(rows.rows):
                continue
            mine = label[rows.rows]
            features.append(rows.features.astype(np.int32))
            label_parts.append(mine)
            weights.append(
                np.select([mine == ORDINARY, mine == LOOK_ALIKE, mine == UNKNOWN], [1.0, 3.0, 0.0], 2.0) * one.weight
            )
            groups += [one.group] * len(mine)
            places.append((at, at + len(mine), rows))
            at += len(mine)
    return Table(
        np.concatenate(features),
        np.concatenate(label_parts),
        np.concatenate(weights).astype(np.float32),
        groups,
        places,
    )


def fit_linear(
    table: Table, chosen: NDArray[np.bool_], epochs: int = 6
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the weights of the linear model."""
    at = np.flatnonzero(chosen & (table.labels != UNKNOWN))
    weights, bias = np.zeros((SIZE, 2), np.float32), np.zeros(2, np.float32)
    for klass in (SECRET, PERSONAL):
        weights[:, klass - 1], bias[klass - 1] = logistic(
            table.features[at], table.labels[at] == klass, table.weights[at], SIZE, alpha=3e-6, epochs=epochs
        )
    return weights.astype(np.float16).astype(np.float32), bias


def fit(readings: Sequence[Reading]) -> JudgeModel:
    """Train the three stages; the trees see scores of linear models that had not seen the group."""
    from lightgbm import LGBMClassifier

    cues = learn_cues(readings)
    gate = learn_gate(readings, cues)
    table = table_of(readings, gate, cues)
    names = sorted(set(table.groups))
    random.Random(3).shuffle(names)
    inner = np.array([names.index(group) % _NUM_INNER for group in table.groups])
    numbers = np.zeros((len(table.labels), 10 + table.rows[0][2].numbers.shape[1] + NUM_TOLD), np.float32)
    numbers[:, :2] = -20
    for part in range(_NUM_INNER):
        model = JudgeModel(gate, cues, *fit_linear(table, inner != part))
        for first, _, rows in table.rows:
            if inner[first] == part:
                scores = model.scores(rows)
                asked_of = np.flatnonzero(scores.max(1) > judge_model.ASK)
                numbers[first + asked_of] = stacked(rows, scores, asked_of)
    asked = (numbers[:, :2].max(1) > judge_model.ASK) & (table.labels != UNKNOWN)
    trees = LGBMClassifier(n_estimators=100, num_leaves=15, learning_rate=0.07, min_child_samples=20, subsample=0.8,
                           subsample_freq=1, colsample_bytree=0.7, n_jobs=1, verbose=-1, random_state=1)  # fmt: skip
    target = np.where(table.labels == LOOK_ALIKE, ORDINARY, table.labels)[asked]
    trees.fit(numbers[asked], target, sample_weight=np.where(table.labels == LOOK_ALIKE, 2.0, 1.0)[asked])
    print(f"  {len(cues):,} cues, {len(table.labels):,} rows, {asked.sum():,} asked", flush=True)
    return JudgeModel(gate, cues, *fit_linear(table, np.ones(len(table.labels), np.bool_)), trees_of(trees.booster_))


def trees_of(booster: Any) -> Trees:
    """Return the trees of LightGBM as arrays."""
    columns: tuple[list[Any], ...] = ([], [], [], [], [])

    def add(node: dict[str, Any]) -> int:
        place = len(columns[0])
        for column, value in zip(columns, (-1, 0.0, place, place, node.get("leaf_value", 0.0)), strict=True):
            column.append(value)
        if "split_feature" in node:
            columns[0][place], columns[1][place] = node["split_feature"], node["threshold"]
            columns[2][place], columns[3][place] = add(node["left_child"]), add(node["right_child"])
        return place

    roots = [add(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]
    types = (np.int16, np.float32, np.int64, np.int64, np.float32)
    arrays = [np.array(column, dtype) for column, dtype in zip(columns, types, strict=True)]
    return Trees(*arrays, np.array(roots, np.int64))


def write(model: JudgeModel, path: Path) -> None:
    """Write the weights; numbers are stored as small as they may be."""
    assert model.trees is not None
    trees = model.trees
    np.savez_compressed(
        path, gate=model.gate.astype(np.float16), cues=model.cues, weights=model.weights.astype(np.float16),
        bias=model.bias, feature=trees.feature, threshold=trees.threshold, left=trees.left.astype(np.int32),
        right=trees.right.astype(np.int32), value=trees.value, roots=trees.roots.astype(np.int32),
    )  # fmt: skip
    print(f"{path}: {path.stat().st_size:,} bytes")


# -------------------------------------------------------------------------------------------------------- measurements


def groups_of(readings: Sequence[Reading], number: int) -> dict[str, int]:
    """Return for each harness its group, such that groups have about as much text."""
    sizes: Counter[str] = Counter()
    for one in readings:
        sizes[one.group] += sum(len(text) for _, text in one.texts)
    filled = [0] * number
    groups = {}
    for name, size in sizes.most_common():
        groups[name] = filled.index(min(filled))
        filled[groups[name]] += size
    return groups


def measure(before: Path | None, sessions: Sequence[Reading]) -> None:
    """Print what rules and judge find, with two authors and a group of harnesses at a time left out of the training."""
    known, ordinary = list(labelled()), list(repository())
    groups = groups_of(sessions, NUM_FOLDS)
    rates: dict[str, NDArray[np.int64]] = defaultdict(lambda: np.zeros((3, 2), np.int64))
    alarms: dict[float, set[tuple[str, str, str]]] = defaultdict(set)
    for number in range(NUM_FOLDS):
        authors = AUTHORS[number::NUM_FOLDS]
        kept = [one for one in known if one.group not in authors]
        model = fit(kept + ordinary + [one for one in sessions if groups[one.group] != number])
        rules: dict[str, str] = {}
        for author in authors:
            rules |= json.loads((before / f"{author}.json").read_text()) if before else {}
        for one in known:
            if one.group in authors:
                found = found_in(one, model)
                text = "\n".join(text for _, text in one.texts)
                after = rules.get(one.trace.trace_id) or "\n".join(
                    text for _, text in texts_of(Redactor(b"judge", judge=None).trace(one.trace))
                )
                _add(rates["rules"], one, after)
                for threshold, values in found.items():
                    _add(rates[f"judge at {threshold}"], one, without(text, values))
                    _add(rates[f"rules or judge at {threshold}"], one, without(after, values))
        for one in sessions:
            for threshold, values in (found_in(one, model) if groups[one.group] == number else {}).items():
                new = ((v, label) for v, label in values if not any(v in t or t in v for t in one.taken))
                alarms[threshold] |= {(one.group, *pair) for pair in new}
    print("| | secrets | personal | kept |\n|---|---|---|---|")
    for name, rate in rates.items():
        print(f"| {name} | {' | '.join(f'{right / total:.3f}' for right, total in rate)} |")
    size = sum(len(text) for one in sessions for _, text in one.texts) / 1e6
    for threshold, values in alarms.items():
        count = Counter(label for _, _, label in values)
        print(f"at {threshold}, in {size:.1f} MB: { ({name: round(n / size, 2) for name, n in count.items()}) } per MB")
        worst = Counter((group, label) for group, _, label in values)
        print("  ", worst.most_common(12))


def found_in(one: Reading, model: JudgeModel) -> dict[float, set[tuple[str, str]]]:
    """Return the (value, label) pairs that a model finds in a reading, by threshold."""
    found: dict[float, set[tuple[str, str]]] = {threshold: set() for threshold in THRESHOLDS}
    for atoms, _ in one.chunks:
        rows = rows_of(atoms, model.gate, model.cues)
        shares = model.probabilities(rows)
        for threshold in THRESHOLDS:
            found[threshold] |= {(value, label) for value, label, *_ in judge_model.taken(rows, shares, threshold)}
    return found


def without(text: str, found: Iterable[tuple[str, str]]) -> str:
    """Return a text without values that are whole words."""
    values = sorted({value for value, _ in found}, key=len, reverse=True)
    for first in range(0, len(values), 300):
        text = re.sub("|".join(map(bounded, values[first : first + 300])), "[X]", text)
    return text


def _add(rate: NDArray[np.int64], one: Reading, after: str) -> None:
    for row, name in enumerate(("secrets", "personal", "kept")):
        values = one.values[name]
        rate[row] += (sum((value in after) == (name == "kept") for value in values), len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="leave authors and harnesses out, and print tables")
    parser.add_argument("--write", action="store_true", help=f"write {WEIGHTS.relative_to(HERE)}")
    parser.add_argument(
        "--sessions", type=Path, action="append", default=[], help="folder of session files, as ordinary text"
    )
    parser.add_argument("--before", type=Path, help="folder of sessionsN.json, {id: text after the rules of that day}")
    options = parser.parse_args()
    sessions = [one for folder in options.sessions for one in sessions_in(folder)]
    if options.measure:
        measure(options.before, sessions)
    if options.write:
        write(fit([*labelled(), *repository(), *sessions]), WEIGHTS)


if __name__ == "__main__":
    main()
