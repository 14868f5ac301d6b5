"""Inside a job: whole checkpoints reach the mount and come back, torn ones do not, and the end is written down."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.jobs.inside import Mirror, minutes_left, own_code


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    mirror = Mirror(tmp_path / "work", tmp_path / "kept")
    mirror.restore()
    return mirror


def checkpoint(folder: Path, step: int, *, is_whole: bool = True) -> None:
    place = folder / f"checkpoint-{step}"
    place.mkdir(parents=True)
    (place / "model.safetensors").write_text(f"weights of {step}")
    if is_whole:
        (place / "COMPLETE.json").write_text("{}")


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def wholes(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("checkpoint-*/COMPLETE.json"))


def test_only_whole_checkpoints_are_kept(mirror: Mirror) -> None:
    checkpoint(mirror.work, 1)
    checkpoint(mirror.work, 2, is_whole=False)
    (mirror.work / "composer_run.json").write_text("{}")
    mirror.save_new()
    assert names(mirror.kept) == ["checkpoint-1/COMPLETE.json", "checkpoint-1/model.safetensors", "composer_run.json"]


def test_nothing_is_copied_before_there_is_a_new_checkpoint(mirror: Mirror) -> None:
    (mirror.work / "rollouts").mkdir()
    (mirror.work / "rollouts" / "rank000-00000.jsonl").write_text("{}\n")
    mirror.save_new()
    assert names(mirror.kept) == []
    checkpoint(mirror.work, 1)
    mirror.save_new()
    assert "rollouts/rank000-00000.jsonl" in names(mirror.kept)


def test_what_the_trainer_let_go_of_goes_from_the_mount_when_two_newer_ones_are_there(mirror: Mirror) -> None:
    checkpoint(mirror.work, 1)
    mirror.save_new()
    shutil.rmtree(mirror.work / "checkpoint-1")
    checkpoint(mirror.work, 2)
    mirror.save_new()
    assert wholes(mirror.kept) == ["checkpoint-1", "checkpoint-2"]
    checkpoint(mirror.work, 3)
    mirror.save_new()
    assert wholes(mirror.kept) == ["checkpoint-2", "checkpoint-3"]


def test_a_file_that_grew_is_written_anew_from_its_beginning(mirror: Mirror) -> None:
    # A mounted bucket takes whole files: what was there is never appended to.
    log = mirror.work / "log.jsonl"
    log.write_text("one\n")
    mirror.save()
    before = (mirror.kept / "log.jsonl").stat().st_ino
    log.write_text("one\ntwo\n")
    mirror.save()
    assert (mirror.kept / "log.jsonl").read_text() == "one\ntwo\n"
    assert (mirror.kept / "log.jsonl").stat().st_ino == before


def test_what_did_not_change_is_not_copied_again(mirror: Mirror) -> None:
    checkpoint(mirror.work, 1)
    mirror.save()
    (mirror.kept / "checkpoint-1" / "model.safetensors").unlink()
    mirror.save()
    assert names(mirror.kept) == ["checkpoint-1/COMPLETE.json"]


def test_the_next_job_finds_the_newest_whole_checkpoint_and_the_older_ones_stay_in_reserve(
    mirror: Mirror, tmp_path: Path
) -> None:
    for step in (1, 2):
        checkpoint(mirror.work, step)
    (mirror.work / "composer_run.json").write_text("{}")
    mirror.save()
    checkpoint(mirror.kept, 3, is_whole=False)  # the job was killed while it copied
    following = Mirror(tmp_path / "next", mirror.kept)
    following.restore()
    assert names(following.work) == [
        "checkpoint-2/COMPLETE.json",
        "checkpoint-2/model.safetensors",
        "composer_run.json",
    ]
    following.save()
    assert names(mirror.kept) == [
        "checkpoint-1/COMPLETE.json",
        "checkpoint-1/model.safetensors",
        "checkpoint-2/COMPLETE.json",
        "checkpoint-2/model.safetensors",
        "composer_run.json",
    ]


def test_a_folder_that_was_replaced_by_another_is_replaced_on_the_mount(mirror: Mirror) -> None:
    (mirror.work / "best").mkdir()
    (mirror.work / "best" / "old.safetensors").write_text("old")
    (mirror.work / ".best-fresh").mkdir()
    (mirror.work / ".best-fresh" / "half").write_text("half")
    mirror.save()
    (mirror.work / "best" / "old.safetensors").rename(mirror.work / "best" / "new.safetensors")
    mirror.save()
    assert names(mirror.kept) == ["best/new.safetensors"]


@pytest.mark.parametrize(
    ("seconds", "used", "minutes"),
    [(21600, 600, 335.0), (1200, 60, 16.0), (60, 60, 0.0), (60, 300, 0.0)],
    ids=["six hours", "twenty minutes", "no time", "late"],
)
def test_training_leaves_time_to_save(seconds: float, used: float, minutes: float) -> None:
    assert minutes_left(seconds, used) == pytest.approx(minutes)


def job(tmp_path: Path, code: str) -> subprocess.Popen[str]:
    """Start the program that runs inside a job, with a trainer of these lines."""
    script = tmp_path / "trainer.py"
    script.write_text("import sys, time\nfrom pathlib import Path\nout = Path(sys.argv[2])\n" + code)
    return job_of(tmp_path, sys.executable, str(script))


def job_of(tmp_path: Path, *trainer: str) -> subprocess.Popen[str]:
    env = os.environ | {
        "COMPOSER_JOB_FOLDER": str(tmp_path / "mount"),
        "COMPOSER_JOB_NUMBER": "7",
        "COMPOSER_JOB_SECONDS": "600",
        "PYTHONPATH": os.getcwd(),
    }
    (tmp_path / "mount").mkdir()
    command = [sys.executable, "-m", "composer_hub.jobs.inside", *trainer]
    return subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True)


def record(tmp_path: Path) -> dict[str, int]:
    return json.loads((tmp_path / "mount" / "exit" / "7.json").read_text())


SAVE = "(out / 'checkpoint-5').mkdir()\n(out / 'checkpoint-5' / 'COMPLETE.json').write_text('{}')\n"


def test_the_exit_code_and_the_step_are_written_down_and_passed_on(tmp_path: Path) -> None:
    with job(tmp_path, SAVE + "sys.exit(3)") as process:
        assert process.wait(60) == 3
    assert record(tmp_path) == {"exit_code": 3, "step": 5}


def test_a_job_that_is_told_to_end_keeps_what_is_whole(tmp_path: Path) -> None:
    with job(tmp_path, SAVE + "print('ready', flush=True)\ntime.sleep(300)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert record(tmp_path) == {"exit_code": 143, "step": 5}
    assert (tmp_path / "mount" / "output" / "checkpoint-5" / "COMPLETE.json").is_file()


def test_the_trainers_own_exit_code_comes_through_a_launcher_that_turns_every_code_into_one(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    launch = (sys.executable, "-m", "accelerate.commands.launch", "--quiet", "-m", "composer_hub.jobs")
    with job_of(tmp_path, *launch, "--config", "no-such-file.yaml") as process:
        assert process.wait(120) == exits.USAGE
    assert record(tmp_path) == {"exit_code": exits.USAGE, "step": 0}


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 1), ([3, 3], 3), ([3, 4], 4), ([0, 1], 1), ([2], 2)],
    ids=["nobody said", "all stopped", "one refused", "one failed", "alone"],
)
def test_of_several_ranks_the_one_that_failed_is_believed(tmp_path: Path, codes: list[int], expected: int) -> None:
    for rank, code in enumerate(codes):
        (tmp_path / str(rank)).write_text(str(code))
    assert own_code(tmp_path, 1) == expected
