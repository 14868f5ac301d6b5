"""The cost of a run, and everything that can be checked before it starts.

In: `JobOptions`, the user's request. Out: a `JobPlan`, or an error that would otherwise come hours later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

import composer_hub
from composer_hub import exits
from composer_hub.hub import HubDestination, HubError
from composer_hub.jobs.inputs import MOUNT, TrainingRequest, check_inputs, check_targets, digest, read_request
from composer_hub.jobs.runs import bucket_of
from composer_hub.money import NANO, MachinePrice, cap_of, show_usd, to_usd

# The header of `scripts/train.py` gives `hf jobs uv run` the same values.
DEFAULT_FLAVOR, DEFAULT_TIMEOUT, TOKEN, EXTRAS = "a100-large", "6h", "HF_TOKEN", "[train,report]"
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{30,}")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600}


@dataclass(frozen=True)
class JobOptions:
    """A request to train by jobs. `secrets` maps names to values, which are handed only to the Hub."""

    train: Sequence[str]  # the words of the training command
    secrets: Mapping[str, str] = field(repr=False)
    run: str = ""
    flavor: str = ""
    timeout: str = DEFAULT_TIMEOUT  # of one job
    hours: float | None = None  # expected in all; None: one job
    max_usd: float | None = None
    max_jobs: int = 20
    image: str = "python:3.12"
    package: str = ""
    code: Sequence[Path] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    accelerate: Sequence[str] = ()
    usd_per_hour: float | None = None  # None: the Hub's price


@dataclass(frozen=True)
class JobPlan:
    """The machine, hours and money of a run."""

    run: str
    request: TrainingRequest
    flavor: str
    price: MachinePrice
    timeout_s: int
    hours: float
    missing: Sequence[str] = ()  # repositories that the launch will create

    @property
    def cost(self) -> int:
        """Return the expected cost in nano-dollars."""
        return self.price.cost(self.hours * 3600)

    def row(self, namespace: str, options: JobOptions) -> dict[str, Any]:
        return {
            "run": self.run,
            "flavor": self.flavor,
            "usd_per_hour": self.price.usd_per_hour,
            "hours": self.hours,
            "jobs": max(1, -(-int(self.hours * 3600) // self.timeout_s)),
            "total_usd": to_usd(self.cost),
            "max_usd": options.max_usd,
            "bucket": bucket_of(namespace, self.run),
            "publishes": [repo for repo, _ in self.request.targets],
            "secrets": sorted(options.secrets),
        }

    def check(self, max_usd: float | None) -> int:
        """Return the cap in nano-dollars; refuse a plan without a cap or above it."""
        if max_usd is None:
            raise exits.UsageError("Set the most that the run may cost with --max-usd. Nothing was started.")
        cap = cap_of(max_usd)
        if self.cost > cap:
            raise exits.Refused(
                f"{self.hours:g} h of {self.flavor} cost {show_usd(self.cost)}, more than --max-usd {show_usd(cap)}. "
                "Raise it, plan fewer --hours, or choose a cheaper --flavor. Nothing was started."
            )
        return cap


def make_plan(where: HubDestination, options: JobOptions, *, create: bool = False) -> JobPlan:
    """Check a request and compute its cost. With `create`, also create the repositories that it publishes to."""
    request = read_request(options.train, options.code)
    _check_secrets(options)
    run = options.run or re.sub(r"[^A-Za-z0-9_-]", "-", request.targets[0][0].split("/")[1])
    if not _RUN.fullmatch(run):
        raise exits.UsageError(f"{run!r} is not a run name: use up to 60 letters, digits, '-' and '_' for --run.")
    flavor = options.flavor or ("local" if where.name == "local" else DEFAULT_FLAVOR)
    price, timeout_s = find_price(where, flavor, options.usd_per_hour), duration(options.timeout)
    plan = JobPlan(run, request, flavor, price, timeout_s, options.hours or timeout_s / 3600)
    if create:
        plan.check(options.max_usd)  # before anything is created on the Hub
    as_job = as_seen_by_job(where, options.secrets)
    check_inputs(as_job, request.options)
    return replace(plan, missing=check_targets(as_job, request, create=create))


def as_seen_by_job(where: HubDestination, secrets: Mapping[str, str]) -> HubDestination:
    """Return the same Hub with the rights of the job."""
    return replace(where, api=HfApi(endpoint=where.api.endpoint, token=secrets[TOKEN]))


def find_package(where: HubDestination, package: str) -> tuple[str, dict[str, bytes]]:
    """Return the argument of pip inside a job, and the wheel to upload if it is one."""
    if where.name == "local":
        if package:
            raise exits.UsageError("A job of the embedded Hub uses the installed package: leave --package out.")
        return "", {}
    if package.endswith(".whl"):
        if not Path(package).is_file():
            raise exits.UsageError(f"There is no wheel {package}. Build one with `pip wheel --no-deps .`.")
        wheel = Path(package).read_bytes()
        path = f"package/{digest(wheel)}/{Path(package).name}"
        return f"{MOUNT}/{path}{EXTRAS}", {path: wheel}
    if not package and (Path(composer_hub.__file__).parents[1] / "pyproject.toml").is_file():
        raise exits.UsageError(
            "A job cannot install a checkout. Build a wheel with `pip wheel --no-deps .` and pass it as --package."
        )
    return package or f"composer-hub{EXTRAS}=={composer_hub.__version__}", {}


def duration(text: str) -> int:
    """Read `90`, `45m`, `6h` or `1d` as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    seconds = int(float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]) if match else 0
    if seconds < 1:
        raise exits.UsageError(f"{text!r} is not a time limit: write seconds, or 45m, 6h, 1d.")
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
    """Refuse a secret where everyone who sees the job could read it."""
    for place, words in (("the command", [*options.train, *options.accelerate]), ("--env", [*options.env.values()])):
        names = [name for name, value in options.secrets.items() if value and any(value in word for word in words)]
        if names or any(_TOKEN.search(word) for word in words):
            subject = f"The value of the secret {names[0]}" if names else "Text that looks like a token"
            raise exits.Refused(
                f"{subject} is in {place}, where others can read it. Pass it by name with --secret "
                f"{names[0] if names else 'NAME'}. Nothing was sent."
            )
