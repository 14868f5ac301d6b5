"""Jobs of the Hub: what a machine costs, one job started once, its log to the end, and how it ended.

In: a `HubDestination` (the Hub, or the embedded one) and a namespace. Out: prices in micro-dollars and `Ended`. Which
jobs make up a run, and what may still be spent on it, is kept by `job_runs`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import JobInfo, Volume
from huggingface_hub.errors import HfHubHTTPError, JobNotFoundError
from huggingface_hub.utils import httpx

from composer_hub import exits
from composer_hub.hub import HubDestination, HubError, HubRefused
from composer_hub.hub.destinations import may_pass, sentence, status_of

T = TypeVar("T")
MICRO = 1_000_000
MOUNT = "/composer"
"""Where a job finds the bucket of its run."""
RUN_LABEL, NUMBER_LABEL = "composer-run", "composer-job"
DONE, OUT_OF_TIME, CANCELED, FAILED, NOT_SUBMITTED = "done", "out of time", "canceled", "failed", "not submitted"
SUBMIT_SECONDS = 60
"""Later than this no job is sent again: who waits for it may have given it up."""
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600}
_ENDED = ("COMPLETED", "CANCELED", "ERROR", "DELETED")
_EXIT_CODE = re.compile(r"exit code:? (\d{1,3})\b")
_KILLED = (137, 143)
"""What a shell sees of a process that was ended by a signal, as a time limit does."""
_SLACK_SECONDS = 5


class JobError(exits.ComposerError, RuntimeError):
    """A job that cannot be found, or did not do what it was asked."""


class Unsure(HubError):
    """Whether a job was started cannot be said now."""


# ------------------------------------------------------------------------------------------------------------- prices


@dataclass(frozen=True, slots=True)
class Price:
    """What a machine costs: micro-dollars a unit of time; a unit that was begun is paid."""

    flavor: str
    machine: str
    micro_usd: int
    unit_s: int = 60

    @property
    def usd_per_hour(self) -> float:
        return self.micro_usd * 3600 / self.unit_s / MICRO

    def of(self, seconds: float) -> int:
        """Return what this many seconds cost, in micro-dollars."""
        return math.ceil(seconds / self.unit_s) * self.micro_usd

    def at_most(self, timeout_s: int) -> int:
        """Return what a job can cost: it may be ended a moment after its time limit, and a unit begins."""
        return self.of(timeout_s + self.unit_s)

    def timeout_for(self, micro_usd: int) -> int | None:
        """Return the time limit of a job that costs no more than this; None where time is free."""
        return max(0, micro_usd // self.micro_usd - 1) * self.unit_s if self.micro_usd else None


def show_usd(micro_usd: int) -> str:
    """Write money as a person does: $12.50."""
    return f"${micro_usd / MICRO:,.2f}"


def duration(text: str) -> int:
    """Read `90`, `45m`, `6h` or `1d` as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    seconds = int(float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]) if match else 0
    if seconds < 1:
        raise exits.UsageError(f"{text!r} is no time limit: write seconds, or 45m, 6h, 1d.")
    return seconds


def price_of(where: HubDestination, flavor: str, usd_per_hour: float | None = None) -> Price:
    """Return the price of a flavor, as the Hub's hardware list has it or as it was given."""
    if usd_per_hour is not None:
        return Price(flavor, flavor, math.ceil(usd_per_hour * MICRO / 60))
    known = prices(where)
    if flavor not in known:
        there = ", ".join(f"{price.flavor} (${price.usd_per_hour:.2f}/h)" for price in known.values())
        raise exits.UsageError(f"{where.address} has no flavor {flavor!r}. Choose another --flavor: {there}.")
    return known[flavor]


def prices(where: HubDestination) -> dict[str, Price]:
    """Return the hardware list: flavor -> price."""
    advice = "Give the price yourself with --usd-per-hour, or try again later."
    try:
        machines = ask(where, "Reading the list of machines", where.api.list_jobs_hardware)
        known = {
            machine.name: Price(
                machine.name, _words_for(machine), int(machine.unit_cost_micro_usd), _UNIT_SECONDS[machine.unit_label]
            )
            for machine in machines
        }
    except HubError as error:
        raise HubError(f"{error} {advice}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise HubError(f"The list of machines at {where.address} cannot be read ({error!r}). {advice}") from error
    if not known:
        raise HubError(f"{where.address} lists no machines. {advice}")
    return known


def _words_for(machine: Any) -> str:
    parts = [machine.pretty_name, machine.cpu, machine.ram]
    if machine.accelerator is not None:
        parts.append(f"{machine.accelerator.quantity} x {machine.accelerator.model} {machine.accelerator.vram}")
    return ", ".join(str(part) for part in parts)


# ---------------------------------------------------------------------------------------------------------- one job


@dataclass(frozen=True)
class Order:
    """What a job is asked to do; of its secrets it holds the values, so it is never written down."""

    run: str
    number: int
    image: str
    command: Sequence[str]
    flavor: str
    timeout_s: int
    bucket: str
    env: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)

    @property
    def labels(self) -> dict[str, str]:
        return labels_of(self.run, self.number)


def labels_of(run: str, number: int) -> dict[str, str]:
    return {RUN_LABEL: run, NUMBER_LABEL: str(number)}


def submit(where: HubDestination, namespace: str, order: Order) -> str:
    """Start a job and return its id; where an answer got lost, the job is looked for before it is sent again."""
    patience, begun = where.patience, time.monotonic()
    last: Exception | None = None
    for tried in range(patience.max_tries):
        if last is not None:
            patience.sleep(patience.wait_s(tried, last))
            if found := _find_again(where, namespace, order):
                return found
            if time.monotonic() - begun > SUBMIT_SECONDS:
                break
        try:
            return where.api.run_job(
                image=order.image,
                command=list(order.command),
                env=dict(order.env),
                secrets=dict(order.secrets),
                flavor=order.flavor,
                timeout=order.timeout_s,
                name=f"{order.run}-{order.number}",
                labels=order.labels,
                volumes=[Volume(type="bucket", source=order.bucket, mount_path=MOUNT)],
                namespace=namespace,
            ).id
        except (HfHubHTTPError, httpx.TransportError) as error:
            if not may_pass(error):
                raise _explained(where, "Starting the job", error) from error
            last = error
    if found := _find_again(where, namespace, order):
        return found
    assert last is not None
    raise HubError(
        f"Starting the job failed {tried + 1} times, last with: {sentence(last)} No job was started; "
        "run the same command again when the Hub answers."
    ) from last


def _find_again(where: HubDestination, namespace: str, order: Order) -> str:
    try:
        return find(where, namespace, order.run, order.number)
    except exits.ComposerError as error:
        raise Unsure(
            f"Whether job {order.number} of {order.run} was started cannot be said now: {error} "
            "Going on with the run looks for it."
        ) from error


def find(where: HubDestination, namespace: str, run: str, number: int) -> str:
    """Return the id of a job that carries a run's labels, or an empty text."""
    jobs = ask(
        where,
        "Listing the jobs",
        lambda: list(where.api.list_jobs(labels=labels_of(run, number), namespace=namespace)),
    )
    return jobs[0].id if jobs else ""


def inspect(where: HubDestination, namespace: str, job_id: str) -> JobInfo | None:
    """Return a job as it is now, or None where the Hub does not know it."""
    try:
        return ask(where, f"Looking at job {job_id}", lambda: where.api.inspect_job(job_id=job_id, namespace=namespace))
    except JobNotFoundError:
        return None


def cancel(where: HubDestination, namespace: str, job_id: str) -> None:
    try:
        ask(where, f"Canceling job {job_id}", lambda: where.api.cancel_job(job_id=job_id, namespace=namespace))
    except JobNotFoundError:
        raise JobError(f"{namespace} has no job {job_id} at {where.address}: it is gone already.") from None


def stage_of(job: JobInfo) -> str:
    """Return the stage as a word, also one that the client does not know."""
    return str(getattr(job.status.stage, "value", job.status.stage))


def is_over(job: JobInfo) -> bool:
    return stage_of(job) in _ENDED


# ---------------------------------------------------------------------------------------------------------------- log


def follow(
    where: HubDestination, namespace: str, job_id: str, show: Callable[[str], Any], *, poll_s: float = 2.0
) -> JobInfo | None:
    """Show each line of a job's log once, until the job has ended; return how it is then, None if it is gone.

    A stream that breaks is read again from its start without showing a line twice. A log that cannot be read is no
    reason to let go of a job: then only its stage is looked at.
    """
    shown, failures = 0, 0
    can_read = True
    while True:
        try:
            lines = where.api.fetch_job_logs(job_id=job_id, namespace=namespace, follow=True) if can_read else ()
            for number, line in enumerate(lines):
                if number >= shown:
                    show(line)
                    shown, failures = shown + 1, 0
        except JobNotFoundError:
            return None
        except (HfHubHTTPError, httpx.HTTPError) as error:
            failures += 1
            if not may_pass(error) or failures >= where.patience.max_tries:
                show(f"(the log cannot be read: {sentence(error)} The job goes on.)")
                can_read = False
            else:
                where.patience.sleep(where.patience.wait_s(failures, error))
        job = inspect(where, namespace, job_id)
        if job is None or is_over(job):
            return job
        where.patience.sleep(poll_s)


def log_lines(where: HubDestination, namespace: str, job_id: str, tail: int | None) -> list[str]:
    """Return the lines of a log that are there now."""
    try:
        return ask(
            where,
            f"Reading the log of job {job_id}",
            lambda: list(where.api.fetch_job_logs(job_id=job_id, namespace=namespace, tail=tail)),
        )
    except JobNotFoundError:
        raise JobError(
            f"{namespace} has no job {job_id} at {where.address}. `composer-hub jobs status` lists the runs."
        ) from None


# ---------------------------------------------------------------------------------------------------------------- end


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended: in one word, with its exit code where it is known, and the seconds that are paid."""

    how: str
    exit_code: int | None
    seconds: int
    message: str


def ended(job: JobInfo | None, timeout_s: int, exit_code: int | None = None) -> Ended:
    """Say how a job ended. `exit_code` is what the job itself wrote down, which counts more than the Hub's words."""
    if job is None:
        # Nobody says what it used: the worst is counted, so that no money is spent twice.
        return Ended(FAILED, exit_code, timeout_s, "the Hub does not know the job any more")
    stage = stage_of(job)
    message, seconds = job.status.message or "", seconds_of(job, timeout_s)
    if stage == "COMPLETED":
        return Ended(DONE, 0, seconds, "")
    if stage in ("CANCELED", "DELETED"):
        return Ended(CANCELED, exit_code, seconds, message)
    if exit_code is None and (said := _EXIT_CODE.search(message)):
        exit_code = int(said[1])
    was_killed = exit_code is None or exit_code in _KILLED
    words = message.lower()
    is_time = "timeout" in words or "timed out" in words or seconds >= timeout_s - min(_SLACK_SECONDS, timeout_s // 10)
    if exit_code == exits.STOPPED or (was_killed and is_time):
        return Ended(OUT_OF_TIME, exit_code, seconds, message)
    return Ended(FAILED, exit_code, seconds, message)


def seconds_of(job: JobInfo, timeout_s: int) -> int:
    """Return how long a job ran, which is what is paid; the time limit where nobody says."""
    if job.durations is not None and job.durations.running_secs is not None:
        return job.durations.running_secs + 1  # the Hub rounds down
    if job.durations is not None or job.started_at is None:
        return 0  # it never ran
    if job.finished_at is None:
        return timeout_s
    return math.ceil((job.finished_at - job.started_at).total_seconds())


# ------------------------------------------------------------------------------------------------------------- bucket


def prepare_bucket(where: HubDestination, bucket: str) -> None:
    """Make sure a run's bucket exists and is private."""

    def make() -> bool:
        where.api.create_bucket(bucket, private=True, exist_ok=True)
        return bool(where.api.bucket_info(bucket).private)

    if not ask(where, f"Creating the bucket {bucket}", make):
        raise HubRefused(f"The bucket {bucket} is public: make it private or choose another --run. Nothing was sent.")


def upload(where: HubDestination, bucket: str, files: Mapping[str, bytes | Path]) -> None:
    add: list[Any] = [(content, path) for path, content in sorted(files.items())]
    ask(where, f"Uploading to the bucket {bucket}", lambda: where.api.batch_bucket_files(bucket, add=add))


def names_in(where: HubDestination, bucket: str, folder: str) -> list[str]:
    """Return the paths of a bucket below a folder."""

    def walk() -> list[str]:
        return [item.path for item in where.api.list_bucket_tree(bucket, prefix=folder, recursive=True)]

    return ask(where, f"Listing the bucket {bucket}", walk)


def read_small(where: HubDestination, bucket: str, path: str, scratch: Path) -> bytes | None:
    """Return a file of a bucket, or None where there is none."""
    local = scratch / Path(path).name

    def download() -> None:
        found = list(where.api.get_bucket_paths_info(bucket, [path]))
        if found:
            where.api.download_bucket_files(bucket, [(found[0], local)])

    ask(where, f"Reading {path} of the bucket {bucket}", download)
    return local.read_bytes() if local.is_file() else None


# ------------------------------------------------------------------------------------------------------------ asking


def ask(where: HubDestination, what: str, call: Callable[[], T]) -> T:
    """Run a call patiently; say plainly what a refusal means."""
    try:
        return where.patience(what, call)
    except JobNotFoundError:
        raise
    except HfHubHTTPError as error:
        raise _explained(where, what, error) from error


def _explained(where: HubDestination, what: str, error: Exception) -> Exception:
    status = status_of(error)
    if status == 401:
        return HubRefused(f"{what}: the token is not valid at {where.address}. Log in with `hf auth login`.")
    if status == 402:
        return HubRefused(f"{what}: {sentence(error)} Jobs are paid in advance: add credit to the account, or a plan.")
    if status == 403:
        return HubRefused(f"{what}: {sentence(error)}{_how_to_allow(where)}")
    if status == 412:
        return HubError(f"{what}: {sentence(error)} It changed meanwhile: run the same command again.")
    if status == 501:
        return HubError(f"{what}: {sentence(error)}{_without_buckets(where)}")
    return HubError(f"{what}: {where.address} answered {status}: {sentence(error)}")


def _how_to_allow(where: HubDestination) -> str:
    if where.name == "local":
        return (
            " In short: `composer-hub hub stop`, then the same command as "
            "`composer-hub run --allow-local-jobs -- composer-hub jobs …`."
        )
    return " Use a token that may run jobs and write there, or another --namespace."


def _without_buckets(where: HubDestination) -> str:
    return " Checkpoints need buckets: serve without --no-xet." if where.name == "local" else ""
