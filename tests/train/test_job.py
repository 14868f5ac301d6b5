"""Inside a job: whole checkpoints reach the mount and come back, torn ones do not, and the end is written down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from composer_hub.train.job import Mirror, minutes_left


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


def test_a_checkpoint_that_the_trainer_removed_goes_from_the_mount_when_a_newer_one_is_there(mirror: Mirror) -> None:
    checkpoint(mirror.work, 1)
    mirror.save_new()
    for path in (mirror.work / "checkpoint-1").iterdir():
        path.unlink()
    (mirror.work / "checkpoint-1").rmdir()
    checkpoint(mirror.work, 2)
    mirror.save_new()
    assert names(mirror.kept) == ["checkpoint-2/COMPLETE.json", "checkpoint-2/model.safetensors"]


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


def test_the_next_job_finds_everything_but_what_was_being_copied(mirror: Mirror, tmp_path: Path) -> None:
    checkpoint(mirror.work, 1)
    (mirror.work / "composer_run.json").write_text("{}")
    mirror.save()
    checkpoint(mirror.kept, 2, is_whole=False)  # the job was killed while it copied
    following = Mirror(tmp_path / "next", mirror.kept)
    following.restore()
    assert names(following.work) == [
        "checkpoint-1/COMPLETE.json",
        "checkpoint-1/model.safetensors",
        "composer_run.json",
    ]
    following.save()
    assert not (mirror.kept / "checkpoint-2").exists()


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
    env = os.environ | {
        "COMPOSER_JOB_FOLDER": str(tmp_path / "mount"),
        "COMPOSER_JOB_NUMBER": "7",
        "COMPOSER_JOB_SECONDS": "600",
        "PYTHONPATH": os.getcwd(),
    }
    (tmp_path / "mount").mkdir()
    command = [sys.executable, "-m", "composer_hub.train.job", sys.executable, str(script)]
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
