"""`accelerate launch` itself, with two processes and both added channels, taken away in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import exits
from composer_hub.train.checkpoints import last_complete, step_of
from tests.train.tiny_run import arguments

ROOT = Path(__file__).parents[2]
TWO = "--multi_gpu --num_processes 2"
SCRIPT = [sys.executable, "-m", "accelerate.commands.launch", *TWO.split(), "scripts/train.py"]
COMMAND = [sys.executable, "-m", "composer_hub", "train", "--accelerate", TWO]


def launched(program: list[str], words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*program, *words, "--ddp_backend", "gloo", "--per_device_train_batch_size", "2"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_resume_from_the_checkpoint_that_sigterm_to_the_launcher_left(shelf: Path, world: Any) -> None:
    folder = shelf / "runs" / "launched"
    words = arguments(
        world,
        shelf,
        folder.name,
        "--save_steps",
        "10000",
        "--repo",
        "me/launched",
        "--rollouts_repo",
        "me/launched-rollouts",
    )
    config = shelf / "seed.yaml"
    config.write_text("seed: 3\n")
    process = launched([*COMMAND, str(config)], [*words, "--max_steps", "10000"])
    try:
        until = time.monotonic() + 120
        while not list(folder.glob("rollouts/rank001*")) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]  # a rank that waited for the other would wait for ever
    finally:
        process.kill()
    assert "SIGTERM ended the run at step" in said, said[-3000:]
    assert process.returncode == exits.STOPPED
    checkpoint = last_complete(folder)
    assert checkpoint is not None
    assert len(list(checkpoint.glob("composer_generated_*.pt"))) == 2

    process = launched(SCRIPT, [*words, "--resume", "true", "--max_steps", str(step_of(checkpoint) + 1)])
    try:
        said = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    assert process.returncode == 0, said[-3000:]
    launches = json.loads((folder / "composer_run.json").read_text())["launches"]
    assert [launch["exit_code"] for launch in launches] == [exits.STOPPED, exits.DONE]
    assert [launch["num_processes"] for launch in launches] == [2, 2]
    assert launches[1]["from_step"] == launches[0]["to_step"]
