"""The kinds of tasks that can be made, and the options of making them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from composer_hub import exits

GENERATOR_VERSION = "3"
KINDS = ("stub", "cluster", "branch", "removal", "feature", "bug", "write_tests", "commit")


@dataclass(frozen=True)
class TaskOptions:
    """The kinds of tasks to make, and how carefully."""

    kinds: tuple[str, ...] = tuple(kind for kind in KINDS if kind != "commit")  # a history has a tree per task
    max_per_kind: int = 25  # of a package
    seed: int = 0
    help_level: int = 1
    recheck_every: int = 20  # 0: none
    max_failing: int = 100  # test functions of one task
    suite_seconds: float = 10.0  # of CPU; of a longer suite the fastest tests are used
    with_oracle: bool = True
    revisions: str = "HEAD"  # of commit replay, as git names them
    max_commits: int = 200  # to look at, the newest first
    hide_tests: bool = False  # of replayed commits
    test_share: float = 0.1  # of the packages
    without: tuple[str, ...] = ()  # patterns of test files and ids to leave out
    requirements: tuple[str, ...] = ()  # to install besides those that a package names
    sandbox: str = "auto"
    workers: int = 2
    venvs: Path | None = None  # folder of virtual environments; None: the cache

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(KINDS))
        if unknown or not self.kinds:
            named = f"There is no kind {', '.join(unknown)}" if unknown else "No kind of task is named"
            raise exits.UsageError(f"{named}. The kinds are {', '.join(KINDS)}.")
        if self.help_level not in (0, 1, 2):
            raise exits.UsageError("--help-level is 0, 1 or 2.")
        if not self.suite_seconds > 0:
            raise exits.UsageError(f"--suite-seconds is {self.suite_seconds:g}. Give a number above 0.")
