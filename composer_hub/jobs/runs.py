"""The record of a training run that is carried out by jobs: what was asked, every job of it, and the money they took.

It is one JSON file a run in a private dataset repository of the namespace, and changes only by commits on the head that
was read. So whoever comes second, on this machine or another, sees what the first has done and submits nothing twice.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone

from composer_hub import exits
from composer_hub.hub import Add, HubDestination, HubError, HubRefused, Moved
from composer_hub.jobs.client import (
    CANCELED,
    DONE,
    FAILED,
    NOT_SUBMITTED,
    OUT_OF_TIME,
    Ended,
    JobError,
    Price,
    show_usd,
)

RECORDS = "composer-jobs"
CLAIM_SECONDS = 180
"""A job that was claimed this long ago without an id will get none: who claimed it is gone."""
MIN_JOB_SECONDS = 600
"""Money for less than this is not spent: a machine needs minutes before its first step."""
_MAX_TRIES = 20
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")


@dataclass
class Attempt:
    """One job of a run. `how` is empty until it has ended; `job_id` until the Hub has taken it."""

    number: int
    claimed_at: str
    timeout_s: int
    claim: str = ""  # a word that only who claimed it knows
    job_id: str = ""
    how: str = ""
    exit_code: int | None = None
    seconds: int = 0
    micro_usd: int = 0
    step: int = 0  # of the last complete checkpoint after it
    message: str = ""

    @property
    def is_open(self) -> bool:
        return not self.how


@dataclass
class JobRun:
    """What a run is and how far it has come; of secrets only the names."""

    run: str
    namespace: str
    targets: list[list[str]]  # repository and its type, of everything that is published; the model first
    words: list[str]
    flavor: str
    micro_usd: int  # a unit of time of the machine
    unit_s: int
    image: str
    package: str
    timeout_s: int
    max_jobs: int
    cap_micro_usd: int
    is_price_given: bool = False
    reach: str = ""  # options with which a command finds the run: --to hub, --namespace x
    secrets: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    accelerate: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    def command(self, verb: str) -> str:
        """Return the command line that does something with this run."""
        return f"`composer-hub jobs {verb} {self.run}{self.reach}`"

    @property
    def repo(self) -> str:
        return self.targets[0][0]

    @property
    def bucket(self) -> str:
        return bucket_of(self.namespace, self.run)

    @property
    def price(self) -> Price:
        return Price(self.flavor, self.flavor, self.micro_usd, self.unit_s)

    @property
    def jobs(self) -> list[Attempt]:
        """Return the attempts that became a job, or may have."""
        return [attempt for attempt in self.attempts if attempt.how != NOT_SUBMITTED]

    @property
    def last(self) -> Attempt | None:
        return self.jobs[-1] if self.jobs else None

    @property
    def spent(self) -> int:
        """Return what ended jobs have cost, and what an open one may still cost."""
        return sum(job.micro_usd if job.how else self.price.at_most(job.timeout_s) for job in self.jobs)

    @property
    def state(self) -> str:
        """Say in one word or two where the run stands."""
        return "new" if self.last is None else (self.last.how or ("running" if self.last.job_id else "being submitted"))

    def to_json(self) -> bytes:
        return (json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, text: bytes) -> JobRun:
        values = json.loads(text)
        return cls(**values | {"attempts": [Attempt(**attempt) for attempt in values["attempts"]]})


def bucket_of(namespace: str, run: str) -> str:
    return f"{namespace}/composer-run-{run}"


def check_run(name: str) -> str:
    """Return the name if it can be a label and part of a bucket's name."""
    if not _RUN.fullmatch(name):
        raise exits.UsageError(
            f"{name!r} cannot name a run: use up to 60 letters, digits, '-' and '_'. Give another --run."
        )
    return name


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def age_s(moment: str) -> float:
    return (datetime.now(timezone.utc) - datetime.fromisoformat(moment)).total_seconds()


# ----------------------------------------------------------------------------------------------------------- decision


def seconds_to_go_on(run: JobRun, *, is_asked: bool) -> int:
    """Return the time limit of the next job; raise what ends the run instead, with how to go on.

    `is_asked`: a person wants the run to go on, whatever ended its last job.
    """
    last, again = run.last, f"{run.command('resume')} goes on"
    if last is not None and last.how == DONE:
        raise exits.NothingToDo(f"The run {run.run} is done: its model is {run.repo}. Choose another --run for more.")
    if last is not None and not is_asked:
        _check_end(run, last, again)
    if len(run.jobs) >= run.max_jobs:
        raise exits.Stopped(
            f"{run.run} has had its {run.max_jobs} jobs (step {_step(run):,}). {again} with a larger --max-jobs."
        )
    left = run.cap_micro_usd - run.spent
    affordable = run.price.timeout_for(left)
    if affordable is not None and affordable < min(run.timeout_s, MIN_JOB_SECONDS):
        raise exits.Stopped(
            f"{show_usd(run.spent)} of {show_usd(run.cap_micro_usd)} are spent on {run.run} (step {_step(run):,}); "
            f"what is left pays for {affordable / 60:.0f} minutes of {run.flavor}. {again} with a larger --max-usd."
        )
    return run.timeout_s if affordable is None else min(run.timeout_s, affordable)


def _check_end(run: JobRun, last: Attempt, again: str) -> None:
    """Raise where the last job's end is not one to go on from by itself."""
    where = f"Job {last.number} ({last.job_id}) of {run.run}"
    if last.how == CANCELED:
        raise exits.Stopped(f"{where} was canceled at step {last.step:,}. {again}.")
    if last.how == FAILED:
        see = f"See {run.command('logs')}; once it is mended, {again}."
        raise failure(f"{where} failed: {last.message or 'no reason is given'}. {see}", last.exit_code)
    before = run.jobs[-2].step if len(run.jobs) > 1 else 0
    if last.how == OUT_OF_TIME and last.step <= before:
        raise JobError(
            f"{where} used up its {last.timeout_s / 60:.0f} minutes without a new checkpoint, and another one would, "
            f"too. {again} with a longer --timeout; or begin a run with a smaller --save_steps."
        )


def failure(message: str, exit_code: int | None) -> exits.ComposerError:
    """Return the exception that leaves with a job's own exit code, where that is one of the conventions."""
    kinds: dict[int | None, type[exits.ComposerError]] = {
        exits.USAGE: exits.UsageError,
        exits.REFUSED: exits.Refused,
    }
    return kinds.get(exit_code, JobError)(message)


def _step(run: JobRun) -> int:
    return run.jobs[-1].step if run.jobs else 0


def settle(attempt: Attempt, price: Price, end: Ended, step: int) -> None:
    """Write down how a job ended and what it cost."""
    attempt.how, attempt.exit_code, attempt.seconds = end.how, end.exit_code, end.seconds
    attempt.micro_usd, attempt.step, attempt.message = price.of(end.seconds), step, end.message


# -------------------------------------------------------------------------------------------------------------- store


@dataclass
class RunStore:
    """The records of a namespace, at a destination."""

    where: HubDestination
    namespace: str

    @property
    def repo(self) -> str:
        return f"{self.namespace}/{RECORDS}"

    def read(self, run: str) -> JobRun | None:
        return self._read(run, self.where.resolve(self.repo, "main"))

    def need(self, run: str) -> JobRun:
        found = self.read(run)
        if found is None:
            there = ", ".join(self.names()) or "none"
            raise JobError(f"{self.namespace} has no run {run!r} at {self.where.address}. There are: {there}.")
        return found

    def names(self) -> list[str]:
        head = self.where.resolve(self.repo, "main")
        paths = self.where.files(self.repo, head) if head else {}
        return sorted(path.removesuffix(".json") for path in paths if path.endswith(".json"))

    def change(self, run: str, change: Callable[[JobRun | None], JobRun | None], title: str) -> JobRun | None:
        """Replace a record by what `change` makes of it; None leaves it. Whoever was faster is read first."""
        for _ in range(_MAX_TRIES):
            head = self.where.resolve(self.repo, "main")
            before = self._read(run, head)
            after = change(before)
            if after is None:
                return before
            text = after.to_json()
            try:
                self.where.commit(
                    self.repo, [Add.of(f"{run}.json", text)], title=f"{run}: {title}", body="", parent=head
                )
            except Moved:
                continue
            return after
        raise HubError(f"{self.repo} kept moving: run the same command again when others have finished.")

    def prepare(self) -> None:
        """Make sure the records have a place that only their owner sees."""
        self.where.prepare(self.repo, private=True)
        if self.where.is_private(self.repo) is False:
            raise HubRefused(f"{self.repo} is public: make it private first. No job was started.")

    def _read(self, run: str, head: str | None) -> JobRun | None:
        path = self.where.fetch(self.repo, head, f"{run}.json") if head else None
        if path is None:
            return None
        try:
            return JobRun.from_json(path.read_bytes())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise JobError(
                f"{self.repo}: {run}.json cannot be read ({error}). Another version of composer_hub may have written "
                "it: use that one, or remove the file."
            ) from error
