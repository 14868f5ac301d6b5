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

ROOT = Path(__file__).parents[2]


def test_a_rank_without_sites_does_not_stop_the_other(world: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = [str(ROOT / "tests/train/two_ranks.py"), str(cache_folder()), str(tmp_path)]
    done = subprocess.run(
        command + script,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=180,  # about 30 s on two idle cores; a rank that waits would wait for ever
    )
    assert done.returncode == 0, done.stderr[-3000:]
    live, fixed = (json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"sums"'))
    for found in (live, fixed):
        assert found["sums"][0] == found["sums"][1]
        assert found["sites"] > 0
