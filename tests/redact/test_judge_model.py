"""The learned judge: the arithmetic of its stages, what it never takes, and that no text breaks it.

The weights are data. No test depends on what they take for private: only the file's form is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from composer_hub.records import Message, ToolCall, Trace
from composer_hub.redact.atoms import atoms_of
from composer_hub.redact.data import PACKAGE
from composer_hub.redact.judge_model import (
    CLASSES,
    GATE,
    SIZE,
    JudgeModel,
    Opinion,
    Trees,
    cued,
    is_vetoed,
    opinions,
    rows_of,
    shipped,
    taken,
    texts_of,
)

STUMP = {
    "at": 0,
    "below": 0.5,
    "yes": {"leaf": -1.0},
    "no": {"at": 1, "below": 2.0, "yes": {"leaf": 3.0}, "no": {"leaf": 0.25}},
}
LEAF = {"leaf": 0.5}


def trees_of(roots: list[Mapping[str, Any]]) -> Trees:
    columns: tuple[list[Any], ...] = ([], [], [], [], [])

    def add(node: Mapping[str, Any]) -> int:
        place = len(columns[0])
        row = (node.get("at", -1), node.get("below", 0.0), place, place, node.get("leaf", 0.0))
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        if "at" in node:
            columns[2][place], columns[3][place] = add(node["yes"]), add(node["no"])
        return place

    starts = [add(root) for root in roots]
    types = (np.int16, np.float32, np.int64, np.int64, np.float32)
    return Trees(*(np.array(c, t) for c, t in zip(columns, types, strict=True)), np.array(starts))


def walked(node: Mapping[str, Any], numbers: list[float]) -> float:
    while "at" in node:
        node = node["yes"] if numbers[node["at"]] <= node["below"] else node["no"]
    return float(node["leaf"])


@pytest.mark.parametrize("numbers", [[0.0, 0.0], [0.5, 9.0], [1.0, 2.0], [1.0, 2.5]])
def test_trees_give_the_softmax_of_the_sums_of_their_leaves(numbers: list[float]) -> None:
    rounds = [[LEAF, STUMP, LEAF], [STUMP, LEAF, STUMP]]
    sums = [sum(walked(one[klass], numbers) for one in rounds) for klass in range(3)]
    total = sum(map(math.exp, sums))
    (shares,) = trees_of([tree for one in rounds for tree in one]).probabilities(np.array([numbers], np.float32))
    assert shares.tolist() == pytest.approx([math.exp(raw) / total for raw in sums[1:]], abs=1e-5)


def model(gate: float, score: float, **stage: Any) -> JudgeModel:
    """A judge that lets everything or nothing through its gate, and scores everything alike."""
    bias = np.array([score, -99.0], np.float32)
    weights = np.zeros((SIZE, 2), np.float32)
    return JudgeModel(np.full(GATE, gate, np.float32), np.zeros(0, np.uint64), weights, bias, **stage)


SURE = trees_of([{"leaf": -9.0}, {"leaf": 9.0}, {"leaf": -9.0}])


def said(text: str, chosen: JudgeModel) -> list[str]:
    return [
        opinion.value for opinion in opinions(Trace("t", "x", "s", (Message("user", text),), ()), 0.5, model=chosen)
    ]


def test_each_stage_is_asked_only_about_what_the_one_before_left() -> None:
    text = "correct horse Battery7staple"
    assert said(text, model(-1.0, 9.0, trees=SURE)) == []  # nothing passes the gate
    assert said(text, model(1.0, -9.0, trees=SURE)) == []  # no score is worth asking the trees
    assert said(text, model(1.0, 9.0)) == []  # without trees
    assert "Battery7staple" in said(text, model(1.0, 9.0, trees=SURE))


def test_parts_of_one_value_become_one_and_a_full_stop_stays() -> None:
    assert said("It is kx7Qm/w9Rt+Zb3Ld==. Then **Vb8nQ2xT** came.", model(1.0, 9.0, trees=SURE))[:2] == [
        "kx7Qm/w9Rt+Zb3Ld",
        "Vb8nQ2xT",
    ]


@pytest.mark.parametrize(
    "value",
    ["x", "1,204", "213 characters", "dashboard.tsx", "*.js", "$test_name",
     "!node_modules", "your-api-key", "AKIAIOSFODNN7EXAMPLE",
     "6f1c1a52-53c2-4c39-8d5e-3d3f3ac1d5b9",
     "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
     "tool_fb1bda5f7001wOgNtN",
     "[SECRET_3]", "should", "v1.11.0", "src/app/main.py"],
)  # fmt: skip
def test_what_no_model_is_asked_about(value: str) -> None:
    assert is_vetoed(value, "SECRET")
    assert value not in said(f"the value {value} here", model(1.0, 9.0, trees=SURE))


def test_a_text_is_read_with_the_words_of_what_asked_for_it() -> None:
    call = ToolCall("Bash", {"command": "cat notes", "nested": [{"path": "/srv"}]}, "c1")
    messages = (
        Message("assistant", "Which code?", (call,)),
        Message("tool", "4711", tool_call_id="c1"),
        Message("user", "0815"),
    )
    texts = {text: about for about, text in texts_of(Trace("t", "x", "s", messages, ()))}
    assert texts["cat notes"] == "call Bash command"
    assert texts["/srv"] == "call Bash path"
    assert texts["4711"].startswith("tool Bash cat notes")
    assert texts["0815"] == "user 4711"  # what the user answers may be what a tool asked


@pytest.mark.parametrize(
    "text", ["", "\n" * 50, "=" * 400, "\x02\x03\x02 a=b", "\ud800 password", "ключ: Ж9", "x" * 300_000]
)
def test_no_text_breaks_the_shipped_judge(text: str) -> None:
    for value, label, probability in opinions(Trace("t", "x", "s", (Message("user", text),), ()), 0.01):
        assert value in text
        assert label in CLASSES
        assert 0 < probability <= 1


def test_the_shipped_weights_are_small_plain_arrays() -> None:
    path = PACKAGE / "data" / "judge.npz"
    assert len(path.read_bytes()) < 1_000_000
    weights = shipped()
    assert weights.weights.shape == (SIZE, len(CLASSES))
    assert weights.gate.shape == (GATE,)
    assert weights.trees is not None
    assert len(weights.trees.roots) % 3 == 0
    assert np.isfinite(weights.weights).all()


def test_the_gate_passes_few_atoms_of_prose_and_shares_are_probabilities() -> None:
    prose = "The quick brown fox jumps over the lazy dog and then it rests for a while.\n" * 200
    (atoms,) = atoms_of([("assistant", prose)])
    rows = rows_of(atoms, shipped().gate, shipped().cues)
    shares = shipped().probabilities(rows)
    assert shares.shape == (len(rows.rows), len(CLASSES))
    assert ((shares >= 0) & (shares.sum(1, keepdims=True) <= 1 + 1e-5)).all()
    assert list(taken(rows, shares * 0, 0.5)) == []
    assert set(np.unique(cued(atoms, np.zeros(0, np.uint64)))) == {0}


LINES = ("DB_PASSWORD=brunnenkresse", "the login is bob / Falcon_4863ghYSc", "no secret here", "| token | kx7QmW9RtZ |")


def test_what_is_found_in_a_text_does_not_depend_on_the_texts_beside_it() -> None:
    def found(*texts: str) -> set[Opinion]:
        messages = tuple(Message("user" if number else "assistant", text) for number, text in enumerate(texts))
        return {*opinions(Trace("t", "x", "s", messages, ()), 0.01)}

    together = found("", *LINES)
    assert together
    assert {one.value for one in together} == {one.value for line in LINES for one in found("", line)}
