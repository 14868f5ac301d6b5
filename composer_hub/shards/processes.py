"""Worker processes on this machine. One that dies costs its shard an attempt and is replaced."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from composer_hub.shards.plan import Staging
from composer_hub.shards.run import Executor, attempt
from composer_hub.shards.workers import MAX_DEATHS, Died, in_workers


def in_processes(workers: int = 0) -> Executor:
    """Return an executor with this many worker processes (0: one per core)."""

    def execute(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        work = functools.partial(_attempt, staging.folder)
        num_workers = workers or os.cpu_count() or 1
        with closing(in_workers(work, numbers, num_workers, ahead=len(numbers), watch=watch)) as outcomes:
            for number, outcome in zip(numbers, outcomes, strict=True):
                if isinstance(outcome, Died):
                    error = f"its worker ended {MAX_DEATHS} times, the last time {outcome.how}"
                    staging.note("failed", number, {"error": error, "where": "this machine"})

    return execute


def _attempt(folder: Path, number: int) -> bool:
    return attempt(Staging.open(folder), number)
