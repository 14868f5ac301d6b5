"""A training run on rented machines, read from the Hub: its request, its jobs and its last checkpoint.

State is kept at its source. The private bucket of a run holds `run.json` (the request), one claim
per job, the exit codes that jobs write, and the checkpoints. The Hub finds a job by its labels `composer-run`
and `composer-job`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from huggingface_hub import BucketFile, JobInfo
from huggingface_hub.errors import BucketNotFoundError

from composer_hub import exits
from composer_hub.hub import HubDestination, HubRefused
from composer_hub.money import Budget, MachinePrice, to_usd

RUN_LABEL, NUMBER_LABEL = "composer-run", "composer-job"
DONE, OUT_OF_TIME, CANCELED, FAILED, LOST = "done", "out of time", "canceled", "failed", "lost"
CLAIM_SECONDS = 180
"""A claim this old without a job is lost: its launcher has ended."""
_SPEC, _BUCKET = "run.json", "composer-run-"
_CLAIM = re.compile(r"claims/(\d+)-[0-9a-f]+\.json")
_EXIT = re.compile(r"exit/(\d+)\.json")
_CHECKPOINT = re.compile(r"output/checkpoint-(\d+)/COMPLETE\.json")
_ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETED")
_KILLED = (None, 137, 143)
"""Exit codes of a process that a signal ended, as a time limit does."""
_SLACK_SECONDS = 5


class JobError(exits.ComposerError, RuntimeError):
    """A job or run that does not exist or failed."""


@dataclass(frozen=True)
class RunSpec:
    """The request behind a run, stored as `run.json`. Of the secrets it holds only the names."""

    run: str
    namespace: str
    targets: list[list[str]]  # [repository, type] of everything that the run publishes; the model first
    words: list[str]
    flavor: str
    cap: int  # nano-dollars
    timeout_s: int
    image: str
    package: str = ""
    usd_per_hour: float | None = None  # None: the Hub's price
    secrets: list[str] = field(default_factory=list)
    python_path: str = ""
    accelerate: list[str] = field(default_factory=list)

    @property
    def bucket(self) -> str:
        return _bucket_of(self.namespace, self.run)


@dataclass(frozen=True)
class RunJob:
    """One job of a run as it is now. Its cost is the worst case until its end is known."""

    number: int
    job_id: str
    state: str  # a stage of the Hub, or one of the five ends
    is_open: bool
    exit_code: int | None
    seconds: int  # billed
    timeout_s: int
    price: MachinePrice
    step: int  # of the last complete checkpoint after it
    message: str

    def as_row(self) -> dict[str, Any]:
        return {
            "job": self.number,
            "job_id": self.job_id,
            "state": self.state,
            "exit_code": self.exit_code,
            "minutes": round(self.seconds / 60, 1),
            "usd": to_usd(self.cost),
            "step": self.step,
            "message": self.message,
        }

    @property
    def cost(self) -> int:
        is_known = self.job_id and not self.is_open
        return self.price.cost(self.seconds) if is_known else self.price.worst_case(self.timeout_s)


@dataclass(frozen=True)
class JobRun:
    """A run as it is now."""

    spec: RunSpec
    jobs: Sequence[RunJob] = ()

    @property
    def last(self) -> RunJob | None:
        return self.jobs[-1] if self.jobs else None

    @property
    def step(self) -> int:
        return self.jobs[-1].step if self.jobs else 0

    @property
    def state(self) -> str:
        return self.jobs[-1].state if self.jobs else "new"

    @property
    def budget(self) -> Budget:
        lost = sum(job.cost for job in self.jobs if job.state == LOST)
        in_flight = sum(job.cost for job in self.jobs if job.is_open)
        return Budget(self.spec.cap, sum(job.cost for job in self.jobs) - lost - in_flight, in_flight, lost)

    def as_row(self) -> dict[str, Any]:
        return {
            "run": self.spec.run,
            "state": self.state,
            "jobs": len(self.jobs),
            "step": self.step,
            "flavor": self.spec.flavor,
            "spent_usd": to_usd(self.budget.committed),
            "max_usd": to_usd(self.spec.cap),
            "repo": self.spec.targets[0][0],
            "bucket": self.spec.bucket,
        }


def _bucket_of(namespace: str, run: str) -> str:
    return f"{namespace}/{_BUCKET}{run}"


def is_over(job: JobInfo) -> bool:
    """Return whether the Hub shows that a job has ended; an unknown stage counts as running."""
    return _stage(job) in _ENDED


def _stage(job: JobInfo) -> str:
    return str(getattr(job.status.stage, "value", job.status.stage))  # also a stage that the client does not know


def end_of(job: JobInfo, timeout_s: int, own_code: int | None = None) -> tuple[str, int | None]:
    """Return how a job ended and its exit code, which the job itself wrote unless it was killed."""
    stage, message = _stage(job), (job.status.message or "").lower()
    # The time limit may end a job that has already kept everything.
    if stage == "COMPLETED" or own_code == exits.DONE:
        return DONE, exits.DONE
    if stage in ("CANCELED", "DELETED"):
        return CANCELED, own_code
    near_limit = billed_seconds(job, timeout_s) >= timeout_s - min(_SLACK_SECONDS, timeout_s // 10)
    timed_out = (near_limit or "timeout" in message or "timed out" in message) and own_code in _KILLED
    return (OUT_OF_TIME if own_code == exits.STOPPED or timed_out else FAILED), own_code


def billed_seconds(job: JobInfo, timeout_s: int) -> int:
    """Return the billed seconds of a job; if the Hub does not give its end, its time limit."""
    if job.durations is None:
        return timeout_s if job.started_at else 0
    return 0 if job.durations.running_secs is None else job.durations.running_secs + 1  # the Hub rounds down


# ------------------------------------------------------------------------------------------------------------ reading


def read_run(where: HubDestination, namespace: str, run: str, claim_s: float = CLAIM_SECONDS) -> JobRun | None:
    """Read a run from its bucket and from the list of its jobs; None if it does not exist."""
    bucket = _bucket_of(namespace, run)
    files = list_files(where, bucket)
    if _SPEC not in files:
        return None
    claims, codes = _first_claims(files), {int(match[1]): path for path in files if (match := _EXIT.fullmatch(path))}
    texts = read_files(where, bucket, [_SPEC, *claims.values(), *codes.values()])
    infos, now = find_jobs(where, namespace, run), datetime.now(UTC)
    try:
        values = {path: json.loads(text) for path, text in texts.items()}
        spec, jobs, step = RunSpec(**values[_SPEC]), [], _last_step(files)
        for number in sorted(claims, reverse=True):
            claim, own_code = values[claims[number]], values.get(codes.get(number, ""), {}).get("exit_code")
            age_s = (now - (files[claims[number]].uploaded_at or now)).total_seconds()
            jobs.append(_job(number, claim, infos.get(number), own_code, step, is_lost=age_s > claim_s))
            step = claim["step"]
    except (ValueError, TypeError, KeyError) as error:
        raise JobError(
            f"The bucket {bucket} was written by another version of composer_hub ({error!r}). Use that one."
        ) from error
    return JobRun(spec, jobs[::-1])


def _job(
    number: int, claim: Mapping[str, int], info: JobInfo | None, own_code: int | None, step: int, *, is_lost: bool
) -> RunJob:
    timeout_s, price = claim["timeout_s"], MachinePrice(claim["unit_cost"], claim["unit_s"])
    if info is None:
        state = LOST if is_lost else "being submitted"
        return RunJob(number, "", state, not is_lost, own_code, 0, timeout_s, price, step, "")
    state, code = end_of(info, timeout_s, own_code) if is_over(info) else (_stage(info).lower(), own_code)
    seconds, message = billed_seconds(info, timeout_s), info.status.message or ""
    return RunJob(number, info.id, state, not is_over(info), code, seconds, timeout_s, price, step, message)


def need_run(where: HubDestination, namespace: str, run: str, claim_s: float = CLAIM_SECONDS) -> JobRun:
    """Read a run; if it does not exist, raise JobError with the names of those that do."""
    found = read_run(where, namespace, run, claim_s)
    if found is None:
        existing = ", ".join(run_names(where, namespace)) or "none"
        raise JobError(f"{namespace} has no run {run!r} at {where.address}. Existing runs: {existing}.")
    return found


def run_names(where: HubDestination, namespace: str) -> list[str]:
    """Return the names of the runs in a namespace, sorted; only the names of its buckets are read."""
    buckets = where.ask(f"Listing the buckets of {namespace}", lambda: list(where.api.list_buckets(namespace)))
    names = [bucket.id.partition("/")[2] for bucket in buckets]
    return sorted(name.removeprefix(_BUCKET) for name in names if name.startswith(_BUCKET))


def find_jobs(where: HubDestination, namespace: str, run: str) -> dict[int, JobInfo]:
    """Return the jobs with the labels of a run, by number."""
    jobs = where.ask(
        f"Listing the jobs of {run}", lambda: list(where.api.list_jobs(labels={RUN_LABEL: run}, namespace=namespace))
    )
    return {int(job.labels[NUMBER_LABEL]): job for job in jobs if job.labels and NUMBER_LABEL in job.labels}


def _last_step(paths: Iterable[str]) -> int:
    return max((int(match[1]) for path in paths if (match := _CHECKPOINT.fullmatch(path))), default=0)


def _first_claims(files: Mapping[str, BucketFile]) -> dict[int, str]:
    """Return the oldest claim on each job; the clock of the Hub decides between launchers."""
    claims: dict[int, str] = {}
    for path in sorted(filter(_CLAIM.fullmatch, files), key=lambda path: (files[path].uploaded_at, path)):
        claims.setdefault(int(path.removeprefix("claims/").partition("-")[0]), path)
    return claims


# ------------------------------------------------------------------------------------------------------------- bucket


def list_files(where: HubDestination, bucket: str, prefix: str | None = None) -> dict[str, BucketFile]:
    """Return the files of a bucket by path; a bucket that does not exist is empty."""

    def walk() -> dict[str, BucketFile]:
        items = where.api.list_bucket_tree(bucket, prefix=prefix, recursive=True)
        return {item.path: item for item in items if isinstance(item, BucketFile)}

    try:
        return where.ask(f"Listing the bucket {bucket}", walk)
    except BucketNotFoundError:
        return {}


def read_files(where: HubDestination, bucket: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of small files of a bucket."""
    with tempfile.TemporaryDirectory() as folder:
        local = {path: Path(folder, str(number)) for number, path in enumerate(paths)}
        pairs: list[Any] = list(local.items())
        where.ask(f"Reading the bucket {bucket}", lambda: where.api.download_bucket_files(bucket, pairs))
        return {path: target.read_bytes() for path, target in local.items() if target.is_file()}


def write_files(where: HubDestination, bucket: str, files: Mapping[str, bytes | Path]) -> None:
    """Write files to a bucket in one request: path -> content, or the local file that holds it."""
    pairs: list[Any] = [(content, path) for path, content in sorted(files.items())]
    where.ask(f"Writing to the bucket {bucket}", lambda: where.api.batch_bucket_files(bucket, add=pairs))


def write_spec(where: HubDestination, spec: RunSpec) -> None:
    """Write the request of a run to its bucket, over an earlier one."""
    text = json.dumps(dataclasses.asdict(spec), indent=2, ensure_ascii=False) + "\n"
    write_files(where, spec.bucket, {_SPEC: text.encode()})


def prepare_bucket(where: HubDestination, bucket: str) -> None:
    """Create the bucket of a new run; refuse a public one."""

    def create() -> bool:
        where.api.create_bucket(bucket, private=True, exist_ok=True)
        return bool(where.api.bucket_info(bucket).private)

    if not where.ask(f"Creating the bucket {bucket}", create):
        raise HubRefused(f"The bucket {bucket} is public: make it private or choose another --run. Nothing was sent.")


def claim_job(where: HubDestination, run: JobRun, timeout_s: int, price: MachinePrice) -> tuple[int, str]:
    """Claim the next job; return its number and claim, or (0, "") if another launcher was faster.

    Every launcher writes a file and then lists all of them; the oldest wins, and all launchers see the same order. A
    claim also reserves the money of its job, so it is deleted only if the job certainly did not start.
    """
    number, bucket = (run.last.number if run.last else 0) + 1, run.spec.bucket
    path = f"claims/{number}-{secrets.token_hex(8)}.json"
    claim = {"timeout_s": timeout_s, "unit_cost": price.unit_cost, "unit_s": price.unit_s, "step": run.step}
    write_files(where, bucket, {path: json.dumps(claim).encode()})
    if _first_claims(list_files(where, bucket, "claims"))[number] == path:
        return number, path
    drop_claim(where, bucket, path)
    return 0, ""


def drop_claim(where: HubDestination, bucket: str, path: str) -> None:
    """Delete a claim, which releases the money of its job; only for a job that certainly did not start."""
    where.ask(f"Deleting {path} of {bucket}", lambda: where.api.batch_bucket_files(bucket, delete=[path]))
