"""A training run carried out by jobs: started, followed, and continued until it is done.

In: `JobOptions` and a `Launcher`. A job trains until shortly before its time limit, saves, and exits with code 3; the
next one continues from the same bucket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from huggingface_hub import Volume
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx

from composer_hub import exits
from composer_hub.hub import HubDestination
from composer_hub.hub.destinations import sentence
from composer_hub.jobs.inputs import MOUNT, prepare_targets
from composer_hub.jobs.package import find_package
from composer_hub.jobs.plan import JobOptions, as_seen_by_job, find_price, make_plan, next_timeout
from composer_hub.jobs.runs import (
    CANCELED,
    CLAIM_SECONDS,
    DONE,
    FAILED,
    NUMBER_LABEL,
    RUN_LABEL,
    JobError,
    JobRun,
    RunJob,
    RunSpec,
    claim_job,
    drop_claim,
    find_jobs,
    need_run,
    prepare_bucket,
    read_run,
    write_files,
    write_spec,
)
from composer_hub.money import MachinePrice, cap_of, show_usd

_SCRIPT = (
    "set -e; export COMPOSER_JOB_STARTED=$(date +%s); "
    'if [ -n "$COMPOSER_PACKAGE" ]; then python -m pip install --quiet --disable-pip-version-check '
    '--root-user-action=ignore "$COMPOSER_PACKAGE"; fi; exec python -m composer_hub.jobs.inside "$@"'
)


def training_program(spec: RunSpec) -> list[str]:
    """Return the program of a job."""
    # Quiet, because the launcher would print a traceback for a job that stops in time.
    return ["accelerate", "launch", "--quiet", *spec.accelerate, "-m", "composer_hub.train"]


@dataclass(frozen=True)
class Launcher:
    """The namespace that jobs run in, their program, and how to watch them."""

    where: HubDestination
    namespace: str
    program: Callable[[RunSpec], list[str]] = training_program
    show: Callable[[str], Any] = lambda line: None
    note: Callable[[str], Any] = lambda text: None
    poll_s: float = 2.0
    claim_s: float = CLAIM_SECONDS
    reach: str = ""  # options with which a command finds these runs

    def read(self, run: str) -> JobRun:
        return need_run(self.where, self.namespace, run, self.claim_s)

    def command(self, verb: str, run: str) -> str:
        """Return the command line that does something with a run."""
        return f"`composer-hub jobs {verb} {run}{self.reach}`"


def launcher_for(where: HubDestination, namespace: str = "", **watch: Any) -> Launcher:
    """Return a launcher for a namespace, by default that of the token."""
    name = namespace or where.ask("Reading the account", where.api.whoami)["name"]
    reach = (" --to hub" if where.name == "hub" else "") + (f" --namespace {namespace}" if namespace else "")
    return Launcher(where, name, reach=reach, **watch)


# ------------------------------------------------------------------------------------------------------ start, resume


def launch(launcher: Launcher, options: JobOptions, *, detach: bool = False) -> JobRun:
    """Start a run, or continue the one with the same name and settings, until it ends."""
    where = launcher.where
    package, files = find_package(where, options.package)
    plan = make_plan(where, launcher.namespace, options)
    spec = plan.spec
    prepare_targets(as_seen_by_job(where, options.secrets), plan.request)
    known = read_run(where, launcher.namespace, spec.run)
    if known is None:
        prepare_bucket(where, spec.bucket)
        if files | plan.request.files:
            write_files(where, spec.bucket, files | plan.request.files)
        write_spec(where, replace(spec, package=package))
        known = launcher.read(spec.run)
    if replace(known.spec, package="") != spec:
        raise exits.UsageError(
            f"Run {spec.run} already exists with different settings ({known.budget}; {known.state}). Continue it with "
            f"{launcher.command('resume', spec.run)}, or choose another --run."
        )
    return drive(launcher, spec.run, options.secrets, detach=detach)


def resume(
    launcher: Launcher,
    run: str,
    secrets_for: Callable[[Sequence[str]], Mapping[str, str]],
    *,
    max_usd: float | None = None,
    timeout_s: int | None = None,
    detach: bool = False,
) -> JobRun:
    """Continue a run, whatever ended its last job, with other limits if given."""
    spec = launcher.read(run).spec
    secrets = secrets_for(spec.secrets)
    as_job = as_seen_by_job(launcher.where, secrets)
    for repo, repo_type in spec.targets:
        as_job.prepare(repo, private=True, repo_type=repo_type)
    changed = replace(
        spec,
        cap=spec.cap if max_usd is None else cap_of(max_usd),
        timeout_s=timeout_s or spec.timeout_s,
    )
    if changed != spec:
        write_spec(launcher.where, changed)
    return drive(launcher, run, secrets, detach=detach)


def cancel(launcher: Launcher, run: str) -> JobRun:
    """Cancel the open job of a run; its checkpoints are kept."""
    known = launcher.read(run)
    last, api = known.last, launcher.where.api
    if last is None or not last.is_open or not last.job_id:
        raise exits.NothingToDo(f"Run {run} has no open job ({known.state}).")
    launcher.where.ask(
        f"Canceling job {last.job_id}", lambda: api.cancel_job(job_id=last.job_id, namespace=launcher.namespace)
    )
    return launcher.read(run)


# --------------------------------------------------------------------------------------------------------------- loop


def drive(launcher: Launcher, run: str, secrets: Mapping[str, str], *, detach: bool = False) -> JobRun:
    """Follow the open job and start the next one, until the run is done or cannot continue."""
    try:
        return _drive(launcher, run, secrets, detach=detach)
    except KeyboardInterrupt:
        launcher.note(
            f"The job of {run} continues. Cancel it with {launcher.command('cancel', run)}, or follow it and start the "
            f"next jobs with {launcher.command('resume', run)}."
        )
        raise


def _drive(launcher: Launcher, name: str, secrets: Mapping[str, str], *, detach: bool) -> JobRun:
    is_requested = True
    while True:
        run = launcher.read(name)
        last = run.last
        if last is None or not last.is_open:
            if not is_requested and last is not None and last.state == DONE:
                return run
            _start_next(launcher, run, secrets, is_requested=is_requested)
        elif not last.job_id:
            launcher.note(f"Job {last.number} of {name} is being submitted by another command; waiting for it.")
            time.sleep(launcher.poll_s)
            continue
        elif detach:
            return run
        else:
            follow(launcher, last.job_id)
            job = next(job for job in launcher.read(name).jobs if job.number == last.number)
            launcher.note(f"Job {job.number} of {name} ended: {job.state}, {show_usd(job.cost)}, step {job.step:,}.")
        is_requested = False


def _start_next(launcher: Launcher, run: JobRun, secrets: Mapping[str, str], *, is_requested: bool) -> None:
    """Claim the next job and submit it, unless another launcher is faster."""
    spec, where = run.spec, launcher.where
    price = find_price(where, spec.flavor, spec.usd_per_hour)
    timeout_s = timeout_of_next(launcher, run, price, is_requested=is_requested)
    number, claim = claim_job(where, run, timeout_s, price)
    if not number:
        return
    try:
        job_id = submit(launcher, spec, number, timeout_s, secrets)
    except exits.ComposerError:
        # If this question fails, the claim stays, because the job may exist.
        if number not in find_jobs(where, launcher.namespace, spec.run):
            drop_claim(where, spec.bucket, claim)
        raise
    launcher.note(
        f"Job {number} of {spec.run}: {job_id}, {spec.flavor}, at most {timeout_s / 60:g} min, "
        f"{show_usd(price.worst_case(timeout_s))}."
    )


def submit(launcher: Launcher, spec: RunSpec, number: int, timeout_s: int, secrets: Mapping[str, str]) -> str:
    """Start a job once and return its id."""
    env = {
        **({"PYTHONPATH": spec.python_path} if spec.python_path else {}),
        "COMPOSER_JOB_BUCKET": spec.bucket,
        "COMPOSER_JOB_NUMBER": str(number),
        "COMPOSER_JOB_SECONDS": str(timeout_s),
        "COMPOSER_PACKAGE": spec.package,
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "PYTHONUNBUFFERED": "1",
    }

    def start() -> str:
        # The answer to an earlier attempt may be lost, so look for its job first.
        if job := find_jobs(launcher.where, launcher.namespace, spec.run).get(number):
            return job.id
        return launcher.where.api.run_job(
            image=spec.image,
            command=["sh", "-c", _SCRIPT, "composer-hub", *launcher.program(spec), *spec.words],
            env=env,
            secrets=dict(secrets),
            flavor=spec.flavor,
            timeout=timeout_s,
            name=f"{spec.run}-{number}",
            labels={RUN_LABEL: spec.run, NUMBER_LABEL: str(number)},
            volumes=[Volume(type="bucket", source=spec.bucket, mount_path=MOUNT, read_only=True)],
            namespace=launcher.namespace,
        ).id

    return launcher.where.ask("Starting the job", start)


def timeout_of_next(launcher: Launcher, run: JobRun, price: MachinePrice, *, is_requested: bool) -> int:
    """Return the time limit of the next job; raise the reason if there must not be one.

    `is_requested`: the user asked to continue, whatever ended the last job.
    """
    spec, last, again = run.spec, run.last, f"Continue with {launcher.command('resume', run.spec.run)}"
    if last is not None and last.state == DONE:
        raise exits.NothingToDo(f"Run {spec.run} is done: its model is {spec.targets[0][0]}. Choose another --run.")
    if last is not None and not is_requested:
        _check_end(run, last, again)
    timeout_s = next_timeout(price, spec.timeout_s, run.budget.left)
    if timeout_s is None:
        raise exits.Stopped(
            f"{spec.run} (step {run.step:,}): {run.budget}. The rest is too little for another job on {spec.flavor}. "
            f"{again} and a larger --max-usd."
        )
    return timeout_s


def _check_end(run: JobRun, last: RunJob, again: str) -> None:
    """Raise unless the run may continue by itself after this end."""
    job = f"Job {last.number} ({last.job_id}) of {run.spec.run}"
    if last.state == CANCELED:
        raise exits.Stopped(f"{job} was canceled at step {last.step:,}. {again}.")
    if last.state == FAILED:
        raise JobError(
            f"{job} failed with exit code {last.exit_code} ({last.message or 'no reason is given'}). "
            f"`hf jobs logs {last.job_id}` prints its log. Fix the cause. {again}."
        )
    if last.step <= (run.jobs[-2].step if len(run.jobs) > 1 else 0):
        raise JobError(
            f"{job} ended after its {last.timeout_s / 60:.0f} minutes without a new checkpoint, and the next one would "
            f"do the same. {again} and a longer --timeout, or begin a run with smaller --save_steps."
        )


# ---------------------------------------------------------------------------------------------------------------- log


def follow(launcher: Launcher, job_id: str) -> None:
    """Show the log of a job until it has ended. If the log cannot be read, only wait."""
    api, namespace = launcher.where.api, launcher.namespace
    try:
        for line in api.fetch_job_logs(job_id=job_id, namespace=namespace, follow=True):
            launcher.show(line)
    except (HfHubHTTPError, httpx.HTTPError) as error:
        launcher.show(f"(the log cannot be read: {sentence(error)} The job continues.)")
    launcher.where.ask(
        f"Waiting for job {job_id}",
        lambda: api.wait_for_job(job_id, namespace=namespace, poll_interval=launcher.poll_s),
    )
