"""The study of recorded hints: its split, its controls, its test, and one run of each arm on the tiny model."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
pytest.importorskip("peft")

from benchmarks import offline_hints as study  # noqa: E402
from benchmarks.ablation.report import sign_flip  # noqa: E402
from tests.quick import quick  # noqa: E402

SIZE = study.Size(context=40, action=30, train_sites=2, held_out_sites=1, ordinary=1, epochs=1)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three sites, one of them twice and one that never parts, and an ordinary step for each of fourteen owners."""
    path = tmp_path_factory.mktemp("study") / "sites.jsonl"
    rows = []
    for number in range(14):
        common = {"owner": f"owner{number}", "session": "s", "context": [["user", "2+5"]]}
        for place, worked in enumerate(("add {}", "sum {}", "plus {}")):
            hint = {"text": f"Use {number}.", "writer": "w", "rule": "r", "version": 1}
            row = {**common, "hint": hint, "failed": "plus {}", "worked": worked + f" {place}" * (place < 2)}
            rows += [row, {**row, "session": "the same, continued"}] if place == 0 else [row]
        rows.append({**common, "ordinary": "add {}"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_no_owner_is_on_both_sides_and_every_site_parts(sites: Path, world: Any) -> None:
    found = study.material_of(sites, world[1], SIZE)
    train, held_out = ({owner for owner, _ in rows} for rows in (found.train, found.held_out))
    assert (len(train), len(held_out), len(train & held_out)) == (2, study.NUM_HELD_OUT, 0)
    assert {owner for owner, _ in found.ordinary} == held_out
    assert max(Counter(owner for owner, _ in found.train).values()) == 2
    assert all(site.at_fork() for _, site in found.train + found.held_out)
    assert len({(owner, tuple(site.corrected_ids)) for owner, site in found.train}) == len(found.train)
    again = study.material_of(sites, world[1], SIZE)
    assert again == found


def test_a_control_has_the_hint_of_another_owner_and_the_same_actions(sites: Path, world: Any) -> None:
    train = study.material_of(sites, world[1], SIZE).train
    for (owner, site), other in zip(train, study.with_other_hints(train), strict=True):
        assert (other.prefix_ids, other.action_ids, other.corrected_ids) == (
            site.prefix_ids, site.action_ids, site.corrected_ids,
        )  # fmt: skip
        assert other.hint.text != site.hint.text
        assert other.hint.text == f"Use {next(name for name, _ in train if name != owner).removeprefix('owner')}."
        assert other.hinted_ids[: site.cut] == site.hinted_ids[: site.cut]


@pytest.mark.parametrize(
    ("values", "p"), [([1.0] * 5, 2 / 32), ([1.0, -1.0], 1.0), ([3.0, 2.0, -1.0], 4 / 8), ([0.0, 0.0], 1.0)]
)
def test_the_sign_flip_test_counts_every_way_to_flip(values: list[float], p: float) -> None:
    assert sign_flip(values) == pytest.approx(p)


@pytest.mark.parametrize("arm", quick(1, ["fork_kl", "all_kl", "all_control_kl", "sft"]))
def test_an_arm_learns_and_is_recorded_once(arm: str, sites: Path, world: Any, tmp_path: Path) -> None:
    model, tokenizer = world
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    material = study.material_of(sites, tokenizer, SIZE)
    study.SIZES["tiny"] = SIZE
    plain = study.run("none", tmp_path / "model", material, "tiny", 0)
    found = study.run(arm, tmp_path / "model", material, "tiny", 1)
    del study.SIZES["tiny"]
    assert found["steps"] == math.ceil(len(material.train) / 4)
    moved = study.changes(found, plain)
    assert set(moved) == set(study.CHANGES)
    assert all(set(owners) == {owner for owner, _ in material.held_out} for owners in moved.values())
    if arm == "sft":
        assert sum(moved["worked"].values()) > 0
    assert not any(value for owners in study.changes(plain, plain).values() for value in owners.values())
    recorded = tmp_path / "runs.jsonl"
    recorded.write_text("".join(json.dumps(one) + "\n" for one in (plain, found)))
    assert study.done(recorded, "tiny") == {("none", 0), (arm, 1)}
    assert any(line.startswith(f"| `{arm}` | 1 |") for line in study.tables(study.read(recorded), "tiny"))
    assert isinstance(material.train[0][1].prefix_ids, array)


def test_the_page_has_the_tables_of_the_recorded_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "results" / "real_model.md").read_text().splitlines()
    assert [line for line in study.tables(study.read(), "small") if line and line not in page] == []


def test_the_recorded_runs_are_of_one_study() -> None:
    runs = study.read()
    assert len({(run["arm"], run["seed"]) for run in runs}) == len(runs)
    assert len({(run["size"], run["train_sites"], tuple(owner for owner, *_ in run["sites"])) for run in runs}) <= 1
    assert {run["arm"] for run in runs} <= {"none", *study.ARMS}
