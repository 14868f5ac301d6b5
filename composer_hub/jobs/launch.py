"""A training run carried out by jobs: started, followed, and started again until it is done.

In: a `Wish` (what a person asks for) and a `HubDestination`. Each job trains until shortly before its time limit, saves
and leaves with exit code 3; the next one goes on from the same bucket. `drive` is the loop behind launch and resume.
"""

from __future__ import annotations

import json
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.hub import HubDestination
from composer_hub.jobs import client as jobs
from composer_hub.jobs.client import MICRO, MOUNT, Order, show_usd
from composer_hub.jobs.inputs import digest
from composer_hub.jobs.plan import Plan, Wish, as_job_sees, make_plan
from composer_hub.jobs.runs import (
    CLAIM_SECONDS,
    Attempt,
    JobRun,
    RunStore,
    age_s,
    bucket_of,
    now,
    seconds_to_go_on,
    settle,
)
from composer_hub.jobs.wheels import own_wheel

EXTRAS = "[train,report]"
_CHECKPOINT = re.compile(r"output/checkpoint-(\d+)/COMPLETE\.json")
_LOOKS = 4

# The embedded Hub runs a job beside the libraries that are there: installing would change the very environment that
# serves it, so the wheel is unpacked in the job's own folder.
_INSTALL = {
    "hub": 'python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore "$COMPOSER_PACKAGE"',
    "local": 'python -m zipfile -e "$COMPOSER_PACKAGE" package; export PYTHONPATH="$PWD/package:$PYTHONPATH"',
}
_SCRIPT = 'set -e; export COMPOSER_JOB_STARTED=$(date +%s); {install}; exec python -m composer_hub.jobs.inside "$@"'


def training_program(record: JobRun) -> list[str]:
    """Return what a job of a run carries out."""
    # Quiet: a job that stops in time is no reason for a traceback of the launcher.
    return ["accelerate", "launch", "--quiet", *record.accelerate, "-m", "composer_hub.jobs"]


@dataclass(frozen=True)
class Site:
    """Where a run's jobs are, what they carry out, and how they are watched."""

    where: HubDestination
    namespace: str
    program: Callable[[JobRun], list[str]] = training_program
    show: Callable[[str], Any] = lambda line: None
    note: Callable[[str], Any] = lambda text: None
    poll_s: float = 2.0
    reach: str = ""

    @property
    def store(self) -> RunStore:
        return RunStore(self.where, self.namespace)


def site_of(where: HubDestination, namespace: str = "", **watch: Any) -> Site:
    """Return the jobs of a namespace; by default that of the token."""
    name = namespace or jobs.ask(where, "Asking who you are", where.api.whoami)["name"]
    reach = (" --to hub" if where.name == "hub" else "") + (f" --namespace {namespace}" if namespace else "")
    return Site(where, name, reach=reach, **watch)


# -------------------------------------------------------------------------------------------------------------- launch


def launch(site: Site, wish: Wish, *, detach: bool = False) -> JobRun:
    """Start a run, or go on with the one of that name, and see it through."""
    plan = make_plan(site.where, site.namespace, wish, is_made=True)
    cap = plan.check(wish.max_usd)
    bucket = bucket_of(site.namespace, plan.run)
    known = site.store.read(plan.run)
    if known is None:
        site.store.prepare()
        jobs.prepare_bucket(site.where, bucket)
        _check_fresh(site, plan.run, bucket)
        with tempfile.TemporaryDirectory() as folder:
            package, wheel = _package(site, wish.package, Path(folder))
            jobs.upload(site.where, bucket, plan.request.files | wheel)
        known = _new_run(site, wish, plan, package, cap)
    _check_same(known, plan, wish, cap)
    return drive(site, plan.run, wish.given, is_asked=True, detach=detach)


def _check_fresh(site: Site, run: str, bucket: str) -> None:
    """Refuse a bucket with the checkpoints of a run whose record is gone: the new one would go on from them."""
    if jobs.names_in(site.where, bucket, "output") and site.store.read(run) is None:
        raise exits.UsageError(
            f"The bucket {bucket} holds the results of an earlier run {run}: choose another --run, or delete it with "
            f"`hf buckets delete {bucket}`."
        )


def _package(site: Site, asked: str, folder: Path) -> tuple[str, dict[str, bytes]]:
    """Return what the job installs, and the wheel to upload where it is one."""
    if asked and not asked.endswith(".whl"):
        if site.where.name == "local":
            raise exits.UsageError("A job of the embedded Hub takes a wheel: leave --package out, or name a .whl file.")
        return asked, {}
    wheel = Path(asked) if asked else own_wheel(folder)
    if not wheel.is_file():
        raise exits.UsageError(f"There is no wheel {wheel}. Leave --package out to send the package that runs here.")
    content = wheel.read_bytes()
    path = f"package/{digest(content)}/{wheel.name}"
    return f"{MOUNT}/{path}" + (EXTRAS if site.where.name == "hub" else ""), {path: content}


def _new_run(site: Site, wish: Wish, plan: Plan, package: str, cap: int) -> JobRun:
    cost = ["--usd_per_hour", f"{plan.price.usd_per_hour:g}"] if plan.price.micro_usd else []
    # A log has no line to draw a bar over and over on.
    bars = [] if "disable_tqdm" in plan.request.told else ["--disable_tqdm", "true"]
    fresh = JobRun(
        run=plan.run,
        namespace=site.namespace,
        targets=[list(target) for target in plan.request.targets],
        words=[*plan.request.words, "--to", "hub", "--resume", "true", *cost, *bars],
        flavor=plan.price.flavor,
        micro_usd=plan.price.micro_usd,
        unit_s=plan.price.unit_s,
        image=wish.image,
        package=package,
        timeout_s=plan.timeout_s,
        max_jobs=wish.max_jobs,
        cap_micro_usd=cap,
        reach=site.reach,
        is_price_given=wish.usd_per_hour is not None,
        secrets=sorted(wish.given),
        env=_env(wish, plan),
        accelerate=list(wish.accelerate),
    )
    run = site.store.change(plan.run, lambda before: None if before else fresh, "begin")
    assert run is not None
    return run


def _env(wish: Wish, plan: Plan) -> dict[str, str]:
    code = {"PYTHONPATH": f"{MOUNT}/{plan.request.code}"} if plan.request.code else {}
    return {**wish.env, **code}


def _check_same(known: JobRun, plan: Plan, wish: Wish, cap: int) -> None:
    """Refuse another run under the same name."""
    words = plan.request.words
    there = (known.words[: len(words)], known.env, known.accelerate, known.flavor, known.cap_micro_usd)
    if there != (words, _env(wish, plan), list(wish.accelerate), plan.price.flavor, cap):
        raise exits.UsageError(
            f"There is a run {known.run} already, told otherwise ({show_usd(known.spent)} of "
            f"{show_usd(known.cap_micro_usd)} spent, {known.state}). {known.command('resume')} goes on with it; "
            "or choose another --run."
        )


def resume(
    site: Site,
    run: str,
    given: Callable[[Sequence[str]], Mapping[str, str]],
    *,
    max_usd: float | None = None,
    max_jobs: int | None = None,
    timeout_s: int | None = None,
    detach: bool = False,
) -> JobRun:
    """Go on with a run where it stands, whatever ended its last job."""
    known = site.store.need(run)
    values = given(known.secrets)
    as_job = as_job_sees(site.where, values)
    for repo, repo_type in known.targets:
        as_job.prepare(repo, private=True, repo_type=repo_type)
    changes: dict[str, Any] = {
        "cap_micro_usd": None if max_usd is None else round(max_usd * MICRO),
        "max_jobs": max_jobs,
        "timeout_s": timeout_s,
    }
    wanted = {name: value for name, value in changes.items() if value is not None}
    if any(getattr(known, name) != value for name, value in wanted.items()):
        site.store.change(run, lambda record: replace(record, **wanted) if record else None, "other limits")
    return drive(site, run, values, is_asked=True, detach=detach)


# ---------------------------------------------------------------------------------------------------------------- loop


def drive(site: Site, run: str, given: Mapping[str, str], *, is_asked: bool, detach: bool = False) -> JobRun:
    """Follow the run's open job, and start the next one, until the run is done or something else ends it."""
    try:
        return _drive(site, run, given, is_asked=is_asked, detach=detach)
    except KeyboardInterrupt:
        how = f"composer-hub jobs {{}} {run}{site.reach}"
        site.note(
            f"A job of {run} that was started goes on. Follow it: {how.format('logs')} --follow. Cancel it: "
            f"{how.format('cancel')}. Follow it and start the jobs after it: {how.format('resume')}."
        )
        raise


def _drive(site: Site, run: str, given: Mapping[str, str], *, is_asked: bool, detach: bool) -> JobRun:
    while True:
        record = site.store.need(run)
        last = record.last
        if last is None or not last.is_open:
            if not is_asked and last is not None and last.how == jobs.DONE:
                return record
            _look_at_price(site, record)
            _start_next(site, run, given, is_asked=is_asked)
        elif not last.job_id:
            _adopt(site, record, last)
            continue
        elif detach:
            return record
        else:
            job = jobs.follow(site.where, site.namespace, last.job_id, site.show, poll_s=site.poll_s)
            take_stock(site, record, last, job)
        is_asked = False


def _look_at_price(site: Site, record: JobRun) -> None:
    """Take over another price of the machine, so that the cap holds at what the next job will cost."""
    if record.is_price_given:
        return
    price = jobs.price_of(site.where, record.flavor)

    def dearer_or_cheaper(there: JobRun | None) -> JobRun | None:
        return replace(there, micro_usd=price.micro_usd, unit_s=price.unit_s) if there else None

    if (price.micro_usd, price.unit_s) != (record.micro_usd, record.unit_s):
        site.store.change(record.run, dearer_or_cheaper, "another price")
        site.note(
            f"{record.flavor} now costs ${price.usd_per_hour:.2f} an hour (${record.price.usd_per_hour:.2f} before)."
        )


def _start_next(site: Site, run: str, given: Mapping[str, str], *, is_asked: bool) -> None:
    """Claim the next job and submit it; whoever else claimed it first is followed instead."""
    claim = secrets.token_hex(8)

    def claimed(record: JobRun | None) -> JobRun | None:
        assert record is not None
        if record.last is not None and record.last.is_open:
            return None
        timeout_s = seconds_to_go_on(record, is_asked=is_asked)
        attempt = Attempt(
            len(record.attempts) + 1, now(), timeout_s, claim, step=record.last.step if record.last else 0
        )
        return replace(record, attempts=[*record.attempts, attempt])

    record = site.store.change(run, claimed, "claim a job")
    if record is None or record.last is None or record.last.claim != claim:
        return
    attempt = record.last
    try:
        job_id = jobs.submit(site.where, site.namespace, _order(site, record, attempt, given))
    except jobs.Unsure:
        raise  # the claim stays open: a job may be there, and the next command looks for it
    except exits.ComposerError:
        _change(site, record, attempt, "not submitted", lambda one: setattr(one, "how", jobs.NOT_SUBMITTED))
        raise
    _submitted(site, record, attempt, job_id)


def _order(site: Site, record: JobRun, attempt: Attempt, given: Mapping[str, str]) -> Order:
    script = _SCRIPT.format(install=_INSTALL["local" if site.where.name == "local" else "hub"])
    env = {
        "COMPOSER_JOB_FOLDER": MOUNT,
        "COMPOSER_JOB_NUMBER": str(attempt.number),
        "COMPOSER_JOB_SECONDS": str(attempt.timeout_s),
        "COMPOSER_PACKAGE": record.package,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return Order(
        record.run,
        attempt.number,
        record.image,
        ["sh", "-c", script, "composer-hub", *site.program(record), *record.words],
        record.flavor,
        attempt.timeout_s,
        record.bucket,
        env | record.env,
        given,
    )


def _adopt(site: Site, record: JobRun, attempt: Attempt) -> None:
    """Find the job of a claim whose launcher has not said its id: it is being submitted, or its launcher is gone."""
    if job_id := jobs.find(site.where, site.namespace, record.run, attempt.number):
        _submitted(site, record, attempt, job_id)
    elif age_s(attempt.claimed_at) > CLAIM_SECONDS:
        _change(site, record, attempt, "not submitted", lambda one: setattr(one, "how", jobs.NOT_SUBMITTED))
    else:
        site.note(f"Job {attempt.number} of {record.run} is being submitted by another command; looking again.")
        time.sleep(site.poll_s)


def _submitted(site: Site, record: JobRun, attempt: Attempt, job_id: str) -> None:
    _change(site, record, attempt, f"job {job_id}", lambda one: setattr(one, "job_id", job_id))
    site.note(
        f"Job {attempt.number} of {record.run}: {job_id}, {record.flavor}, at most {attempt.timeout_s / 60:g} min, "
        f"{show_usd(record.price.at_most(attempt.timeout_s))}."
    )


def take_stock(site: Site, record: JobRun, attempt: Attempt, job: Any) -> None:
    """Write down how a job ended: in which way, at which step, at what cost."""
    for look in range(_LOOKS):
        code = _own_exit_code(site, record, attempt)
        end = jobs.ended(job, attempt.timeout_s, code)
        if code is not None or end.exit_code is not None or end.how != jobs.FAILED:
            break
        if look + 1 < _LOOKS:
            time.sleep(site.poll_s)  # what a job wrote last may take a moment to be seen
    step = last_step(jobs.names_in(site.where, record.bucket, "output"))
    _change(site, record, attempt, end.how, lambda one: settle(one, record.price, end, step) if one.is_open else None)
    site.note(
        f"Job {attempt.number} of {record.run} ended: {end.how}, {end.seconds / 60:.1f} min, "
        f"{show_usd(record.price.of(end.seconds))}, step {step:,}."
    )


def _own_exit_code(site: Site, record: JobRun, attempt: Attempt) -> int | None:
    """Return the exit code that the job itself wrote to its bucket."""
    with tempfile.TemporaryDirectory() as folder:
        text = jobs.read_small(site.where, record.bucket, f"exit/{attempt.number}.json", Path(folder))
    return int(json.loads(text)["exit_code"]) if text else None


def last_step(names: Sequence[str]) -> int:
    """Return the step of the last complete checkpoint among a bucket's paths."""
    return max((int(match[1]) for name in names if (match := _CHECKPOINT.fullmatch(name))), default=0)


def _change(site: Site, record: JobRun, attempt: Attempt, title: str, change: Callable[[Attempt], Any]) -> None:
    """Change one attempt in the record as it is now."""

    def changed(there: JobRun | None) -> JobRun | None:
        assert there is not None
        before = there.to_json()
        change(next(one for one in there.attempts if one.number == attempt.number))
        return None if there.to_json() == before else there

    site.store.change(record.run, changed, title)
