"""What runs inside a job: bring back what earlier jobs kept, train until the time is nearly over, keep what is whole.

In: the command to train with, and by environment the mounted folder of the run, the job's number and its seconds. Out:
on the mount `output/` (whole checkpoints, rollouts, the final model) and `exit/<number>.json`. Training writes to the
job's own disk, and whole files are copied from there: a mounted bucket takes a file from beginning to end, but may not
take one that is appended to, and an upload must not hold up a step.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from composer_hub.train.checkpoints import COMPLETE, last_complete, torn

POLL_SECONDS = 2.0
MAX_MARGIN_SECONDS = 900
"""Kept free at the end for loading the model, which no time budget counts, and for copying the last checkpoint."""
_OUTPUT, _EXIT = "output", "exit"

Signature = tuple[int, int]
"""Size and time of change."""


class Ended(Exception):
    """The job was told to end at once."""


class Mirror:
    """Keeps a copy of a run's folder on the mount: a checkpoint once it is complete, its `COMPLETE.json` last."""

    def __init__(self, work: Path, kept: Path) -> None:
        self.work, self.kept = work, kept
        self.copied: dict[str, Signature] = {}
        self.whole: set[str] = set()

    def restore(self) -> None:
        """Bring back what earlier jobs kept, without checkpoints that were being copied when one ended."""
        self.work.mkdir(parents=True, exist_ok=True)
        broken = torn(self.kept)
        for path in _files(self.kept):
            if not any(folder in path.parents for folder in broken):
                name = path.relative_to(self.kept).as_posix()
                _copy(path, self.work / name)
                self.copied[name] = _signature(self.work / name)
        self.whole = self._complete()

    def save_new(self) -> None:
        """Keep everything once there is a new complete checkpoint."""
        if self._complete() - self.whole:
            self.save()

    def save(self) -> None:
        """Keep everything that is whole."""
        whole = self._complete()
        # What a checkpoint counts on comes before it: rollouts that are there twice do no harm, missing ones do.
        files = [path for path in _files(self.work) if _checkpoint(self.work, path) in (None, *whole)]
        for path in sorted(files, key=lambda path: (_checkpoint(self.work, path) is not None, path.name == COMPLETE)):
            self._keep(path)
        for folder in self.kept.glob("checkpoint-*"):
            if folder.name not in whole:
                shutil.rmtree(folder, ignore_errors=True)
        self.whole = whole

    def _keep(self, path: Path) -> None:
        name = path.relative_to(self.work).as_posix()
        try:
            now = _signature(path)
            if self.copied.get(name) != now:
                _copy(path, self.kept / name)
                self.copied[name] = now
        except FileNotFoundError:
            return  # an old checkpoint that the trainer has just removed

    def _complete(self) -> set[str]:
        return {path.parent.name for path in self.work.glob(f"checkpoint-*/{COMPLETE}")}


def minutes_left(seconds: float, used: float) -> float:
    """Return how long training may go on in a job of so many seconds."""
    return max(0.0, seconds - used - min(MAX_MARGIN_SECONDS, 0.15 * seconds)) / 60


def run(command: Sequence[str], mount: Path, work: Path, *, number: int, seconds: float, started: float) -> int:
    """Train with a command in a folder of this machine and keep what it makes; return its exit code."""
    mirror = Mirror(work, mount / _OUTPUT)
    mirror.restore()
    minutes = minutes_left(seconds, time.time() - started)
    process = subprocess.Popen([*command, "--output_dir", str(work), "--max_minutes", f"{minutes:.2f}"])
    try:
        code = _watched(process, mirror)
    except Ended:
        process.terminate()
        code = 128 + signal.SIGTERM
    mirror.save()
    last = last_complete(work)
    facts = {"exit_code": code, "step": int(last.name.rpartition("-")[2]) if last else 0}
    record = mount / _EXIT / f"{number}.json"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(facts))
    print(f"job {number}: exit code {code}, kept up to step {facts['step']}", flush=True)
    return code


def _watched(process: subprocess.Popen[bytes], mirror: Mirror) -> int:
    while True:
        try:
            code = process.wait(POLL_SECONDS)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            pass
        try:
            mirror.save_new()
        except OSError as error:
            # The next round tries again, and the end of the job says so if it still does not work.
            print(f"job: the checkpoint could not be kept yet ({error}).", file=sys.stderr, flush=True)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _checkpoint(root: Path, path: Path) -> str | None:
    """Return the checkpoint that a file belongs to."""
    first = path.relative_to(root).parts[0]
    return first if first.startswith("checkpoint-") else None


def _signature(path: Path) -> Signature:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the job's environment and run the command of the line."""

    def end(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise Ended

    signal.signal(signal.SIGTERM, end)
    known = os.environ
    return run(
        list(sys.argv[1:] if argv is None else argv),
        Path(known["COMPOSER_JOB_FOLDER"]),
        Path("output").absolute(),
        number=int(known["COMPOSER_JOB_NUMBER"]),
        seconds=float(known["COMPOSER_JOB_SECONDS"]),
        started=float(known.get("COMPOSER_JOB_STARTED") or time.time()),
    )


if __name__ == "__main__":
    sys.exit(main())
