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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.train.checkpoints import COMPLETE, last_complete, step_of

POLL_SECONDS = 2.0
MAX_MARGIN_SECONDS = 900
"""Kept free at the end for loading the model, which no time budget counts, and for copying the last checkpoint."""
_OUTPUT, _EXIT = "output", "exit"
_CODES = "COMPOSER_JOB_CODES"
_NOT_FOUND, _TERMINATED = 127, 128 + signal.SIGTERM
"""What a shell says of a program that is not there, and of one that was told to end."""

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
        """Bring back what earlier jobs kept; of the checkpoints only the newest, so that training starts soon."""
        self.work.mkdir(parents=True, exist_ok=True)
        newest = last_complete(self.kept)
        for path in _files(self.kept):
            if _checkpoint(self.kept, path) in (None, newest.name if newest else None):
                name = path.relative_to(self.kept).as_posix()
                _copy(path, self.work / name)
                self.copied[name] = _signature(self.work / name)
        self.whole = self._complete()

    def save_new(self) -> None:
        """Keep everything once there is a new complete checkpoint."""
        if self._complete() - self.whole:
            self.save()

    def save(self) -> None:
        """Keep everything that is whole, and let go of what the trainer has let go of."""
        whole = self._complete()
        files = [path for path in _files(self.work) if _checkpoint(self.work, path) in (None, *whole)]
        for path in sorted(files, key=self._turn):
            self._keep(path)
        there = {path.relative_to(self.work).as_posix() for path in files}
        for path in _files(self.kept):
            if path.relative_to(self.kept).as_posix() not in there and not self._is_spare(path, whole):
                path.unlink(missing_ok=True)
        self.whole = whole

    def _turn(self, path: Path) -> tuple[bool, bool]:
        """Sort what a checkpoint counts on before it (rollouts that are there twice do no harm), and its mark last."""
        return _checkpoint(self.work, path) is not None, path.name in (COMPLETE, "best.json")

    def _is_spare(self, path: Path, whole: set[str]) -> bool:
        """Tell whether a file is of an older checkpoint that may still be needed: while there is one newer at most."""
        name = _checkpoint(self.kept, path)
        return name is not None and len(whole) < 2 and (self.kept / name / COMPLETE).is_file()

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
    codes = work.with_name(f"{work.name}-codes")
    codes.mkdir()
    try:
        process = subprocess.Popen(
            [*command, "--output_dir", str(work), "--max_minutes", f"{minutes:.2f}"],
            env=os.environ | {_CODES: str(codes)},
        )
    except OSError as error:
        print(f"job {number}: {command[0]} cannot be run ({error.strerror}). Is it in the image?", flush=True)
        return _NOT_FOUND
    try:
        code = _watched(process, mirror)
        code = code and own_code(codes, code)
    except Ended:
        process.terminate()
        code = _TERMINATED
    facts = {"exit_code": code, "step": step_of(last_complete(work))}
    try:
        mirror.save()
        record = mount / _EXIT / f"{number}.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(facts))
    except OSError as error:
        print(f"job {number}: exit code {code}; what came last could not be kept ({error}).", flush=True)
    else:
        print(f"job {number}: exit code {code}, kept up to step {facts['step']}", flush=True)
    return code


def noted(main: Callable[[], int]) -> int:
    """Run the training program and write down its exit code for the job: a launcher turns every code into 1."""
    code: Any = 1
    try:
        code = main()
    except SystemExit as error:
        code = error.code
        raise
    finally:
        if folder := os.environ.get(_CODES):
            (Path(folder) / os.environ.get("RANK", "0")).write_text(str(code if isinstance(code, int) else 1))
    return code


def own_code(codes: Path, otherwise: int) -> int:
    """Return the exit code that the ranks wrote down; one that failed counts more than those it stopped."""
    said = {int(path.read_text() or otherwise) for path in codes.iterdir()}
    failed = said - {exits.DONE, exits.STOPPED}
    return max(failed or said or {otherwise})


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
    """Return the files below a folder; hidden ones are being written."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


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
    try:
        return run(
            list(sys.argv[1:] if argv is None else argv),
            Path(known["COMPOSER_JOB_FOLDER"]),
            Path("output").absolute(),
            number=int(known["COMPOSER_JOB_NUMBER"]),
            seconds=float(known["COMPOSER_JOB_SECONDS"]),
            started=float(known.get("COMPOSER_JOB_STARTED") or time.time()),
        )
    except Ended:
        return _TERMINATED  # while files were copied: what was copied to its end is kept


if __name__ == "__main__":
    sys.exit(main())
