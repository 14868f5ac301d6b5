"""Executors on datatrove: this machine, a Ray cluster, or Slurm.

datatrove starts tasks and reads nothing; a task runs one shard. Only results decide which shards are done, so
every attempt gets a new folder for datatrove's marks. Workers see the same folders as this machine and have
the same release of this package.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits, extras
from composer_hub.named_files import write_whole
from composer_hub.shards.plan import ShardError, Staging
from composer_hub.shards.run import Executor, attempt, repeated
from composer_hub.shards.workers import Died, in_workers

_WATCH_SECONDS = 2.0
_SUBMITTED = "slurm.json"
_CONTINUE = "Run the same command again for what is missing."


@dataclass(frozen=True)
class ShardTask:
    """A step of a datatrove pipeline that runs one shard. A failure is noted, so that later tasks still run."""

    folder: str
    numbers: tuple[int, ...]

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A worker gets its task before datatrove writes the first lines of its log to the terminal.
        self.__dict__.update(state)
        _silence()

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> None:
        attempt(Staging.open(Path(self.folder)), self.numbers[rank])


def on_datatrove(workers: int = 0, **options: Any) -> Executor:
    """Return an executor with datatrove's worker processes on this machine."""
    _module("local")

    def execute(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        num_workers = min(workers or os.cpu_count() or 1, len(numbers))
        settings = {"workers": num_workers, "start_method": "spawn", **options}
        # datatrove's processes import the main module of theirs again, and a worker of ours has none.
        work = functools.partial(_run_locally, staging.folder, settings)
        with closing(in_workers(work, [tuple(numbers)], 1, ahead=0, watch=watch)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, Died):
                    raise ShardError(f"The process with datatrove's executor ended {outcome.how}. {_CONTINUE}")

    return execute


def _run_locally(folder: Path, settings: Mapping[str, Any], numbers: Sequence[int]) -> None:
    _run(_module("local").LocalPipelineExecutor, Staging.open(folder), numbers, lambda: None, settings)


def on_ray(workers: int = 0, **options: Any) -> Executor:
    """Return an executor on the Ray cluster of RAY_ADDRESS, or on one that starts on this machine."""
    module = _module("ray")
    if extras.missing("ray"):
        raise exits.UsageError("Ray is not installed: pip install ray, or choose another --executor.")

    def execute(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        import ray

        if not ray.is_initialized():
            here = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers or os.cpu_count() or 1}
            try:
                ray.init(log_to_driver=False, include_dashboard=False, logging_level="error", **here)
            except Exception as error:  # Ray raises plain ones, for instance after half a minute on a busy machine
                raise ShardError(
                    f"Ray did not start ({_first_line(error)}). {_CONTINUE} If it fails again, start Ray with "
                    "`ray start --head` and set RAY_ADDRESS=auto, or choose --executor processes."
                ) from error
        settings = {"workers": workers or -1, "mem_per_cpu_gb": 0.5, **options}
        _run(module.RayPipelineExecutor, staging, numbers, watch, settings)

    return execute


def on_slurm(**options: Any) -> Executor:
    """Return an executor that submits job arrays and waits for them; `partition` and `time` are required.

    If an earlier run was interrupted while its jobs run, this one only waits for them.
    """
    if missing := [name for name in ("partition", "time") if name not in options]:
        raise exits.UsageError(f"--executor slurm needs {' and '.join(f'--engine {name}=…' for name in missing)}.")
    module = _module("slurm")
    if shutil.which("sbatch") is None:
        raise exits.UsageError("There is no sbatch here. Run this command on a machine that submits Slurm jobs.")

    def execute(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        job = _open_job(staging)
        if not job:
            # The jobs find the same programs and packages as this process.
            here, packages = (shlex.quote(text) for text in (str(Path(sys.executable).parent), _python_path()))
            path = f"export PATH={here}:$PATH PYTHONPATH={packages}"
            settings = {"env_command": path, "qos": None, "job_name": f"composer-{staging.plan.stage}", **options}
            executor = _run(module.SlurmPipelineExecutor, staging, numbers, watch, settings)
            job = str(executor.job_id)
            write_whole(staging.folder / _SUBMITTED, json.dumps({"job": job}).encode())
        wanted = set(numbers)
        while wanted - staging.done() and _is_queued(job):
            time.sleep(_WATCH_SECONDS)
            watch()
        (staging.folder / _SUBMITTED).unlink(missing_ok=True)

    return execute


def _python_path() -> str:
    return os.environ.get("PYTHONPATH", "")


def _module(name: str) -> Any:
    extras.need("This --executor", "scale", "datatrove")
    return importlib.import_module(f"datatrove.executor.{name}")


def _run(
    kind: Any, staging: Staging, numbers: Sequence[int], watch: Callable[[], None], options: Mapping[str, Any]
) -> Any:
    """Make an executor of datatrove, run it, and watch it meanwhile."""
    _silence()
    logs = staging.folder / "logs" / f"{time.time_ns()}"
    task = ShardTask(str(staging.folder.resolve()), tuple(numbers))
    try:
        executor = kind(pipeline=[task], tasks=len(numbers), logging_dir=str(logs), **options)
    except TypeError as error:
        known = re.search(r"'(\w+)'", str(error))
        raise exits.UsageError(
            f"{kind.__name__} of datatrove has no option {known[1] if known else error}. Check --engine."
        ) from error
    with repeated(watch, _WATCH_SECONDS):
        try:
            executor.run()
        except Exception as error:  # of datatrove, Ray or Slurm, since a failed shard raises none
            raise ShardError(
                f"{kind.__name__} did not run ({_first_line(error)}). The logs are in {logs}. {_CONTINUE}"
            ) from error
    return executor


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]


def _silence() -> None:
    """Keep datatrove's log from the terminal; failures are noted in the folder of the plan."""
    from loguru import logger

    logger.disable("datatrove")


def _open_job(staging: Staging) -> str:
    """Return the job array of an earlier run that is still in the queue, or ""."""
    try:
        job = json.loads((staging.folder / _SUBMITTED).read_text())["job"]
    except (OSError, ValueError, KeyError):
        return ""
    return job if _is_queued(job) else ""


def _is_queued(job: str) -> bool:
    """Ask Slurm whether a job array still has tasks that wait or run."""
    answer = subprocess.run(["squeue", "-h", "-j", job], capture_output=True, text=True)
    if answer.returncode and "Invalid job id" not in answer.stderr:
        return True  # the controller does not answer; ask again
    return bool(answer.stdout.strip())
