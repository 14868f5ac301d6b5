"""Options of commands whose work may run over shards: the executor and the number of parts."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from composer_hub import exits, shards
from composer_hub.cli.grouped import grouped
from composer_hub.cli.paths import NEW_FOLDER
from composer_hub.hub import Destination
from composer_hub.jobs.fan_out import on_jobs
from composer_hub.options import option
from composer_hub.output import Output
from composer_hub.shards import engines

EXECUTORS: dict[str, Callable[..., shards.Executor]] = {
    "local": lambda where, workers: shards.here,
    "processes": lambda where, workers: shards.in_processes(workers),
    "datatrove": lambda where, workers, **options: engines.on_datatrove(workers, **options),
    "ray": lambda where, workers, **options: engines.on_ray(workers, **options),
    "slurm": lambda where, workers, **options: engines.on_slurm(**options),
    "jobs": on_jobs,
}
DEFAULT_SHARDS = 64
_TAKE_NO_OPTIONS = ("local", "processes")


@dataclass(frozen=True)
class Spread:
    """The choice of an executor on a command line."""

    executor: str | None = option(None, "Run in shards: here, or on an engine.", choices=(*EXECUTORS,))
    num_shards: int | None = option(None, f"Shards (default: {DEFAULT_SHARDS}).", flag="--shards", min=1)
    staging: Path | None = option(None, "Folder for the results of shards that every worker sees.", type=NEW_FOLDER)
    engine: tuple[str, ...] = option((), "Engine option: partition=cpu.", metavar="KEY=VALUE")

    def sharding(
        self, out: Output, where: Destination | None, folder: Path | None, workers: int
    ) -> shards.Sharding | None:
        """Return how to run shards, or None if the command runs as one; `folder` is where results go by default."""
        if self.executor is None:
            if self.engine or self.staging or self.num_shards:
                raise exits.UsageError(
                    "--shards, --staging and --engine belong to --executor: name one, such as processes."
                )
            return None
        if self.engine and self.executor in _TAKE_NO_OPTIONS:
            raise exits.UsageError(f"--executor {self.executor} takes no --engine.")
        if self.executor == "jobs" and where is None:
            raise exits.UsageError(
                "--executor jobs runs at the Hub that the traces are read from: name a dataset and --from hub, or use "
                "another --executor, such as processes."
            )
        executor = EXECUTORS[self.executor](where, workers, **dict(map(_option, self.engine)))
        home = Path(os.environ.get("COMPOSER_HUB_STATE") or Path.home() / ".local" / "state" / "composer_hub")
        root = (self.staging or (folder or home) / "shards").expanduser().absolute()
        root.mkdir(parents=True, exist_ok=True)
        return shards.Sharding(root, executor, self.num_shards or DEFAULT_SHARDS, _Shown(out))


class _Shown:
    """Progress over all shards: a note at each tenth, and one for each straggler."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self._last = -1
        self._named: set[int] = set()

    def __call__(self, progress: shards.ShardProgress) -> None:
        tenth = 10 * progress.num_done // max(1, progress.num_shards)
        if tenth != self._last:
            self._last = tenth
            failed = f", {progress.num_failed} failed" if progress.num_failed else ""
            self.out.note(f"{progress.num_done:,} of {progress.num_shards:,} shards are done{failed}.")
        for number in set(progress.stragglers) - self._named:
            self._named.add(number)
            seconds = progress.running[number]
            self.out.note(f"Shard {number} has run for {seconds:.0f} s, much longer than the others.")


sharding_options = grouped("spread", Spread)
"""Give a command the options of an executor as one `spread`."""


def _option(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise exits.UsageError(f"--engine {text!r}: write KEY=VALUE, such as --engine partition=cpu.")
    # A Slurm time such as 02:00:00 is a number in YAML.
    return name, value if ":" in value else yaml.safe_load(value)
