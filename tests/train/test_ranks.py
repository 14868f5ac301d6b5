"""Two ranks, one of which finds nothing to learn from: nobody waits, and both end with the same weights."""

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

from tests.train.conftest import cache_folder
from tests.train.offline_ranks import trained

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def printed(world: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What rank 0 of two printed: two live runs and two on recorded rows."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = [str(ROOT / "tests/train/two_ranks.py"), str(cache_folder()), str(tmp_path_factory.mktemp("ranks"))]
    done = subprocess.run(
        command + script,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=180,  # about 30 s on two idle cores; a rank that waits would wait for ever
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"sums"')]


def test_a_rank_without_sites_does_not_stop_the_other(printed: list[dict[str, Any]]) -> None:
    for found in printed[:2]:
        assert found["sums"][0] == found["sums"][1]
        assert found["sites"] > 0


def test_two_ranks_learn_from_recorded_rows_what_one_would(
    printed: list[dict[str, Any]], world: Any, tmp_path: Path
) -> None:
    even = printed[2]
    alone, row = trained(world, tmp_path, batch=4)
    assert even["sums"] == pytest.approx([alone.item()] * 2, rel=1e-6)
    assert even["sums"][0] == even["sums"][1]
    assert even["left_out"] == row["channel/hint_traces/left_out"]


def test_a_rank_whose_recorded_hints_do_nothing_does_not_stop_the_other(printed: list[dict[str, Any]]) -> None:
    even, silent = printed[2:]
    assert silent["sums"][0] == silent["sums"][1]
    assert silent["left_out"] == (even["left_out"] + 1.0) / 2  # all of one rank's, and those of the other as before
