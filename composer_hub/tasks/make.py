"""Sources in, a `TaskSet` out: each source is made in order, or over shards, and whole packages are held out.

The same sources, options and libraries give the same rows: candidates are drawn in the order of a seed, tests run with
fixed hashes, and rows hold no times. A package that gives nothing is counted with its reason; the others continue.
"""

from __future__ import annotations

import hashlib
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from composer_hub.environments.sandbox import SandboxError
from composer_hub.environments.venvs import VenvError
from composer_hub.records import Task, stable_share
from composer_hub.shards import Input, Plans, Sharding, Staging, balanced
from composer_hub.tasks.language import PackageRefused
from composer_hub.tasks.options import GENERATOR_VERSION, TaskOptions
from composer_hub.tasks.packages import rows_of
from composer_hub.tasks.sets import Bundle, PackageReport, TaskSet
from composer_hub.tasks.sharding import check_source, source_input

_RESULT = "made.pickle"


def make(
    sources: Sequence[str],
    options: TaskOptions = TaskOptions(),  # noqa: B008 (frozen)
    on_package: Callable[[PackageReport], None] = lambda _: None,
    *,
    sharding: Sharding | None = None,
) -> TaskSet:
    """Make tasks from packages: folders, archives, or names that pip downloads.

    With `sharding`, its executor makes the tasks of parts of the packages; the result is the same.
    """
    tasks: list[Task] = []
    kept: dict[str, Mapping[str, Any]] = {}
    bundles: dict[str, Bundle] = {}
    reports, plans = [], Plans()
    named = tuple(dict.fromkeys(sources))
    found = _over_shards(named, options, sharding, plans) if sharding else (_made_of(one, options) for one in named)
    for part in found:
        tasks += part.tasks
        kept |= part.oracles
        bundles |= {one.digest: one for one in part.bundles}
        reports.append(part.report)
        on_package(part.report)
    used = {task.bundle_digest for task in tasks}
    chosen = tuple(bundle for digest, bundle in sorted(bundles.items()) if digest in used)
    return TaskSet(_split(tasks, options.test_share), kept, chosen, tuple(reports), options, plans)


@dataclass(frozen=True)
class _Made:
    """The result of one source."""

    report: PackageReport
    tasks: Sequence[Task] = ()
    oracles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by task
    bundles: Sequence[Bundle] = ()


def _made_of(source: str, options: TaskOptions) -> _Made:
    """Make the tasks of one source; if it gives none, the report has the reason."""
    report = PackageReport(source)
    begun, made = time.monotonic(), _Made(report)
    with tempfile.TemporaryDirectory(prefix="composer-tasks-") as folder:
        Path(folder).chmod(0o755)  # the sandbox runs as another user
        try:
            made = _Made(report, *rows_of(source, options, Path(folder), report))
        except PackageRefused as error:
            report.refused, report.sentence = error.reason, str(error)
        except (VenvError, SandboxError) as error:
            report.refused = "dependencies" if isinstance(error, VenvError) else "sandbox"
            report.sentence = str(error)
        except (OSError, RecursionError, MemoryError, UnicodeError) as error:
            report.refused, report.sentence = "unreadable", f"{source}: {type(error).__name__}: {error}"
    report.wall_s = round(time.monotonic() - begun, 2)
    return made


def _over_shards(sources: Sequence[str], options: TaskOptions, sharding: Sharding, plans: Plans) -> Iterator[_Made]:
    """Yield the result of each source, in order; a shard is a part of the sources."""
    groups = balanced([source_input(source) for source in sources], sharding.num_shards)
    private = pickle.dumps(options)
    shape = {"options": hashlib.sha256(private).hexdigest(), "generator": GENERATOR_VERSION}
    staging = plans.carry_out(sharding, "tasks", f"{__name__}:work", groups, options=shape, private=private)
    for shard in staging.plan.shards:
        yield from pickle.loads((staging.result(shard.number) / _RESULT).read_bytes())


def work(staging: Staging, inputs: Sequence[Input], result: Path) -> Mapping[str, int]:
    """Make the tasks of a shard's sources."""
    options, made = pickle.loads(staging.private()), []
    for one in inputs:
        check_source(one)
        made.append(_made_of(one.name, options))
        made[-1].report.source = one.about["source"]
    (result / _RESULT).write_bytes(pickle.dumps(made))
    return {"packages": len(made), "tasks": sum(len(one.tasks) for one in made)}


def _split(tasks: Sequence[Task], share: float) -> tuple[Task, ...]:
    """Give whole packages to the test split."""
    packages = sorted({task.package for task in tasks}, key=stable_share)
    held_out = set(packages[: round(share * len(packages))])
    named = [replace(task, split="test" if task.package in held_out else "train") for task in tasks]
    return tuple(sorted(named, key=lambda task: (task.package, task.kind, task.task_id)))
