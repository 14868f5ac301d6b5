"""`composer-hub jobs`: plan, start, follow and go on with training runs on the Hub's machines.

The record of every run lies in the private dataset `<namespace>/composer-jobs`, its checkpoints in a private bucket.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from huggingface_hub import get_token

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.output import Output

if TYPE_CHECKING:
    from composer_hub.hub import HubDestination
    from composer_hub.jobs.launch import Site
    from composer_hub.jobs.plan import Plan, Wish
    from composer_hub.jobs.runs import JobRun

_RESERVED = re.compile(r"COMPOSER_(JOB_.*|PACKAGE)|PYTHONPATH|HF_ENDPOINT")


@click.group()
def jobs() -> None:
    """Train on the Hub's machines: what it would cost, then job after job until the run is done."""


to_option = click.option(
    "--to",
    type=click.Choice(["local", "hub"]),
    default="local",
    show_default=True,
    help="The embedded Hub (a process of this machine; needs --allow-local-jobs), or the Hub.",
)
namespace_option = click.option("--namespace", default="", help="Whose jobs; by default the token's own.")
detach_option = click.option("--detach", is_flag=True, help="Start one job and do not follow it.")


def _wish_options(command: Any) -> Any:
    options = [
        click.argument("train", nargs=-1, type=click.UNPROCESSED),
        to_option,
        namespace_option,
        click.option("--run", default="", help="Name of the run; by default that of the model repository."),
        click.option("--flavor", default="", help="Machine; by default a100-large."),
        click.option("--timeout", default="6h", show_default=True, help="Time limit of one job: 45m, 6h, 1d."),
        click.option("--hours", type=click.FloatRange(0, min_open=True), help="Expected in all; by default one job."),
        click.option("--max-usd", type=click.FloatRange(0), help="The most all jobs of the run may cost. Required."),
        click.option("--max-jobs", type=click.IntRange(1), default=20, show_default=True, help="The most jobs."),
        click.option("--image", default="python:3.12", show_default=True, help="Docker image with Python and pip."),
        click.option("--package", default="", help="composer-hub[train]==X, or a wheel; by default what runs here."),
        click.option("--with", "code", multiple=True, type=click.Path(exists=True, path_type=Path),
                     help="Module or package of your own to take along (environments, rewards)."),
        click.option("--secret", "names", multiple=True, metavar="NAME", help="Variable of yours; HF_TOKEN always."),
        click.option("--env", "pairs", multiple=True, metavar="NAME=VALUE", help="Variable that everyone may see."),
        click.option("--accelerate", default="", metavar="OPTIONS", help="Passed to accelerate launch."),
        click.option("--usd-per-hour", type=click.FloatRange(0), help="Price, where the Hub names none."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return format_option(command)


@jobs.command()
@_wish_options
def plan(out: Output, to: str, namespace: str, **options: Any) -> None:
    """Print what a run would cost, and start nothing: composer-hub jobs plan --max-usd 20 -- --config my.yaml …"""
    from composer_hub.jobs.launch import site_of
    from composer_hub.jobs.plan import make_plan

    where = _where(to)
    wish = _wish(where, **options)
    found = make_plan(where, site_of(where, namespace).namespace, wish)
    _show_plan(out, found, wish)
    found.check(wish.max_usd)
    out.note("Nothing was started. `composer-hub jobs launch` with the same words starts it.")


@jobs.command()
@_wish_options
@detach_option
def launch(out: Output, to: str, namespace: str, detach: bool, **options: Any) -> None:
    """Start a run and follow it, job after job, until it is done or its money or jobs are used up."""
    from composer_hub.jobs.launch import launch as start

    where = _where(to)
    wish = _wish(where, **options)
    site = _site(where, namespace, out)
    _show_run(out, start(site, wish, detach=detach), is_detached=detach)


@jobs.command()
@click.argument("run")
@to_option
@namespace_option
@click.option("--max-usd", type=click.FloatRange(0), help="Another cap; what is spent stays spent.")
@click.option("--max-jobs", type=click.IntRange(1), help="Another limit on the number of jobs.")
@click.option("--timeout", help="Another time limit for the jobs to come.")
@detach_option
@format_option
def resume(out: Output, run: str, to: str, namespace: str, timeout: str | None, **options: Any) -> None:
    """Go on with a run where it stands: follow its open job, or start the next one from its last checkpoint."""
    from composer_hub.jobs.client import duration
    from composer_hub.jobs.launch import resume as go_on

    where = _where(to)
    site = _site(where, namespace, out)
    timeout_s = duration(timeout) if timeout else None
    found = go_on(site, run, lambda names: _secrets(where, names), timeout_s=timeout_s, **options)
    _show_run(out, found, is_detached=options["detach"])


@jobs.command()
@click.argument("run")
@to_option
@namespace_option
@click.option("--job", "number", type=click.IntRange(1), help="Which job of the run; by default the last one.")
@click.option("--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--tail", type=click.IntRange(1), help="Only the last lines.")
def logs(run: str, to: str, namespace: str, number: int | None, follow: bool, tail: int | None) -> None:
    """Print the log of a run's job; RUN may be the id of any job, too."""
    from composer_hub.jobs import client as api
    from composer_hub.jobs.launch import site_of

    if follow and tail:
        raise exits.UsageError("--tail is for what is there now: leave it or --follow out.")
    site = site_of(_where(to), namespace)
    job_id = _job_id(site, run, number)
    if not follow:
        for line in api.log_lines(site.where, site.namespace, job_id, tail):
            click.echo(line)
    elif api.follow(site.where, site.namespace, job_id, click.echo) is None:
        raise api.JobError(f"{site.namespace} has no run and no job {run!r} at {site.where.address}.")


@jobs.command()
@click.argument("run", required=False)
@to_option
@namespace_option
@format_option
def status(out: Output, run: str | None, to: str, namespace: str) -> None:
    """List the runs, or the jobs of one: how each ended, at which step, at what cost."""
    from composer_hub.jobs.launch import site_of

    site = site_of(_where(to), namespace)
    if run:
        out.table(_job_rows(site, site.store.need(run)), id_key="job_id", empty="No job was started yet.")
        return
    found = [site.store.need(name) for name in site.store.names()]
    out.table([_run_row(one) for one in found], id_key="run", empty="There are no runs yet: composer-hub jobs launch.")


@jobs.command()
@click.argument("run")
@to_option
@namespace_option
@format_option
def cancel(out: Output, run: str, to: str, namespace: str) -> None:
    """End a run's open job; what it has kept stays, and resume goes on from there."""
    from composer_hub.jobs import client as api
    from composer_hub.jobs.launch import site_of, take_stock

    site = site_of(_where(to), namespace, note=out.note)
    record = site.store.need(run)
    last = record.last
    if last is None or not last.is_open or not last.job_id:
        raise exits.NothingToDo(f"The run {run} has no open job ({record.state}).")
    api.cancel(site.where, site.namespace, last.job_id)
    job = api.inspect(site.where, site.namespace, last.job_id)
    if job is None or api.is_over(job):
        take_stock(site, record, last, job)
    out.record(_run_row(site.store.need(run)), id_key="run")


# -------------------------------------------------------------------------------------------------------- from options


def _where(to: str) -> HubDestination:
    from composer_hub.hub import HubDestination, destination

    where = destination(to)
    assert isinstance(where, HubDestination)
    if to == "hub" and get_token() is None:
        raise exits.Refused(f"There is no token for {where.address}: log in with `hf auth login` or set HF_TOKEN.")
    return where


def _site(where: HubDestination, namespace: str, out: Output) -> Site:
    from composer_hub.jobs.launch import site_of

    return site_of(where, namespace, show=lambda line: out.note(f"  {line}"), note=out.note)


def _wish(where: HubDestination, **options: Any) -> Wish:
    from composer_hub.jobs.client import duration
    from composer_hub.jobs.plan import Wish

    return Wish(
        words=options["train"],
        given=_secrets(where, options["names"]),
        run=options["run"],
        flavor=options["flavor"],
        timeout_s=duration(options["timeout"]),
        hours=options["hours"] or 0.0,
        max_usd=options["max_usd"],
        max_jobs=options["max_jobs"],
        image=options["image"],
        package=options["package"],
        env=_variables(options["pairs"]),
        code=options["code"],
        accelerate=shlex.split(options["accelerate"]),
        usd_per_hour=options["usd_per_hour"],
    )


def _secrets(where: HubDestination, names: Sequence[str]) -> Mapping[str, str]:
    """Return the secrets by name, each from this process's environment; the token is the one of the destination."""
    token = where.api.token if where.name == "local" else get_token()
    found: dict[str, str | None] = {name: os.environ.get(name) for name in names}
    found["HF_TOKEN"] = str(token)
    missing = [name for name, value in found.items() if not value]
    if missing:
        raise exits.UsageError(
            f"{', '.join(missing)}: no such variable is set here. A secret is named on the command line, its value is "
            "read from the environment."
        )
    return {name: value for name, value in found.items() if value}


def _variables(pairs: Sequence[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name or _RESERVED.fullmatch(name):
            raise exits.UsageError(
                f"--env {pair!r}: write NAME=VALUE, with a name that the job does not set itself."
                if sign and name
                else f"--env {name!r} has no value: write NAME=VALUE, or pass a secret with --secret {name}."
            )
        found[name] = value
    return found


def _job_id(site: Site, run: str, number: int | None) -> str:
    """Return the id of a run's job; what names no run is taken as the id of a job."""
    record = site.store.read(run)
    if record is None:
        return run
    jobs = [job for job in record.jobs if job.job_id and number in (None, job.number)]
    if not jobs:
        raise exits.NothingToDo(f"The run {run} has no job {number or ''} yet ({record.state}).".replace("  ", " "))
    return jobs[-1].job_id


# ------------------------------------------------------------------------------------------------------------ showing


def _show_plan(out: Output, found: Plan, wish: Wish) -> None:
    out.record(found.describe(wish), id_key="run")
    out.note("Teachers: $0.00. A training run asks none; what its own rewards or environment call is not counted.")
    if found.price.micro_usd == 0:
        out.note(f"{found.price.flavor} costs nothing.")
    for repo in found.missing:
        out.note(f"{repo} is not there yet; launching makes it.")


def _run_row(run: JobRun) -> dict[str, Any]:
    from composer_hub.jobs.client import MICRO

    last = run.last
    return {
        "run": run.run,
        "state": run.state,
        "jobs": len(run.jobs),
        "step": last.step if last else 0,
        "flavor": run.flavor,
        "spent_usd": run.spent / MICRO,
        "max_usd": run.cap_micro_usd / MICRO,
        "repo": run.repo,
        "bucket": run.bucket,
    }


def _job_rows(site: Site, run: JobRun) -> list[dict[str, Any]]:
    from composer_hub.jobs import client as api

    rows = []
    for job in run.attempts:
        stage = job.how
        if job.is_open and job.job_id:
            now = api.inspect(site.where, site.namespace, job.job_id)
            stage = "gone" if now is None else api.stage_of(now).lower()
        rows.append(
            {
                "job": job.number,
                "job_id": job.job_id,
                "state": stage or "being submitted",
                "exit_code": job.exit_code,
                "minutes": round(job.seconds / 60, 1),
                "usd": (run.price.at_most(job.timeout_s) if job.is_open else job.micro_usd) / api.MICRO,
                "step": job.step,
                "message": job.message,
            }
        )
    return rows


def _show_run(out: Output, run: JobRun, *, is_detached: bool) -> None:
    out.record(_run_row(run), id_key="run")
    if is_detached:
        out.note(f"Follow it: {run.command('logs --follow')}. {run.command('resume')} also starts the jobs after it.")
