"""An executor on the Hub's machines: one job per group of shards, under a cap on money.

Inputs are files of dataset revisions, which jobs mount, so the plan names `hf://` sources. The plan goes into a private
bucket without its secrets, which jobs get as a secret variable. A job writes the result of a shard into the bucket as
one batch, and this machine fetches it from there. A plan whose inputs are on this machine runs on this machine.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import Volume
from huggingface_hub.errors import HfHubHTTPError

from composer_hub import exits
from composer_hub.hub import Destination, HubDestination
from composer_hub.jobs.inputs import MOUNT
from composer_hub.jobs.package import find_package
from composer_hub.jobs.plan import duration, find_price
from composer_hub.jobs.runs import is_over, list_files, prepare_bucket, read_files, write_files
from composer_hub.money import cap_of, show_usd
from composer_hub.shards import Executor, Input, Staging, in_processes
from composer_hub.shards.plan import MANIFEST

_SCRIPT = (
    'set -e; if [ -n "$COMPOSER_PACKAGE" ]; then python -m pip install --quiet --disable-pip-version-check '
    '--root-user-action=ignore "$COMPOSER_PACKAGE"; fi; exec python -m composer_hub.jobs.fan_out_inside "$@"'
)
_DATA = "/composer-data"


@dataclass(frozen=True)
class FanOut:
    """The machines for the shards of one command."""

    jobs: int = 4  # machines at once
    flavor: str = ""  # default: cpu-upgrade
    timeout: str = "1h"  # of one job
    max_usd: float | None = None
    image: str = "python:3.12"
    package: str = ""
    namespace: str = ""
    poll_s: float = 5.0


def on_jobs(where: Destination | None, workers: int = 0, **options: Any) -> Executor:
    """Return an executor with jobs at a Hub; `workers` are for plans whose inputs are on this machine."""
    if not isinstance(where, HubDestination):
        raise exits.UsageError("--executor jobs runs at a Hub: use --to hub, or --to local with its local jobs.")
    try:
        fan_out = FanOut(**options)
    except TypeError:
        known = ", ".join(FanOut.__dataclass_fields__)
        raise exits.UsageError(f"--executor jobs has these --engine options: {known}.") from None
    if fan_out.max_usd is None:
        raise exits.UsageError("Set the most that all jobs may cost: --engine max_usd=2. Nothing was started.")

    def execute(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        inputs = [one for number in numbers for one in staging.inputs(number)]
        datasets = {dataset_of(one) for one in inputs if not one.about.get("anywhere")}
        if "" in datasets:
            _refuse_local_files(staging, numbers)
            in_processes(workers)(staging, numbers, watch)
        else:
            _FanOutRun(where, fan_out, staging).carry_out(numbers, sorted(datasets), watch)

    return execute


def dataset_of(one: Input) -> str:
    """Return the dataset revision that an input is a file of, as `owner/name@commit`, or ""."""
    return str(one.about.get("dataset", ""))


def _refuse_local_files(staging: Staging, numbers: Sequence[int]) -> None:
    for number in numbers:
        for one in staging.inputs(number):
            if not dataset_of(one) and staging.folder.parent not in Path(one.name).parents:
                raise exits.UsageError(
                    f"--executor jobs reads datasets of the Hub, and {one.name} is a file of this machine. Name "
                    "hf://datasets/OWNER/NAME (`ingest --raw` puts raw sessions into a private one), or choose another "
                    "--executor."
                )


@dataclass(frozen=True)
class _FanOutRun:
    where: HubDestination
    options: FanOut
    staging: Staging

    def carry_out(self, numbers: Sequence[int], datasets: Sequence[str], watch: Callable[[], None]) -> None:
        where, plan = self.where, self.staging.plan
        owner = self.options.namespace or where.ask("Reading the account", where.api.whoami)["name"]
        bucket = f"{owner}/composer-shards-{plan.plan_id}"
        prepare_bucket(where, bucket)
        self._fetch(bucket)
        missing = [number for number in numbers if number not in self.staging.done()]
        groups = [missing[first :: self.options.jobs] for first in range(self.options.jobs)]
        groups = [group for group in groups if group]
        self._check_cap(len(groups))
        package, files = find_package(where, self.options.package, named="")
        paths = [self.staging.folder / "plan.json"]
        for number in missing:
            paths.append(self.staging.folder / "inputs" / f"{number:05d}.json")
            paths += sorted(self.staging.given(number).glob("*"))
        names = {path.relative_to(self.staging.folder).as_posix(): path for path in paths}
        write_files(where, bucket, {**files, **names})
        jobs: dict[str, Sequence[int]] = {}
        try:
            for group in groups:
                jobs[self._start(owner, bucket, package, group, datasets)] = group
            while jobs:
                ended = [job for job in jobs if self._is_over(job, owner)]
                self._fetch(bucket)
                for job in ended:
                    self._note_end(job, jobs.pop(job))
                watch()
                if jobs:
                    time.sleep(self.options.poll_s)
        finally:
            for job in jobs:  # what they have finished is in the bucket, and the next run fetches it
                where.api.cancel_job(job_id=job, namespace=owner)
        if not self.staging.missing():
            where.ask(f"Deleting the bucket {bucket}", lambda: where.api.delete_bucket(bucket))

    def _check_cap(self, num_jobs: int) -> None:
        price = find_price(self.where, self._flavor)
        cost, cap = num_jobs * price.worst_case(duration(self.options.timeout)), cap_of(self.options.max_usd, "max_usd")
        if cost > cap:
            raise exits.Refused(
                f"{num_jobs} jobs of {self.options.timeout} on {self._flavor} may cost {show_usd(cost)}, more than "
                f"max_usd={show_usd(cap)}. Raise it, or lower --engine jobs= or timeout=. Nothing was started."
            )

    @property
    def _flavor(self) -> str:
        return self.options.flavor or ("local" if self.where.name == "local" else "cpu-upgrade")

    def _start(self, owner: str, bucket: str, package: str, numbers: Sequence[int], datasets: Sequence[str]) -> str:
        mounts = {dataset: f"{_DATA}/{number}" for number, dataset in enumerate(datasets)}
        volumes = [Volume(type="bucket", source=bucket, mount_path=MOUNT, read_only=True)]
        for dataset, path in mounts.items():
            repo, _, revision = dataset.partition("@")
            volumes.append(Volume(type="dataset", source=repo, revision=revision, mount_path=path, read_only=True))
        api, plan = self.where.api, self.staging.plan
        try:
            job = api.run_job(
                image=self.options.image,
                command=["sh", "-c", _SCRIPT, "composer-hub", *map(str, numbers)],
                env=_environment(self.where, bucket, package, mounts),
                secrets={
                    "HF_TOKEN": str(api.token or ""),
                    "COMPOSER_SHARDS_PRIVATE": base64.b64encode(self.staging.private()).decode(),
                },
                flavor=self._flavor,
                timeout=duration(self.options.timeout),
                labels={"composer-shards": plan.plan_id},
                volumes=volumes,
                namespace=owner,
            )
        except HfHubHTTPError as error:  # not asked again: it may have been started, and two jobs cost twice
            raise self.where.explained("Starting a job", error) from error
        return job.id

    def _note_end(self, job: str, numbers: Sequence[int]) -> None:
        """Name the job whose shards have neither a result nor their own failure."""
        silent = {*numbers} - self.staging.done() - self.staging.notes("failed").keys()
        for number in silent:
            error = f"job {job} ended without it; `hf jobs logs {job}` shows why"
            self.staging.note("failed", number, {"error": error, "where": job})

    def _is_over(self, job: str, owner: str) -> bool:
        api = self.where.api
        return is_over(self.where.ask("Reading a job", lambda: api.inspect_job(job_id=job, namespace=owner)))

    def _fetch(self, bucket: str) -> None:
        """Bring results and notes of failures from the bucket; each appears here by one rename."""
        staging, done = self.staging, self.staging.done()
        found: dict[int, list[str]] = {}
        for path in list_files(self.where, bucket, "results"):
            found.setdefault(int(path.split("/")[1]), []).append(path)
        for number, paths in found.items():
            if number in done or f"results/{number:05d}/{MANIFEST}" not in paths:
                continue
            draft = staging.folder / "results" / f".{number:05d}-{secrets.token_hex(6)}"
            draft.mkdir()
            self._download(bucket, [(path, draft / Path(path).name) for path in paths])
            draft.rename(staging.result(number))
        failed = list(list_files(self.where, bucket, "failed"))
        for path, text in read_files(self.where, bucket, failed).items() if failed else ():
            staging.note("failed", int(Path(path).stem), json.loads(text))

    def _download(self, bucket: str, pairs: list[Any]) -> None:
        api = self.where.api
        self.where.ask("Fetching a result", lambda: api.download_bucket_files(bucket, pairs))


def _environment(where: HubDestination, bucket: str, package: str, mounts: Mapping[str, str]) -> dict[str, str]:
    import composer_hub

    # A job of the embedded Hub is a process of this machine and imports the package from here.
    here = {"PYTHONPATH": str(Path(composer_hub.__file__).parents[1])} if where.name == "local" else {}
    return {
        **here,
        "COMPOSER_SHARDS_BUCKET": bucket,
        "COMPOSER_SHARDS_PLAN": MOUNT,
        "COMPOSER_SHARDS_MOUNTS": json.dumps(mounts),
        "COMPOSER_PACKAGE": package,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONUNBUFFERED": "1",
    }
