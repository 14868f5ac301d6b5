"""A learned judge of values: is this atom ordinary, a secret or personal, given its letters and its surroundings?

In: a trace. Out: `Opinion`s, values with a probability. Three stages, each asked only about what the one before left:

1. a gate, one table over kind, cue and notation, that knows which places never held anything private;
2. a linear model over hashed features of the atom and of its surroundings;
3. small trees over the scores of the atom and of its neighbors, and a few numbers.

`data/judge.npz` has the weights, and `python -m benchmarks.redaction.judge` makes them. Only numpy is needed here.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from composer_hub.records import Trace
from composer_hub.redact.atoms import BODY, MAX_ABOUT, START, Atoms, Hashes, Ints, atoms_of, mixed
from composer_hub.redact.data import PACKAGE
from composer_hub.redact.judge import (
    EXPRESSION,
    is_dummy,
    is_hex,
    is_ordinary,
    is_uuid,
    is_worded,
    looks_like_password,
    looks_random,
    num_classes,
    reads_as_words,
    what_is,
)
from composer_hub.redact.match import MAX_JUDGED, PLACEHOLDER
from composer_hub.redact.names import promise_in, promise_of
from composer_hub.redact.settings import kind_of

SIZE = 1 << 17
"""Rows of the table of weights."""
CLASSES = ("SECRET", "PERSONAL")
ASK = -6.0
"""Trees are asked about atoms with a linear score above this."""
MAX_READ = 200_000
"""Characters of one text that the judge reads; longer ones are data."""
MIN_CHARS = 4
_REACH = 4
_JOINED = frozenset("/+=:@&|.")
"""Signs inside a value that is more than one atom."""


class Opinion(NamedTuple):
    """A value that may be private."""

    value: str
    label: str
    probability: float


class Rows(NamedTuple):
    """The atoms that passed the gate."""

    atoms: Atoms
    rows: Ints
    keys: Ints  # the atom that names it on its line, or -1
    features: Ints  # (rows, columns) indices of the table of weights
    numbers: NDArray[np.float32]  # (rows, columns) for the trees


# ------------------------------------------------------------------------------------------------------- what is read


def texts_of(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield the texts of a trace, each with the words of what asked for it."""
    calls: dict[str, str] = {}
    asked = ""
    for message in trace.messages:
        about = message.role
        if message.role == "tool":
            about = f"tool {calls.get(message.tool_call_id, message.name)}"
        elif message.role == "user":
            about = f"user {asked[-MAX_ABOUT:]}"
        if message.content:
            yield about, message.content[:MAX_READ]
        if message.reasoning_content:
            yield "assistant", message.reasoning_content[:MAX_READ]
        asked = message.content or asked
        for call in message.tool_calls:
            strings = list(_strings(call.arguments, ""))
            calls[call.call_id] = " ".join([call.name, *(text for _, text in strings if len(text) < MAX_ABOUT)])
            for key, text in strings:
                yield f"call {call.name} {key}", text[:MAX_READ]


def _strings(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _strings(item, name)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item, key)


# ----------------------------------------------------------------------------------------------------------- the gate


def cued(atoms: Atoms, cues: Hashes) -> Ints:
    """Return for each atom the nearness of a word that announces something private: 0 none, 3 right before it."""
    is_cue = np.isin(atoms.low, cues) | np.isin(atoms.tail, cues) | np.isin(atoms.head, cues)
    here = np.arange(len(atoms))
    last = np.maximum.accumulate(np.where(is_cue, here, -1))
    last = np.append(-1, last)[:-1]
    same_line = (last >= 0) & (atoms.line[last] == atoms.line)
    distance = here - last
    near = np.where(same_line, np.where(distance <= 2, 3, np.where(distance <= 6, 2, 1)), 0)
    about = np.zeros(int(atoms.text.max(initial=0)) + 2, np.bool_)
    about[atoms.text[is_cue & atoms.is_about]] = True
    return np.maximum(near, np.where(about[atoms.text], 1, 0))


def gate_features(atoms: Atoms, near: Ints) -> Ints:
    """Return the few features by which each atom passes the gate or not: kind, key and notation."""
    here = np.arange(len(atoms))
    keys = np.append(-1, np.maximum.accumulate(np.where(atoms.is_key, here, -1)))[:-1]
    keyed = (keys >= 0) & (atoms.line[keys] == atoms.line) & (here - keys <= _REACH)
    key = np.where(keyed, atoms.tail[keys], np.uint64(0))
    before = np.append(np.uint64(0), atoms.low)[:-1]
    kinds = atoms.flags << 8 | atoms.length
    random = np.minimum(atoms.surprise * 2, 15).astype(np.int64) << 4 | np.minimum(atoms.switches * 10, 9).astype(
        np.int64
    )
    parts: list[tuple[Ints | Hashes, ...]] = [
        (kinds << 2 | near,), (atoms.flags << 8 | random,), (atoms.low,), (atoms.left, atoms.right),
        (atoms.left, kinds),
        (before,), (key,), (key, atoms.flags),
    ]  # fmt: skip
    columns = [mixed(*part) * np.uint64(2 * number + 3) for number, part in enumerate(parts)]
    return (np.stack(columns, 1) >> np.uint64(40)).astype(np.int64) & (GATE - 1)


GATE = 1 << 15
"""Rows of the gate's table of weights."""


# ------------------------------------------------------------------------------------------------------- the features


def rows_of(atoms: Atoms, gate: NDArray[np.float32], cues: Hashes) -> Rows:
    """Return the atoms that pass the gate, with their features."""
    near = cued(atoms, cues)
    passed = (gate[gate_features(atoms, near)].sum(1) > 0) & ~atoms.is_about
    return _featured(atoms, np.flatnonzero(passed), near)


def _featured(atoms: Atoms, rows: Ints, near: Ints) -> Rows:
    count, last = len(rows), max(len(atoms) - 1, 0)
    here = np.arange(len(atoms))
    text, line = atoms.text[rows], atoms.line[rows]
    zeros = np.zeros(count, np.uint64)

    def column(values: Any) -> Hashes:
        taken: Hashes = np.asarray(values)[rows].astype(np.uint64)
        return taken

    def at(values: Hashes, places: Ints) -> Hashes:
        inside = (places >= 0) & (places <= last)
        places = np.clip(places, 0, last)
        return np.where(inside & (atoms.text[places] == text), values[places], zeros)

    kinds = mixed(atoms.flags, atoms.length)
    coarse = atoms.flags
    kind = kinds[rows]
    random = column(np.minimum(np.maximum(atoms.surprise - 1.5, 0) * 2.5, 9).astype(np.int64) * 8
                    + np.minimum(atoms.switches * 10, 7).astype(np.int64))  # fmt: skip
    kind_random = mixed(kind, random)
    left, right = column(atoms.left), column(atoms.right)

    # The key on the line, the first atom of the line, what is above, and the top of the column in a table.
    keys = np.append(-1, np.maximum.accumulate(np.where(atoms.is_key, here, -1)))[:-1][rows]
    keys = np.where((keys >= 0) & (atoms.line[keys] == line), keys, -1)
    distance = np.minimum(np.where(keys >= 0, rows - keys, 9), 9).astype(np.uint64)
    begins = np.append(True, atoms.line[1:] != atoms.line[:-1])
    first_of = np.maximum.accumulate(np.where(begins, here, 0))
    first = first_of[rows]
    position = rows - first
    above_first = first_of[np.maximum(first - 1, 0)]
    above = np.where(first > 0, np.minimum(above_first + position, np.maximum(first - 1, 0)), -1)
    breaks = begins & (np.diff(atoms.line, prepend=-9) > 1) | (np.diff(atoms.text, prepend=-1) > 0)
    top = np.maximum.accumulate(np.where(breaks, here, 0))[rows] + position
    after = np.searchsorted(atoms.line, line, "right")
    width = after - first
    bucket = (np.minimum(position, 5) * 8 + np.minimum(width, 7)).astype(np.uint64)
    sizes = np.bincount(atoms.text[~atoms.is_about] + 1, minlength=int(atoms.text.max(initial=0)) + 2)
    alone = np.minimum(np.searchsorted([1, 2, 4, 8, 32, 256], sizes[text + 1]), 6).astype(np.uint64)
    about_first = np.searchsorted(atoms.text, text)
    role = atoms.low[np.minimum(about_first, last)]
    tool = atoms.low[np.minimum(about_first + 1, last)]

    low, head, tail = atoms.low, atoms.head, atoms.tail
    parts: list[tuple[Hashes, ...]] = [  # what the atom is
        (kind,),
        (kind, random),
        (random,),
        (column(low),),
        (column(head),),
        (column(tail),),
        (kind, column(head)),
        (column(atoms.prefix),),
        (column(atoms.shape),),
        (column(atoms.shape), column(atoms.length)),
        (kind, column(atoms.digits)),
        (column(atoms.end - atoms.start), column(coarse)),
        (column(atoms.signs), kind),
    ]
    parts += [  # its notation
        (left,),
        (right,),
        (left, right),
        (left, kind),
        (right, kind),
        (left, right, kind_random),
        (left, right, column(coarse)),
    ]
    parts += [  # words beside it
        *((at(low, rows - k),) for k in (1, 2, 3, 4)),
        *((at(tail, rows - k), kind) for k in (1, 2, 3)),
        (at(low, rows - 1), left),
        (at(low, rows - 1), at(low, rows - 2)),
        (at(low, rows - 1), kind_random),
        (at(head, rows - 1), kind),
        (at(tail, rows - 1), at(head, rows - 1)),
        *((at(low, rows + k),) for k in (1, 2)),
        (at(kinds, rows - 1), kind, left),
        (at(kinds, rows + 1), kind, right),
        (at(kinds, rows - 1), kind, at(kinds, rows + 1)),
    ]
    parts += [  # its key
        (at(low, keys), distance),
        (at(tail, keys), kind),
        (at(tail, keys),),
        (at(head, keys),),
        (at(head, keys), at(tail, keys)),
        (at(tail, keys), kind_random, distance),
        (at(low, keys), left),
    ]
    parts += [  # its line, and those above
        (at(low, first),),
        (at(low, first), kind, bucket),
        (at(low, first), at(low, first + 1)),
        (at(tail, above_first),),
        (at(low, above), kind),
        (at(kinds, above), kind, bucket),
        (at(low, top), kind),
        (at(tail, top),),
        (bucket, kind),
        (alone, kind_random),
        (role, kind),
        (role, alone, kind),
        (tool, kind),
        (role, tool, kind_random),
        (column(near), kind_random),
    ]
    columns = [mixed(np.full(count, number, np.uint64), *part) for number, part in enumerate(parts)]
    # The words of the request matter most if little was printed.
    words = np.where(alone < 4, np.uint64(1), np.uint64(0))
    asked = [at(np.where(atoms.is_about, low, np.uint64(0)), about_first + k) for k in range(1, 13)]
    columns += [mixed(words, np.full(count, 999, np.uint64), kind_random, one) * (one > 0) for one in asked]
    features = (
        (np.stack(columns, 1) >> np.uint64(40)).astype(np.int64) & (SIZE - 1) if count else np.zeros((0, 1), np.int64)
    )
    numbers = np.stack(
        [atoms.flags[rows], atoms.end[rows] - atoms.start[rows], atoms.digits[rows], atoms.uppers[rows],
         atoms.signs[rows], atoms.surprise[rows], atoms.switches[rows], near[rows], distance.astype(np.int64), position,
         width, sizes[text + 1]],
        1,
    ).astype(np.float32)  # fmt: skip
    return Rows(atoms, rows, keys, features, numbers)


def stacked(rows: Rows, scores: NDArray[np.float32], asked: Ints) -> NDArray[np.float32]:
    """Return the trees' input for some rows: scores of atom and neighbors, numbers, features of the rules."""
    line = rows.atoms.line[rows.rows]

    def beside(shift: int) -> NDArray[np.float32]:
        moved = np.roll(scores, shift, 0)
        same = np.roll(line, shift) == line
        return np.where(same[:, None], moved, np.float32(-20)).astype(np.float32)[asked]

    around = [scores[asked], *(beside(shift) for shift in (1, -1, 2, -2)), rows.numbers[asked]]
    words = [_told(rows.atoms, int(row), int(key)) for row, key in zip(rows.rows[asked], rows.keys[asked], strict=True)]
    return np.concatenate([*around, np.array(words, np.float32).reshape(len(asked), NUM_TOLD)], 1)


NUM_TOLD = 20
"""Numbers that functions of words give the trees about an atom, the name and the words before it."""
MAX_NAME, REACH = 80, 80
"""Characters of a name, and of a line before an atom, that may promise something."""
_STRENGTHS = ("", "key", "token", "password")
_HOLDS = ("", "license", "code", "key", "token", "password")


def _told(atoms: Atoms, row: int, key: int) -> tuple[float, ...]:
    """Return the rules' features of the names, lines and call before an atom, and of its letters."""
    buffer, at = atoms.buffer, int(atoms.start[row])
    begin = buffer.rfind("\n", 0, at) + 1
    call = buffer.rfind(START, 0, at)
    above = buffer[max(call, buffer.rfind("\n", 0, max(begin - 1, 0)) + 1) : begin]
    before = atoms.word(row - 1) if row and atoms.text[row - 1] == atoms.text[row] else ""
    return (
        *(_of_name(atoms.word(key)) if key >= 0 else (0, 0)),
        *_of_name(before),
        *map(_promised, (buffer[begin:at][-REACH:], above[-REACH:], buffer[call : buffer.find(BODY, call)])),
        *_of_value(atoms.word(row)),
        at - begin,
    )  # fmt: skip


@functools.lru_cache(maxsize=8192)
def _promised(text: str) -> float:
    return _STRENGTHS.index(promise_in(text)[0])


@functools.lru_cache(maxsize=8192)
def _of_name(name: str) -> tuple[float, ...]:
    if not name or len(name) > MAX_NAME:
        return (0, 0)
    return (_STRENGTHS.index(promise_of(name)[0]), _HOLDS.index(kind_of(name)))


@functools.lru_cache(maxsize=8192)
def _of_value(atom: str) -> tuple[float, ...]:
    value = atom[:MAX_JUDGED].strip("*").rstrip(".,")
    return (
        is_dummy(value), bool(what_is(value)), looks_random(value), is_uuid(value), is_hex(value), num_classes(value),
        is_worded(value), reads_as_words(value), bool(EXPRESSION.search(value)), looks_like_password(value),
        bool(PLACEHOLDER.search(value)), len(set(value)),
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True)
class Trees:
    """Sums of decision trees over three classes: ordinary, secret, personal."""

    feature: NDArray[np.int16]  # -1 in a leaf
    threshold: NDArray[np.float32]
    left: Ints
    right: Ints
    value: NDArray[np.float32]
    roots: Ints

    def probabilities(self, numbers: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the probabilities of the classes CLASSES, row by row."""
        at = np.broadcast_to(self.roots, (len(numbers), len(self.roots)))
        rows = np.arange(len(numbers))[:, None]
        while (self.feature[at] >= 0).any():
            goes_left = numbers[rows, np.maximum(self.feature[at], 0)] <= self.threshold[at]
            at = np.where(self.feature[at] < 0, at, np.where(goes_left, self.left[at], self.right[at]))
        raw = self.value[at].reshape(len(numbers), -1, 3).sum(1)
        odds = np.exp(raw - raw.max(1, keepdims=True, initial=-99))
        shares: NDArray[np.float32] = (odds / odds.sum(1, keepdims=True))[:, 1:]
        return shares


@dataclass(frozen=True)
class JudgeModel:
    """The weights of the three stages."""

    gate: NDArray[np.float32]  # (GATE,); its sums are above 0 where something private may be
    cues: Hashes
    weights: NDArray[np.float32]  # (SIZE, 2)
    bias: NDArray[np.float32]
    trees: Trees | None = None

    def scores(self, rows: Rows) -> NDArray[np.float32]:
        """Return the linear scores of rows for each class."""
        summed: NDArray[np.float32] = self.weights[rows.features].sum(1) + self.bias
        return summed

    def probabilities(self, rows: Rows) -> NDArray[np.float32]:
        """Return the probabilities of rows for each class."""
        scores = self.scores(rows)
        shares = np.zeros((len(scores), len(CLASSES)), np.float32)
        asked = np.flatnonzero(scores.max(1, initial=-99) > ASK)
        if self.trees is not None and len(asked):
            shares[asked] = self.trees.probabilities(stacked(rows, scores, asked))
        return shares


@functools.cache
def shipped() -> JudgeModel:
    """Return the model of this package."""
    data = np.load(io.BytesIO((PACKAGE / "data" / "judge.npz").read_bytes()), allow_pickle=False)
    trees = Trees(*(data[name] for name in ("feature", "threshold", "left", "right", "value", "roots")))
    return JudgeModel(
        data["gate"].astype(np.float32), data["cues"], data["weights"].astype(np.float32), data["bias"], trees
    )


# ------------------------------------------------------------------------------------------------------- the opinions


def opinions(trace: Trace, threshold: float, model: JudgeModel | None = None) -> Iterator[Opinion]:
    """Yield each value of a trace that is private with a probability of at least the threshold, once."""
    model = model or shipped()
    seen: set[tuple[str, str]] = set()
    # Agents print a file again and again, and a session that is resumed repeats the one before.
    for atoms in atoms_of(list(dict.fromkeys(texts_of(trace)))):
        rows = rows_of(atoms, model.gate, model.cues)
        for opinion in taken(rows, model.probabilities(rows), threshold) if len(rows.rows) else ():
            if opinion[:2] not in seen:
                seen.add(opinion[:2])
                yield opinion


def taken(rows: Rows, shares: NDArray[np.float32], threshold: float) -> Iterator[Opinion]:
    """Yield the values of rows above the threshold, neighbors of one class as one value."""
    atoms = rows.atoms
    best = shares.argmax(1)
    pending: tuple[int, int, int, float] | None = None
    for i in np.flatnonzero(shares.max(1) >= threshold):
        row, klass, share = int(rows.rows[i]), int(best[i]), float(shares[i, best[i]])
        start, end = int(atoms.start[row]), int(atoms.end[row])
        if pending and pending[2] == klass:
            between = atoms.buffer[pending[1] : start]
            if between in _JOINED or (klass == 1 and between == " "):
                pending = (pending[0], end, klass, max(pending[3], share))
                continue
        if pending:
            yield from _opinion(atoms, *pending)
        pending = (start, end, klass, share)
    if pending:
        yield from _opinion(atoms, *pending)


_ORDINARY = re.compile(
    r"""
      [\d.,_%+-]{1,5}                                    # a small number: 1,204
    | [A-Za-z]+[ ]\d{1,4} | \d{1,4}[ ][a-z]+ | \d+[ ]\d+  # a count: 213 characters, Changed 127
    | [\w.*@-]*\.(?:[cm]?[jt]sx?|rs|go|py|rb|php|java|kt|swift|cs?|h|cpp|s?css|html?|vue|svelte|jsonl?|ya?ml|toml|lock
        |mdx?|txt|sh|sql|csv|xml|log|db|png|svg|env|gz|zip|wasm|DS_Store)   # a file: dashboard.tsx
    | (?:tool|call|msg|req|evt|run|item|sess|session|resp|chatcmpl|toolu|step|thread|checkpoint|trace)_\w+   # a record
    """,
    re.VERBOSE,
)
_AT_HOST = re.compile(r"@[\w-]+(?:\.[\w-]+)+")  # after a value: an address
_SHORT_WORD = 7


def _opinion(atoms: Atoms, start: int, end: int, klass: int, share: float) -> Iterator[Opinion]:
    # An atom takes the full stop of its sentence, and the asterisks of Markdown, with it.
    value = atoms.buffer[start:end].strip("*").rstrip(".")
    if CLASSES[klass] == "SECRET" and _AT_HOST.match(atoms.buffer, end):
        return  # the id of a mail; a password in front of a host belongs to a URL, which the rules read
    if not is_vetoed(value, CLASSES[klass]):
        yield Opinion(value, CLASSES[klass], round(share, 3))


def is_vetoed(value: str, label: str) -> bool:
    """Return whether no model is asked about a value.

    Such are dummies, published examples, digests, ids, files, code and small numbers.
    """
    return (
        len(value) < MIN_CHARS
        or bool(_ORDINARY.fullmatch(value))
        or (label == "SECRET" and value.isalpha() and len(value) <= _SHORT_WORD)
        or is_ordinary(value)
        or is_uuid(value)
        or (is_hex(value) and len(value) == 64)
        or bool(EXPRESSION.search(value))
    )
