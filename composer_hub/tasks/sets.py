"""What making tasks gives: the tasks, the trees that they start from, and a report per source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from composer_hub.records import Task
from composer_hub.shards import Plans
from composer_hub.tasks.options import TaskOptions


@dataclass(frozen=True)
class Bundle:
    """The original tree of a package, with what is needed to run it."""

    digest: str
    package: str
    version: str
    license: str
    copyleft: bool
    python_path: tuple[str, ...]
    requirements: tuple[str, ...]  # pinned
    data: bytes


@dataclass
class PackageReport:
    """The numbers of one source."""

    source: str
    package: str = ""
    version: str = ""
    refused: str = ""  # reason, if it gave nothing
    sentence: str = ""
    num_tests: int = 0
    num_flaky: int = 0
    num_slow: int = 0
    num_not_passing: int = 0  # tests that fail or are skipped in the original
    set_aside: Counter[str] = field(default_factory=Counter)  # test files that cannot be run, by reason
    tried: Counter[str] = field(default_factory=Counter)  # candidates by kind
    valid: Counter[str] = field(default_factory=Counter)  # that break a test and leave one, by kind
    kept: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # kind:gate
    rechecked: Counter[str] = field(default_factory=Counter)  # kind:outcome
    cpu_s: float = 0.0  # in the sandbox
    baseline_cpu_s: float = 0.0
    kind_cpu_s: dict[str, float] = field(default_factory=dict)
    wall_s: float = 0.0
    num_commits: int = 0  # that were looked at
    advice: str = ""  # options to pass
    skipped_files: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """Describe the package: its tasks and what was left out, or the reason that it gave none."""
        if self.refused:
            return f"{self.source} gave no tasks ({self.refused}): {self.sentence}"
        kept = ", ".join(f"{kind} {self.kept[kind]} of {tried}" for kind, tried in self.tried.items()) or "none"
        slow = f"{self.num_slow} slow ones, " if self.num_slow else ""
        files = self.files_set_aside()
        return (
            f"{self.package} {self.version}, tasks of candidates: {kept}. Set aside: {self.num_flaky} flaky tests, "
            f"{slow}{self.num_not_passing} that do not pass{files and f', {files}'}."
            + f" {self.num_commits:,} commits were looked at." * bool(self.num_commits)
            + f" {self.advice}" * bool(self.advice)
        )  # fmt: skip

    def files_set_aside(self) -> str:
        return ", ".join(f"{number} test files ({reason})" for reason, number in self.set_aside.items())


@dataclass(frozen=True)
class TaskSet:
    """Tasks of one or more packages."""

    tasks: tuple[Task, ...]
    oracles: Mapping[str, Mapping[str, Any]]  # by task
    bundles: tuple[Bundle, ...]
    reports: tuple[PackageReport, ...]
    options: TaskOptions
    plans: Plans = field(default_factory=Plans, compare=False)  # staged for the set until it is published

    def numbers(self) -> dict[str, Any]:
        """Return the totals, for cards and terminals."""
        totals: dict[str, Counter[str]] = {
            name: Counter() for name in ("tried", "valid", "kept", "reasons", "rechecked")
        }
        for report in self.reports:
            for name, counter in totals.items():
                counter.update(getattr(report, name))
        return {
            "packages": sum(not report.refused for report in self.reports),
            "refused": dict(Counter(report.refused for report in self.reports if report.refused)),
            "tasks": len(self.tasks),
            "tasks_by_kind": dict(Counter(task.kind for task in self.tasks)),
            "with_oracle": sum(task.has_oracle for task in self.tasks),
            "copyleft": sum(task.copyleft for task in self.tasks),
            **{name: dict(sorted(counter.items())) for name, counter in totals.items()},
        }
