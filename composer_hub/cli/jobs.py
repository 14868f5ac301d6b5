"""`composer-hub jobs`: plan, start, follow and continue training runs on the Hub's machines."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import click
from huggingface_hub import get_token

from composer_hub import exits
from composer_hub import jobs as stage
from composer_hub.cli.grouped import options_of, stacked
from composer_hub.cli.main import format_option
from composer_hub.hub import HubDestination, destination
from composer_hub.output import Output

_site_options = stacked(
    click.option("--to", type=click.Choice(["local", "hub"]), default="local",
                 help="Destination: local (the embedded Hub, served with --allow-local-jobs) or hub."),
    click.option("--namespace", default="", help="Owner of the jobs (default: the token's account)."),
)  # fmt: skip
_run_options = stacked(
    click.argument("train", nargs=-1, type=click.UNPROCESSED),
    _site_options,
    options_of(stage.JobOptions),
    click.option("--secret", "names", multiple=True, metavar="NAME",
                 help="Environment variable to pass as a secret; HF_TOKEN is always passed."),
    click.option("--accelerate", default="", metavar="OPTIONS", help="Options of accelerate launch."),
)  # fmt: skip


@click.group(short_help="Train on the Hub's machines under a cap.")
def jobs() -> None:
    """Train on the Hub's machines, job after job, under a cap on money."""


@jobs.command(short_help="Print the cost of a run.")
@_run_options
@format_option
def plan(out: Output, to: str, namespace: str, **options: Any) -> None:
    """Print the cost of a run and start nothing: composer-hub jobs plan --max-usd 20 -- --config my.yaml …"""
    launcher = _launcher(out, to, namespace)
    out.record(stage.make_plan(launcher.where, launcher.namespace, _request(to, options)).as_row(), id_key="run")
    out.note("Nothing was started. `composer-hub jobs launch` with the same words starts it.")


@jobs.command(short_help="Start a run and follow it.")
@_run_options
@click.option("--detach", is_flag=True, help="Start one job and do not follow it.")
@format_option
def launch(out: Output, to: str, namespace: str, detach: bool, **options: Any) -> None:
    """Start a run and follow it, job after job, until it is done or its money is used up."""
    launcher = _launcher(out, to, namespace)
    out.record(stage.launch(launcher, _request(to, options), detach=detach).as_row(), id_key="run")


@jobs.command(short_help="Continue a run.")
@click.argument("run")
@_site_options
@click.option("--max-usd", type=float, help="New cap on the cost of all jobs.")
@click.option("--timeout", help="New time limit of the next jobs.")
@click.option("--detach", is_flag=True, help="Start one job and do not follow it.")
@format_option
def resume(out: Output, run: str, to: str, namespace: str, timeout: str | None, **options: Any) -> None:
    """Follow the open job of a run, or start the next one from its last checkpoint."""
    launcher, timeout_s = _launcher(out, to, namespace), stage.duration(timeout) if timeout else None
    found = stage.resume(launcher, run, lambda names: _secrets(to, names), timeout_s=timeout_s, **options).as_row()
    out.record(found, id_key="run")


@jobs.command(short_help="List the runs, or the jobs of one.")
@click.argument("run", required=False)
@_site_options
@format_option
def status(out: Output, run: str | None, to: str, namespace: str) -> None:
    """List the runs, or the jobs of one with their ends, steps and costs."""
    launcher = _launcher(out, to, namespace)
    if run:
        out.table([job.as_row() for job in launcher.read(run).jobs], id_key="job_id", empty="No job was started yet.")
        return
    runs = [launcher.read(name) for name in stage.run_names(launcher.where, launcher.namespace)]
    out.table([one.as_row() for one in runs], id_key="run", empty="There are no runs yet: composer-hub jobs launch.")


@jobs.command(short_help="Cancel the open job of a run.")
@click.argument("run")
@_site_options
@format_option
def cancel(out: Output, run: str, to: str, namespace: str) -> None:
    """Cancel the open job of a run. Its checkpoints stay, and resume continues from them."""
    out.record(stage.cancel(_launcher(out, to, namespace), run).as_row(), id_key="run")


def _launcher(out: Output, to: str, namespace: str) -> stage.Launcher:
    where = destination(to)
    assert isinstance(where, HubDestination)
    if to == "hub" and get_token() is None:
        raise exits.Refused(f"There is no token for {where.address}: log in with `hf auth login` or set HF_TOKEN.")
    return stage.launcher_for(where, namespace, note=out.note, show=lambda line: out.note(f"  {line}"))


def _request(to: str, options: dict[str, Any]) -> stage.JobOptions:
    secrets, accelerate = _secrets(to, options.pop("names")), shlex.split(options.pop("accelerate"))
    return stage.JobOptions(secrets=secrets, accelerate=accelerate, **options)


def _secrets(to: str, names: Sequence[str]) -> Mapping[str, str]:
    """Return the values of secrets from the environment; the token is that of the destination."""
    where = destination(to)
    token = where.api.token if to == "local" and isinstance(where, HubDestination) else get_token()
    values = {name: os.environ.get(name, "") for name in names} | {"HF_TOKEN": str(token)}
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise exits.UsageError(f"{', '.join(missing)}: not set. --secret takes the name of an environment variable.")
    return values
