"""What a run by jobs would take, before anything is started: machine, hours, dollars, and whether it can work at all.

In: a `Wish`, what a person asks for. Out: a `Plan`, or a sentence about what would fail hours later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from composer_hub import exits
from composer_hub.hub import HubDestination
from composer_hub.jobs import client as jobs
from composer_hub.jobs.client import MICRO, Price, show_usd
from composer_hub.jobs.inputs import Request, check_inputs, check_targets, read_request
from composer_hub.jobs.runs import bucket_of, check_run

# `scripts/train.py` says the same to `hf jobs uv run`, in its header.
DEFAULT_FLAVOR, DEFAULT_TIMEOUT, TOKEN = "a100-large", "6h", "HF_TOKEN"
IMAGE = "python:3.12"
_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{30,}")


@dataclass(frozen=True)
class Wish:
    """What a person asks for; `given` are the secrets by name, with the values that only this process knows."""

    words: Sequence[str]
    given: Mapping[str, str] = field(repr=False)
    run: str = ""
    namespace: str = ""
    flavor: str = ""
    timeout_s: int = 0
    hours: float = 0.0
    max_usd: float | None = None
    max_jobs: int = 20
    image: str = IMAGE
    package: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    code: Sequence[Path] = ()
    accelerate: Sequence[str] = ()
    usd_per_hour: float | None = None


@dataclass(frozen=True)
class Plan:
    """What a run would take: machine, hours and money; nothing is started by making one."""

    run: str
    namespace: str
    request: Request
    price: Price
    timeout_s: int
    hours: float
    missing: Sequence[str] = ()

    @property
    def micro_usd(self) -> int:
        return self.price.of(self.hours * 3600)

    def describe(self, wish: Wish) -> dict[str, Any]:
        return {
            "run": self.run,
            "flavor": self.price.flavor,
            "machine": self.price.machine,
            "usd_per_hour": self.price.usd_per_hour,
            "hours": self.hours,
            "jobs": max(1, -(-int(self.hours * 3600) // self.timeout_s)),
            "machine_usd": self.micro_usd / MICRO,
            # Training asks no outside teacher: replay has its own command and cap.
            "teacher_usd": 0.0,
            "total_usd": self.micro_usd / MICRO,
            "max_usd": wish.max_usd,
            "bucket": bucket_of(self.namespace, self.run),
            "publishes": [repo for repo, _ in self.request.targets],
            "secrets": sorted(wish.given),
        }

    def check(self, max_usd: float | None) -> int:
        """Return the cap in micro-dollars; refuse a plan without one, and one that it does not cover."""
        if max_usd is None:
            raise exits.UsageError("Name the most that the run may cost with --max-usd. Nothing was started.")
        cap = round(max_usd * MICRO)
        if self.micro_usd > cap:
            raise exits.Refused(
                f"{self.hours:g} h of {self.price.flavor} cost {show_usd(self.micro_usd)}, more than --max-usd "
                f"{show_usd(cap)}. Raise it, plan fewer --hours, or choose a cheaper --flavor. Nothing was started."
            )
        return cap


def make_plan(where: HubDestination, namespace: str, wish: Wish, *, is_made: bool = False) -> Plan:
    """Check what a run would need, and say what it would cost. With `is_made`, its repositories are made."""
    request = read_request(wish.words, wish.code)
    _check_secrets(wish)
    run = check_run(wish.run or re.sub(r"[^A-Za-z0-9_-]", "-", request.repo.split("/")[1]))
    flavor = wish.flavor or ("local" if where.name == "local" else DEFAULT_FLAVOR)
    timeout_s = wish.timeout_s or jobs.duration(DEFAULT_TIMEOUT)
    hours = wish.hours or timeout_s / 3600
    price = jobs.price_of(where, flavor, wish.usd_per_hour)
    plan = Plan(run, namespace, request, price, timeout_s, hours)
    if is_made:
        # Before anything is made at the Hub.
        plan.check(wish.max_usd)
    as_job = as_job_sees(where, wish.given)
    check_inputs(as_job, request.told)
    missing = check_targets(as_job, request, is_made=is_made)
    return replace(plan, missing=missing)


def as_job_sees(where: HubDestination, given: Mapping[str, str]) -> HubDestination:
    """Return the same Hub with the rights that a job will have."""
    return replace(where, api=HfApi(endpoint=where.api.endpoint, token=given[TOKEN]))


def _check_secrets(wish: Wish) -> None:
    """Refuse a secret where everyone who sees the job would see it."""
    for place, words in (("the command", [*wish.words, *wish.accelerate]), ("--env", list(wish.env.values()))):
        named = [name for name, value in wish.given.items() if value and any(value in word for word in words)]
        if named or any(_TOKEN.search(word) for word in words):
            what = f"The value of the secret {named[0]}" if named else "What looks like a token"
            raise exits.Refused(
                f"{what} stands in {place}, where it could be read: pass it by name, with --secret "
                f"{named[0] if named else 'NAME'}. Nothing was sent."
            )
