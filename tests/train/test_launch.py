"""`accelerate launch` itself, with one and two processes and both added channels, taken away in the middle."""

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
SCRIPT = [sys.executable, "-m", "accelerate.commands.launch"]
COMMAND = [sys.executable, "-m", "composer_hub", "train"]


def launched(program: list[str], words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*program, *words],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's group, which Ctrl-C reaches as a whole
    )


def endless(world: Any, shelf: Path, name: str, num_processes: int) -> list[str]:
    repos = ["--repo", f"me/{name}", "--rollouts_repo", f"me/{name}-rollouts"]
    words = arguments(world, shelf, name, "--save_steps", "10000", "--max_steps", "10000", *repos)
    return words + (["--ddp_backend", "gloo", "--per_device_train_batch_size", "2"] if num_processes == 2 else [])


def begun(process: subprocess.Popen[str], folder: Path, num_processes: int) -> None:
    until = time.monotonic() + 600
    last = f"rollouts/rank{num_processes - 1:03}*"
    while not list(folder.glob(last)) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)


def config_in(shelf: Path) -> str:
    (shelf / "seed.yaml").write_text("seed: 3\n")
    return str(shelf / "seed.yaml")


def codes_of(folder: Path) -> list[int]:
    return [launch["exit_code"] for launch in json.loads((folder / "composer_run.json").read_text())["launches"]]


@pytest.mark.slow
def test_two_processes_resume_from_the_checkpoint_that_sigterm_left(shelf: Path, world: Any) -> None:
    folder = shelf / "runs" / "launched"
    words = endless(world, shelf, folder.name, 2)
    process = launched([*COMMAND, "--accelerate", TWO, config_in(shelf)], words)
    try:
        begun(process, folder, 2)
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=600)[1]  # a rank that waited for the other would wait forever
    finally:
        process.kill()
    assert "SIGTERM ended the run at step" in said, said[-3000:]
    assert "Traceback" not in said
    assert process.returncode == exits.STOPPED
    checkpoint = last_complete(folder)
    assert checkpoint is not None
    assert len(list(checkpoint.glob("composer_generated_*.pt"))) == 2

    program = [*SCRIPT, *TWO.split(), "scripts/train.py"]
    process = launched(program, [*words, "--resume", "true", "--max_steps", str(step_of(checkpoint) + 1)])
    try:
        said = process.communicate(timeout=600)[1]
    finally:
        process.kill()
    assert process.returncode == 0, said[-3000:]
    launches = json.loads((folder / "composer_run.json").read_text())["launches"]
    assert [launch["exit_code"] for launch in launches] == [exits.STOPPED, exits.DONE]
    assert [launch["num_processes"] for launch in launches] == [2, 2]
    assert launches[1]["from_step"] == launches[0]["to_step"]


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 2])
def test_ctrl_c_saves_the_step_and_prints_no_traceback(shelf: Path, world: Any, num_processes: int) -> None:
    folder = shelf / "runs" / f"interrupted_{num_processes}"
    program = [*COMMAND, *(["--accelerate", TWO] if num_processes == 2 else []), config_in(shelf)]
    process = launched(program, endless(world, shelf, folder.name, num_processes))
    try:
        begun(process, folder, num_processes)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=600)[1]
    finally:
        process.kill()
    assert "Ctrl-C ended the run at step" in said, said[-3000:]
    assert "Traceback" not in said
    assert process.returncode == exits.INTERRUPTED
    assert last_complete(folder) is not None
    assert codes_of(folder) == [exits.INTERRUPTED]


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [1, 2])
def test_ctrl_c_saves_the_step_under_accelerate_itself(shelf: Path, world: Any, num_processes: int) -> None:
    # The terminal ends accelerate as well, which prints its own traceback; with one process it does not even wait.
    folder = shelf / "runs" / f"raw_{num_processes}"
    program = [*SCRIPT, *(TWO.split() if num_processes == 2 else []), "scripts/train.py"]
    process = launched(program, endless(world, shelf, folder.name, num_processes))
    try:
        begun(process, folder, num_processes)
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=600)[1]  # until training has closed the pipe, too
    finally:
        process.kill()
    assert "Ctrl-C ended the run at step" in said, said[-3000:]
    assert last_complete(folder) is not None
    assert codes_of(folder) == [exits.INTERRUPTED]
