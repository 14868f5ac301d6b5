"""The cost of a run, and everything that can be checked before it starts.

In: `JobOptions`, the user's request. Out: a `JobPlan`, or an error that would otherwise come hours later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

import composer_hub
from composer_hub import exits, extras
from composer_hub.hub import HubDestination, HubError
from composer_hub.jobs.inputs import MOUNT, TrainingRequest, read_request
from composer_hub.jobs.runs import RunSpec
from composer_hub.money import NANO, MachinePrice, cap_of, show_usd, to_usd
from composer_hub.options import option, parsed_seconds
from composer_hub.train.checks import check_spelling

# The header of `scripts/train.py` gives `hf jobs uv run` the same values.
DEFAULT_FLAVOR, DEFAULT_TIMEOUT, TOKEN = "a100-large", "6h", "HF_TOKEN"
MIN_JOB_SECONDS = 600
"""Shorter jobs are not started: a machine needs minutes before its first step."""
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{30,}")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600}


@dataclass(frozen=True)
class JobOptions:
    """A request to train by jobs. `secrets` maps names to values, which are handed only to the Hub."""

    train: Sequence[str]  # the words of the training command
    secrets: Mapping[str, str] = field(repr=False)
    run: str = option("", "Name of the run (default: that of the model repository).")
    flavor: str = option("", f"Machine (default: {DEFAULT_FLAVOR}).")
    timeout: str = option(DEFAULT_TIMEOUT, "Time limit of one job: 45m, 6h, 1d.")
    max_usd: float | None = option(None, "Cap on the cost of all jobs of the run. Required.")
    image: str = option("python:3.12", "Docker image with Python and pip.")
    package: str = option("", "Wheel, checkout or requirement (default: this package).")
    code: Sequence[Path] = option(
        (), "Python module or package to send along, for environments and rewards.", flag="--with"
    )
    accelerate: Sequence[str] = ()  # options of accelerate launch
    usd_per_hour: float | None = option(None, "Price of the machine (default: the Hub's).")


@dataclass(frozen=True)
class JobPlan:
    """A run that may start: its specification, the price of its machine, and the training command."""

    spec: RunSpec
    price: MachinePrice
    request: TrainingRequest

    def as_row(self) -> dict[str, Any]:
        affordable = self.price.timeout_for(self.spec.cap)
        return {
            "run": self.spec.run,
            "flavor": self.spec.flavor,
            "usd_per_hour": self.price.usd_per_hour,
            "hours_per_job": self.spec.timeout_s / 3600,
            "usd_per_job": to_usd(self.price.worst_case(self.spec.timeout_s)),
            "max_usd": to_usd(self.spec.cap),
            "max_hours": None if affordable is None else affordable / 3600,
            "bucket": self.spec.bucket,
            "publishes": [repo for repo, _ in self.spec.targets],
            "secrets": self.spec.secrets,
        }


def make_plan(where: HubDestination, namespace: str, options: JobOptions) -> JobPlan:
    """Check a request and its cap. Nothing is created."""
    request = read_request(options.train, options.code)
    _check_secrets(options)
    if not extras.missing("transformers", "trl"):  # a machine that only rents others may not have them
        check_spelling(options.train)
    run = options.run or re.sub(r"[^A-Za-z0-9_-]", "-", request.targets[0][0].split("/")[1])
    if not _RUN.fullmatch(run):
        raise exits.UsageError(f"{run!r} is not a run name: use up to 60 letters, digits, '-' and '_' for --run.")
    if options.max_usd is None:
        raise exits.UsageError("Set the most that the run may cost with --max-usd. Nothing was started.")
    flavor = options.flavor or ("local" if where.name == "local" else DEFAULT_FLAVOR)
    price = find_price(where, flavor, options.usd_per_hour)
    cost = ["--usd_per_hour", f"{price.usd_per_hour:g}"] if price.unit_cost else []
    # A log cannot redraw a progress bar.
    bars = [] if "disable_tqdm" in request.options else ["--disable_tqdm", "true"]
    # A job of the embedded Hub is a process of this machine and imports the package from here.
    here = [str(Path(composer_hub.__file__).parents[1])] if where.name == "local" else []
    spec = RunSpec(
        run=run,
        namespace=namespace,
        targets=[list(target) for target in request.targets],
        words=[*request.words, "--to", "hub", "--resume", "true", *cost, *bars],
        flavor=flavor,
        cap=cap_of(options.max_usd),
        timeout_s=duration(options.timeout),
        image=options.image,
        usd_per_hour=options.usd_per_hour,
        secrets=sorted(options.secrets),
        python_path=os.pathsep.join([f"{MOUNT}/{request.code}", *here] if request.code else here),
        accelerate=list(options.accelerate),
    )
    if next_timeout(price, spec.timeout_s, spec.cap) is None:
        raise exits.Refused(
            f"--max-usd {show_usd(spec.cap)} does not pay for {MIN_JOB_SECONDS // 60} minutes of {flavor} "
            f"(${price.usd_per_hour:.2f}/h). Raise it or choose a cheaper --flavor. Nothing was started."
        )
    return JobPlan(spec, price, request)


def next_timeout(price: MachinePrice, timeout_s: int, left: int) -> int | None:
    """Return the time limit of a job that money pays for in the worst case; None if that is too short."""
    affordable = price.timeout_for(left)
    if affordable is None:
        return timeout_s
    return min(timeout_s, affordable) if affordable >= min(timeout_s, MIN_JOB_SECONDS) else None


def as_seen_by_job(where: HubDestination, secrets: Mapping[str, str]) -> HubDestination:
    """Return the same Hub with the rights of the job."""
    return replace(where, api=HfApi(endpoint=where.api.endpoint, token=secrets[TOKEN]))


def duration(text: str) -> int:
    """Return a time limit in whole seconds, at least one."""
    seconds = int(parsed_seconds(text, "time limit"))
    if seconds < 1:
        raise exits.UsageError(f"time limit {text}: a job needs at least a second.")
    return seconds


def find_price(where: HubDestination, flavor: str, usd_per_hour: float | None = None) -> MachinePrice:
    """Return the price of a flavor from the Hub's hardware list, unless a price is given."""
    if usd_per_hour is not None:
        return MachinePrice.hourly(usd_per_hour)
    try:
        machines = where.ask("Listing the machines", where.api.list_jobs_hardware)
        prices = {
            machine.name: MachinePrice(machine.unit_cost_micro_usd * NANO // 10**6, _UNIT_SECONDS[machine.unit_label])
            for machine in machines
        }
    except (HubError, KeyError, TypeError) as error:
        raise HubError(
            f"{where.address} has no readable list of prices: {error!r}. Set the price with --usd-per-hour."
        ) from error
    if flavor not in prices:
        choices = ", ".join(f"{name} (${price.usd_per_hour:.2f}/h)" for name, price in prices.items()) or "none"
        raise exits.UsageError(f"{where.address} has no flavor {flavor!r}. Choose another --flavor: {choices}.")
    return prices[flavor]


def _check_secrets(options: JobOptions) -> None:
    """Refuse a secret in the command, where everyone who sees the job could read it."""
    words = [*options.train, *options.accelerate]
    names = [name for name, value in options.secrets.items() if value and any(value in word for word in words)]
    if names or any(_TOKEN.search(word) for word in words):
        subject = f"The value of the secret {names[0]}" if names else "Text that looks like a token"
        raise exits.Refused(
            f"{subject} is in the command, where others can read it. Pass it by name with --secret "
            f"{names[0] if names else 'NAME'}. Nothing was sent."
        )
