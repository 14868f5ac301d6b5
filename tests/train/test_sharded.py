"""FSDP2 on two CPU ranks learns what one process with whole weights learns. `benchmarks.sharded` runs all cases."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.checks import check_shards  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.sharded import generates_together  # noqa: E402
from tests.train.sharded_ranks import FSDP2, MATRIX, PARTS, reference  # noqa: E402

ROOT = Path(__file__).parents[2]
COMPARED = ("full tied fixed measured own", "lora untied fixed resumed", "full tied fixed muon resumed")


@pytest.fixture(scope="module")
def cases(world: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what two ranks found, by case."""
    folder = tmp_path_factory.mktemp("sharded")
    for case in COMPARED:
        reference(world, case, folder)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = [str(ROOT / "tests/train/sharded_ranks.py"), str(folder)]
    done = subprocess.run(
        [*command, *script, *COMPARED, "bits", "generated"],
        cwd=ROOT,
        env=os.environ | FSDP2 | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,  # a rank that waits would wait forever
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    return {row["case"]: row for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("case", COMPARED)
def test_two_ranks_that_share_the_weights_learn_what_one_process_learns(cases: dict[str, Any], case: str) -> None:
    found = cases[case]
    # Muon's polynomial is steep at 0, where it enlarges what rounding left.
    assert found["worst"] <= (1e-4 if "muon" in case else 1e-6) < 1e-3 < found["moved"]
    assert found["num_sharded"] == found["num_parameters"] > 0
    assert found["sites"] > 0
    assert found["replay"] > 0


@pytest.mark.slow
def test_without_channels_sharded_steps_are_those_of_grpo_to_the_last_bit(cases: dict[str, Any]) -> None:
    assert cases["bits"]["worst"] == 0.0


@pytest.mark.slow
def test_a_rank_without_tool_calls_generates_along_with_the_other(cases: dict[str, Any]) -> None:
    first, second = cases["generated"]["rounds"]
    assert first > second == 0
    assert cases["generated"]["step"] == 1


def test_fsdp_that_left_the_parameters_whole_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    network = torch.nn.Linear(2, 2)
    check_shards(network, is_fsdp=False, num_processes=2)
    with pytest.raises(TrainerError, match="not sharded"):
        check_shards(network, is_fsdp=True, num_processes=2)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")  # accelerate forgets about it on a CPU
    with pytest.raises(TrainerError, match="not sharded"):
        check_shards(network, is_fsdp=False, num_processes=2)
    check_shards(network, is_fsdp=False, num_processes=1)


@pytest.mark.parametrize(
    ("options", "together"),
    [
        ({}, False),
        ({"use_vllm": True, "vllm_mode": "server"}, True),
        ({"use_vllm": True, "vllm_mode": "colocate"}, False),
        ({"use_vllm": True, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 2}, True),
    ],
)
def test_ranks_generate_together_if_they_share_a_server(options: dict[str, Any], together: bool) -> None:
    args = type("Args", (), {"use_vllm": False, "vllm_mode": "colocate", "vllm_tensor_parallel_size": 1} | options)
    assert generates_together(args, "") is together
    assert generates_together(args, "FSDP2")


def test_the_matrix_runs_every_part() -> None:
    assert {part for case in MATRIX for part in case.split()} == set(PARTS)
