"""The kinds of tasks that can be made, and the options of making them."""

from __future__ import annotations

from dataclasses import dataclass

from composer_hub import exits
from composer_hub.options import option

GENERATOR_VERSION = "3"
KINDS = ("stub", "cluster", "branch", "removal", "feature", "bug", "write_tests", "commit")


@dataclass(frozen=True)
class TaskOptions:
    """The kinds of tasks to make, and how carefully."""

    kinds: tuple[str, ...] = tuple(kind for kind in KINDS if kind != "commit")  # a history has a tree per task
    max_per_kind: int = option(25, "Tasks of a kind and package.")
    seed: int = option(0, "Seed of the choice among candidates.")
    help_level: int = option(1, "0: failing tests, 1: and contract, 2: and tests.")
    max_failing: int = option(100, "Most test functions that a task may break.")
    suite_seconds: float = option(10.0, "Use the fastest tests of a slower suite.")  # of CPU
    recheck_every: int = option(20, "Check every k-th task again in full (0: none).")
    with_oracle: bool = option(True, "Also make hidden oracles, in NAME-oracle.", flag="--oracle/--no-oracle")
    test_share: float = option(0.1, "Share of the packages in the split `test`.", min=0, max=1)
    without: tuple[str, ...] = option((), "Test files or ids to leave out.", metavar="PATTERN")
    requirements: tuple[str, ...] = option((), "Requirement that the tests also need.", flag="--with", metavar="REQ")
    revisions: str = option("HEAD", "Commits to replay, as git names them.")
    max_commits: int = option(200, "Commits to look at, the newest first.")
    hide_tests: bool = option(False, "Hide the tests of replayed commits from the agent.")
    sandbox: str = "auto"
    workers: int = option(2, "Test runs at the same time.", min=1)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(KINDS))
        if unknown or not self.kinds:
            named = f"There is no kind {', '.join(unknown)}" if unknown else "No kind of task is named"
            raise exits.UsageError(f"{named}. The kinds are {', '.join(KINDS)}.")
        if self.help_level not in (0, 1, 2):
            raise exits.UsageError("--help-level is 0, 1 or 2.")
        if not self.suite_seconds > 0:
            raise exits.UsageError(f"--suite-seconds is {self.suite_seconds:g}. Give a number above 0.")
