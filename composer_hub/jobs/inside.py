"""The program inside a job: restore checkpoints, train until the time is nearly over, keep complete checkpoints.

In: the training command, and from the environment the bucket of the run, the number of the job and its seconds. Out, in
the bucket: `output/` (complete checkpoints, rollouts, the final model) and `exit/<number>.json`. Training writes to the
disk of the job, and a sync copies from there, so that an upload never holds up a step.
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

from huggingface_hub import HfApi
from huggingface_hub.utils import httpx

from composer_hub import exits
from composer_hub.train.checkpoints import COMPLETE, last_complete, step_of

POLL_SECONDS = 2.0
MAX_MARGIN_SECONDS = 900
"""Reserved at the end, to load the model (which no time budget includes) and to copy the last checkpoint."""
_TERMINATED = 128 + signal.SIGTERM
_SYNC_ERRORS = (OSError, httpx.HTTPError)


class JobTerminated(Exception):
    """The job received SIGTERM."""


def restore(api: HfApi, kept: str, work: Path) -> None:
    """Bring back what earlier jobs kept, except for checkpoints that an end interrupted."""
    work.mkdir(parents=True, exist_ok=True)
    api.sync_bucket(kept, str(work), quiet=True)
    for name in _checkpoints(work, complete=False):
        shutil.rmtree(work / name)


def save(api: HfApi, work: Path, kept: str) -> None:
    """Make the bucket equal to the folder, without unfinished checkpoints and hidden files; completion marks last."""
    skipped = [".*", "*/.*", *(f"{name}/*" for name in _checkpoints(work, complete=False))]
    api.sync_bucket(str(work), kept, exclude=[*skipped, f"*/{COMPLETE}"], quiet=True)
    api.sync_bucket(str(work), kept, exclude=skipped, delete=True, quiet=True)


def _checkpoints(work: Path, *, complete: bool) -> set[str]:
    return {path.name for path in work.glob("checkpoint-*") if (path / COMPLETE).is_file() == complete}


def minutes_left(seconds: float, used: float) -> float:
    """Return how long training may run in a job of this many seconds."""
    return max(0.0, seconds - used - min(MAX_MARGIN_SECONDS, 0.15 * seconds)) / 60


def run(command: Sequence[str], bucket: str, work: Path, *, number: int, seconds: float, started: float) -> int:
    """Train with a command in a local folder and keep its results in the bucket; return its exit code."""
    api, kept = HfApi(), f"hf://buckets/{bucket}/output"
    restore(api, kept, work)
    minutes = minutes_left(seconds, time.time() - started)
    codes = work.with_name(f"{work.name}-codes")
    words = [*command, "--output_dir", str(work), "--max_minutes", f"{minutes:.2f}"]
    process = subprocess.Popen(words, env=os.environ | {exits.CODES_FILE: str(codes)})
    try:
        code = _watch(process, lambda: save(api, work, kept), work)
        code = code and exits.own_code(codes, code)
    except JobTerminated:
        process.terminate()
        code = _TERMINATED
    step = step_of(last_complete(work))
    try:
        save(api, work, kept)
        api.batch_bucket_files(bucket, add=[(json.dumps({"exit_code": code}).encode(), f"exit/{number}.json")])
    except _SYNC_ERRORS as error:
        print(f"job {number}: exit code {code}; the last files could not be kept ({error}).", flush=True)
    else:
        print(f"job {number}: exit code {code}, kept up to step {step}", flush=True)
    return code


def _watch(process: subprocess.Popen[bytes], keep: Callable[[], None], work: Path) -> int:
    """Wait for the end of training; keep each new checkpoint meanwhile."""
    kept = _checkpoints(work, complete=True)
    while True:
        try:
            code = process.wait(POLL_SECONDS)
            return code if code >= 0 else 128 - code
        except subprocess.TimeoutExpired:
            pass
        complete = _checkpoints(work, complete=True)
        if complete - kept:
            try:
                keep()
                kept = complete
            except _SYNC_ERRORS as error:  # the next round tries again
                print(f"job: the checkpoint could not be kept yet ({error}).", file=sys.stderr, flush=True)


def main() -> int:
    """Run the command of the command line as the environment describes the job."""

    def terminate(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)
        raise JobTerminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        return run(
            sys.argv[1:],
            os.environ["COMPOSER_JOB_BUCKET"],
            Path("output").absolute(),
            number=int(os.environ["COMPOSER_JOB_NUMBER"]),
            seconds=float(os.environ["COMPOSER_JOB_SECONDS"]),
            started=float(os.environ.get("COMPOSER_JOB_STARTED") or time.time()),
        )
    except JobTerminated:
        return _TERMINATED  # during a sync: every finished file is kept


if __name__ == "__main__":
    sys.exit(main())
