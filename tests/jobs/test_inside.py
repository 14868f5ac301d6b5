"""Inside a job: complete checkpoints reach the bucket and come back, torn ones do not, and exit codes are recorded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from composer_hub import exits
from composer_hub.hub import HubDestination
from composer_hub.jobs.inside import minutes_left, restore, save
from composer_hub.jobs.runs import list_files, read_files
from composer_hub.local_hub.server import ServerProcess

SAVE = "(out / 'checkpoint-5').mkdir()\n(out / 'checkpoint-5' / 'COMPLETE.json').write_text('{}')\n"


@pytest.fixture
def where(hub_server: ServerProcess) -> HubDestination:
    return HubDestination("local", HfApi(endpoint=hub_server.endpoint, token="hf_test_me"))


@pytest.fixture
def bucket(where: HubDestination, hub_repo: Callable[[str], str]) -> str:
    name = hub_repo("job")
    where.api.create_bucket(name, private=True)
    return name


def checkpoint(work: Path, step: int, *, complete: bool = True) -> None:
    folder = work / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "weights").write_text(f"weights of {step}")
    if complete:
        (folder / "COMPLETE.json").write_text("{}")


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_bucket_holds_complete_checkpoints_and_the_next_job_continues_from_them(
    where: HubDestination, bucket: str, tmp_path: Path
) -> None:
    work, kept = tmp_path / "work", f"hf://buckets/{bucket}/output"
    restore(where.api, kept, work)
    checkpoint(work, 1)
    checkpoint(work, 2, complete=False)
    (work / "log.jsonl").write_text("one\n")
    (work / ".best-fresh").mkdir()
    (work / ".best-fresh" / "half").write_text("half")
    save(where.api, work, kept)
    saved = {"output/checkpoint-1/COMPLETE.json", "output/checkpoint-1/weights", "output/log.jsonl"}
    assert set(list_files(where, bucket)) == saved

    (work / "checkpoint-2" / "COMPLETE.json").write_text("{}")
    shutil.rmtree(work / "checkpoint-1")
    (work / "log.jsonl").write_text("one\ntwo\n")
    save(where.api, work, kept)
    # A job that is killed during an upload leaves a checkpoint without its mark.
    where.api.batch_bucket_files(bucket, add=[(b"half", "output/checkpoint-3/weights")])

    after = tmp_path / "next"
    restore(where.api, kept, after)
    assert names(after) == ["checkpoint-2/COMPLETE.json", "checkpoint-2/weights", "log.jsonl"]
    assert (after / "log.jsonl").read_text() == "one\ntwo\n"
    save(where.api, after, kept)
    assert set(list_files(where, bucket)) == {f"output/{name}" for name in names(after)}


@pytest.mark.parametrize(
    ("seconds", "used", "minutes"),
    [(21600, 600, 335.0), (1200, 60, 16.0), (60, 60, 0.0), (60, 300, 0.0)],
    ids=["six hours", "twenty minutes", "no time", "late"],
)
def test_training_leaves_time_to_save(seconds: float, used: float, minutes: float) -> None:
    assert minutes_left(seconds, used) == pytest.approx(minutes)


def job(where: HubDestination, bucket: str, folder: Path, *trainer: str) -> subprocess.Popen[str]:
    """Start the program that runs inside a job."""
    env = os.environ | {
        "COMPOSER_JOB_BUCKET": bucket, "COMPOSER_JOB_NUMBER": "7", "COMPOSER_JOB_SECONDS": "600",
        "HF_ENDPOINT": where.api.endpoint, "HF_TOKEN": "hf_test_me", "PYTHONPATH": os.getcwd(),
    }  # fmt: skip
    command = [sys.executable, "-m", "composer_hub.jobs.inside", *trainer]
    return subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True)


def recorded_code(where: HubDestination, bucket: str) -> int:
    return json.loads(read_files(where, bucket, ["exit/7.json"])["exit/7.json"])["exit_code"]


def test_a_terminated_job_keeps_its_complete_checkpoints(where: HubDestination, bucket: str, tmp_path: Path) -> None:
    script = "import sys, time\nfrom pathlib import Path\nout = Path(sys.argv[2])\n" + SAVE
    (tmp_path / "trainer.py").write_text(script + "print('ready', flush=True)\ntime.sleep(300)")
    with job(where, bucket, tmp_path, sys.executable, "trainer.py") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 128 + signal.SIGTERM
    assert recorded_code(where, bucket) == 143
    assert "output/checkpoint-5/COMPLETE.json" in list_files(where, bucket)


def test_the_exit_code_of_training_passes_a_launcher_that_turns_every_code_into_one(
    where: HubDestination, bucket: str, tmp_path: Path
) -> None:
    pytest.importorskip("trl")
    launch = (sys.executable, "-m", "accelerate.commands.launch", "--quiet", "-m", "composer_hub.train")
    with job(where, bucket, tmp_path, *launch, "--config", "no-such-file.yaml") as process:
        assert process.wait(600) == exits.USAGE
    assert recorded_code(where, bucket) == exits.USAGE


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 1), ([3, 3], 3), ([3, 4], 4), ([0, 1], 1), ([2], 2)],
    ids=["none recorded", "all stopped", "one refused", "one failed", "alone"],
)
def test_of_several_ranks_the_failed_one_counts(tmp_path: Path, codes: list[int], expected: int) -> None:
    path = tmp_path / "codes"
    path.write_text("".join(f"{code}\n" for code in codes))
    assert exits.own_code(path, 1) == expected
    assert exits.own_code(tmp_path / "none", 1) == exits.noted(lambda: 1)
