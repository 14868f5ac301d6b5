"""Two ranks: one may find nothing to learn from, groups span both, weights may be sharded. Nobody waits for ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from tests.train.offline_ranks import trained

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def parts(world: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the two processes said, by part."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = [str(ROOT / "tests/train/two_ranks.py"), str(tmp_path_factory.mktemp("ranks"))]
    done = subprocess.run(
        command + script,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,  # about 30 s on two idle cores; a rank that waits would wait for ever
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"part"')]
    return {row["part"]: row for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["live", "fixed"])
def test_a_rank_without_sites_does_not_stop_the_other(parts: dict[str, Any], teacher: str) -> None:
    found = parts[teacher]
    assert found["sums"][0] == found["sums"][1]
    assert found["sites"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["live", "fixed"])
def test_both_ranks_log_the_same(parts: dict[str, Any], teacher: str) -> None:
    found = parts[teacher]
    assert found["same_names"]
    assert {"channel/hint/uplift/quoted", "channel/hint/grad_share"} <= set(found["metrics"])


@pytest.mark.slow
def test_looking_does_not_change_the_weights_of_two_ranks(parts: dict[str, Any]) -> None:
    assert "channel/hint/grad_share" not in parts["quiet"]["metrics"]
    assert parts["quiet"]["sums"] == parts["fixed"]["sums"]


@pytest.mark.slow
def test_the_best_sibling_is_found_on_the_other_rank(parts: dict[str, Any]) -> None:
    assert parts["groups"]["right"]


@pytest.mark.slow
def test_a_watch_dog_stops_all_ranks_or_none(parts: dict[str, Any]) -> None:
    assert parts["dogs"]["stops"] == [True, True]


@pytest.mark.slow
def test_sharded_weights_are_refused_on_every_rank_with_each_term(parts: dict[str, Any]) -> None:
    first, second = parts["sharded"]["said"]
    assert first == second
    assert len(first) == 2
    assert all("a model of sharded weights does not allow" in said for said in first)


@pytest.mark.slow
def test_two_ranks_learn_from_recorded_rows_what_one_would(parts: dict[str, Any], world: Any, tmp_path: Path) -> None:
    alone, row = trained(world, tmp_path, batch=4)
    assert parts["offline"]["sums"] == pytest.approx([alone.item()] * 2, rel=1e-6)
    assert parts["offline"]["sums"][0] == parts["offline"]["sums"][1]
    assert parts["offline"]["left_out"] == row["channel/hint_traces/left_out"]


@pytest.mark.slow
def test_a_rank_whose_recorded_hints_are_refused_does_not_stop_the_other(parts: dict[str, Any]) -> None:
    assert parts["idle"]["sums"][0] == parts["idle"]["sums"][1]
    # All of one rank's, and those of the other as before.
    assert parts["idle"]["left_out"] == (parts["offline"]["left_out"] + 1.0) / 2
