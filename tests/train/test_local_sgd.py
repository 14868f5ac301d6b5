"""Ranks that exchange their weights every few steps instead of their gradients at each."""

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

from composer_hub.train.apart.local_sgd import LocalSGD  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.run.trainer import RunTrainer  # noqa: E402
from tests.train.runs import steps_of, trainer_of  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what two ranks found."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(ROOT / "tests/train/apart_ranks.py"), str(tmp_path_factory.mktemp("apart"))],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,  # a rank that waits would wait forever
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith('{"moved"')]
    return json.loads(line)


@pytest.mark.slow
def test_one_step_of_sgd_with_an_outer_rate_of_1_is_ddp(found: dict[str, Any]) -> None:
    assert found["each from ddp"] <= 1e-5 < 1e-3 < found["moved"]


@pytest.mark.slow
def test_ranks_part_in_a_round_and_are_the_same_bits_after_it(found: dict[str, Any]) -> None:
    assert found["ranks in a round"] > 1e-5
    assert found["ranks at the end"] == 0.0


@pytest.mark.slow
def test_a_run_resumed_in_the_middle_of_a_round_ends_with_the_same_bits(found: dict[str, Any]) -> None:
    assert found["resumed"] == [0.0, 0.0]


@pytest.mark.slow
def test_every_exchange_logs_its_bytes_and_how_far_the_ranks_were_apart(found: dict[str, Any]) -> None:
    assert found["steps"] == [2, 4]
    assert found["everyone"][0] == [2, 4]
    assert found["bytes"] == [found["num_bytes"]] * 2
    assert all(spread > 0 for spread in found["spread"])


@pytest.mark.slow
def test_two_ranks_are_one_worker_of_a_federation_and_both_say_why_it_refuses_them(found: dict[str, Any]) -> None:
    assert found["ends"] == [found["shared"]] * 2
    assert all("num_rounds is 2, here 3" in said for said in found["said"])


def test_one_process_takes_the_outer_step_alone(world: Any, tmp_path: Path) -> None:
    trainer = trainer_of(world, tmp_path, RunTrainer, alpha_sdpo=0.5, max_steps=2)
    outer = LocalSGD(trainer, every=2, lr=0.0)
    trainer.add_callback(outer)
    steps_of(trainer)
    # With a rate of 0 nothing is left of the inner steps.
    for before, after in zip(world[0].parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(before, after)
    assert any(value.abs().max() > 0 for value in outer.velocity.values())


def test_what_ranks_share_is_refused(world: Any, tmp_path: Path) -> None:
    trainer = trainer_of(world, tmp_path, RunTrainer)
    trainer.args.use_vllm, trainer.args.vllm_mode = True, "server"
    with pytest.raises(TrainerError, match="share one vLLM"):
        LocalSGD(trainer, every=2)
    trainer.sharding = "FSDP2"
    with pytest.raises(TrainerError, match="sharded"):
        LocalSGD(trainer, every=2)


def test_a_checkpoint_without_the_state_of_a_rank_is_refused(world: Any, tmp_path: Path) -> None:
    outer = LocalSGD(trainer_of(world, tmp_path, RunTrainer), every=2)
    with pytest.raises(TrainerError, match=r"composer_apart_0\.pt is missing"):
        outer.load(tmp_path)
