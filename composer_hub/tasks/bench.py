"""Test runs over edited copies of a package: jobs in, reports out, in the sandbox.

A bench has one lane per worker: a work tree, a sandbox user and compiled files that are kept between calls. Jobs go to
`inside/run.py` in batches. Jobs that end with their batch, or that the clock ends, are run again alone, with more
patience; only if that happens again is it reported (`killed`, `late`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from composer_hub.environments import node_tests
from composer_hub.environments.marks import VALUES
from composer_hub.environments.sandbox import Limits, Sandbox, open_sandbox
from composer_hub.records import SourceEdit
from composer_hub.tasks import inside
from composer_hub.tasks.language import Package

SCRIPTS = Path(inside.__file__).parent
NODE = {"node_tests": Path(node_tests.__file__), "reporter": node_tests.REPORTER}
TOOLS = {"recorder": SCRIPTS / "record.py", "values": VALUES, "startup": SCRIPTS / "startup", **NODE}
_BATCH = 12
_SECOND_PATIENCE = 4.0  # times the first
_CLOCK = 1_500_000_000  # of edited files; each job adds a second


@dataclass(frozen=True)
class Job:
    """One pytest run over the package with some edits."""

    name: str
    files: tuple[str, ...]  # test files
    edits: tuple[SourceEdit, ...] = ()
    ids: tuple[str, ...] | None = None  # None: every test of the files
    seconds: float = 60.0  # of processor time
    test_seconds: float = 10.0
    options: Mapping[str, Any] = field(
        default_factory=dict
    )  # for inside/run.py: reverse, coverage, record, variants, …
    seed: int = 0  # of Python's hashes


@dataclass(frozen=True)
class Report:
    """The end of one job."""

    name: str
    statuses: Mapping[str, str]  # node id -> passed, failed or skipped
    seconds: Mapping[str, float]  # of processor time, or slept
    cpu_s: float
    problem: str = ""  # hangs, late, killed, no_report or import; empty if the tests ran
    detail: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)  # everything else that inside/run.py reports

    @property
    def ran(self) -> bool:
        """Return whether the run ended, or some test before the run did not."""
        return not self.problem or bool(self.statuses)

    def passed(self) -> set[str]:
        """Return the ids of the tests that passed."""
        return {id for id, status in self.statuses.items() if status == "passed"}


@dataclass
class Bench:
    """Test runs over one package."""

    package: Package
    venv: Path
    folder: Path
    workers: int = 1
    sandbox: str = "auto"
    warm: tuple[str, ...] = ()  # modules of the standard library that the tests import
    without: frozenset[str] = frozenset()  # tests that are too slow to run again and again
    batch: int = _BATCH  # most jobs of one process
    cpu_s: float = 0.0  # used so far

    def __post_init__(self) -> None:
        self._lanes: SimpleQueue[tuple[Sandbox, Path]] = SimpleQueue()
        self._clock = _CLOCK
        for number in range(self.workers):
            root = self.folder / f"lane-{number}"
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            root.chmod(0o755)
            shutil.copytree(self.package.folder, root / "tree")
            for name in ("out", "compiled", "home"):
                (root / name).mkdir()
            self._lanes.put((open_sandbox(self.sandbox), root))

    @property
    def isolation(self) -> str:
        with self.lane() as (sandbox, _):
            return sandbox.isolation

    @contextmanager
    def lane(self) -> Iterator[tuple[Sandbox, Path]]:
        """Give one sandbox with its work tree to the block."""
        lane = self._lanes.get()
        try:
            yield lane
        finally:
            self._lanes.put(lane)

    def run(self, jobs: Sequence[Job]) -> list[Report]:
        """Run jobs and return their reports in the same order."""
        batches: list[list[Job]] = []
        size = max(1, min(self.batch, -(-len(jobs) // self.workers)))
        for job in jobs:
            if not batches or len(batches[-1]) == size or batches[-1][0].seed != job.seed:
                batches.append([])
            batches[-1].append(job)
        with ThreadPoolExecutor(self.workers) as pool:
            return [report for reports in pool.map(self._batch, batches) for report in reports]

    def _batch(self, jobs: Sequence[Job]) -> list[Report]:
        """Run one batch; jobs that ended with it, or that the clock ended, run again alone."""
        with self.lane() as (sandbox, root):
            reports = self._call(sandbox, root, jobs)
            # Jobs after the one that took the batch down are not at fault; most run to their end together.
            behind = [job for job in jobs if job.name not in reports][1:]
            reports |= self._call(sandbox, root, behind) if behind else {}
            for job in jobs:
                if job.name not in reports or reports[job.name].problem == "late":
                    killed = Report(job.name, {}, {}, 0.0, "killed", "the run ended without a report")
                    reports |= {job.name: killed} | self._call(sandbox, root, [job], _SECOND_PATIENCE)
        return [reports[job.name] for job in jobs]

    def _renew(self, root: Path) -> None:
        shutil.rmtree(root / "tree")
        shutil.copytree(self.package.folder, root / "tree")
        for path in (root / "tree", *(root / "tree").rglob("*")):
            os.chown(path, root.stat().st_uid, root.stat().st_gid)

    def _call(self, sandbox: Sandbox, root: Path, jobs: Sequence[Job], times: float = 1.0) -> dict[str, Report]:
        place, out = sandbox.inside(root), root / "out"
        patience = times * (2 + os.getloadavg()[0] / (os.cpu_count() or 1))
        for path in out.iterdir():  # a run that was killed leaves its folders
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        tree = f"{place}/tree"
        paths = [tree if one == "." else f"{tree}/{one}" for one in self.package.python_path]
        python_path = ":".join(dict.fromkeys([*paths, tree]))
        self._clock += len(jobs)
        setting = {
            "tree": tree,
            "original": str(self.package.folder),
            "out": f"{place}/out",
            "tools": {name: str(path) for name, path in TOOLS.items()},
            "warm": self.warm,
            "clock": self._clock,
            "patience": patience,
            "without": sorted(self.without),
            **self.package.language.settings(self.package, any("coverage" in job.options for job in jobs)),
            "jobs": [_as_json(job, self.package.modules) for job in jobs],
        }
        (root / "jobs.json").write_text(json.dumps(setting))
        done = sandbox.run(
            ["python", str(self.package.language.runner), f"{place}/jobs.json"],
            root=root,
            venv=self.venv,
            # Whole folders: Python lists those that it imports from.
            read_only=[self.package.folder, SCRIPTS, VALUES, *NODE.values()],
            env={
                "PYTHONPATH": python_path,
                "PYTHONHASHSEED": str(jobs[0].seed),
                "PYTHONPYCACHEPREFIX": f"{place}/compiled",
                "PYTHONDONTWRITEBYTECODE": "",
                "COVERAGE_CORE": "ctrace",
                "HOME": f"{place}/home",
                "TZ": "UTC",
            },
            limits=Limits(
                seconds=sum(job.seconds * patience + 5 for job in jobs) + 20,
                cpu_seconds=int(max(job.seconds for job in jobs)) + 20,
                memory_mb=4096,
                total_mb=8192,
                processes=256,
                file_mb=256,
            ),
        )
        reports = {job.name: report for job in jobs if (report := _report(job, out, done.output, tree)) is not None}
        with contextlib.suppress(OSError, ValueError):
            self.cpu_s += float((out / "total").read_text())  # of the runner and its children
        if len(reports) < len(jobs):
            self._renew(root)
        return reports


def _as_json(job: Job, modules: Sequence[str]) -> dict[str, Any]:
    return {
        "name": job.name,
        "files": job.files,
        "ids": job.ids,
        "edits": [(edit.path, edit.text) for edit in job.edits],
        "seconds": job.seconds,
        "test_seconds": job.test_seconds,
        "modules": modules,
        **job.options,
    }


def _report(job: Job, out: Path, output: str, tree: str) -> Report | None:
    """Read what a job left behind; None if its parent ended before it."""
    try:
        ended = json.loads((out / f"{job.name}.end").read_text())
    except (OSError, ValueError):
        return None
    empty = Report(job.name, {}, {}, float(ended["cpu_s"]))
    try:
        values = json.loads((out / f"{job.name}.json").read_text())
    except (OSError, ValueError):
        hangs = ended["cpu_s"] >= job.seconds
        problem = "late" if ended["exit"] is None else "hangs" if hangs else "no_report"
        return replace(empty, problem=problem, detail=_tail(out / "log") or output[-300:])
    if values.get("import_error"):
        return replace(empty, problem="import", detail=values["import_error"])
    statuses, seconds = values.pop("statuses"), values.pop("seconds")
    # A test whose title holds the place of the tree has another title in the verifier's tree.
    statuses = {id: status for id, status in statuses.items() if tree not in id}
    problem = "late" if values.get("late") else "hangs" if values.get("hangs") else ""
    return replace(empty, problem=problem, statuses=statuses, seconds=seconds, values=values, detail=_tail(out / "log"))


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 300))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""
