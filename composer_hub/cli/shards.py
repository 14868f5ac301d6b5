"""`composer-hub shards`: look at the shards of a plan, and run some of them."""

from __future__ import annotations

from pathlib import Path

import click

from composer_hub import exits
from composer_hub import shards as stage
from composer_hub.cli.main import format_option
from composer_hub.cli.paths import FOLDER
from composer_hub.output import Output

_FOLDER = click.argument("folder", type=FOLDER)


@click.group(short_help="Look at shards and run them again.")
def shards() -> None:
    """Look at the shards of a plan and run them again. FOLDER holds `plan.json`; a run prints it."""


@shards.command(short_help="List the shards of a plan.")
@_FOLDER
@format_option
def status(out: Output, folder: Path) -> None:
    """List the shards with their states, seconds, memory and failures, the slowest first."""
    rows = stage.status(stage.Staging.open(folder))
    out.table(sorted(rows, key=lambda row: (row["state"] == "done", -row["seconds"])), id_key="shard")


@shards.command(short_help="Run shards of a plan.")
@_FOLDER
@click.argument("numbers", nargs=-1, type=click.IntRange(0))
@format_option
def run(out: Output, folder: Path, numbers: tuple[int, ...]) -> None:
    """Run these shards in this process, or all that have no result. Finished shards stay as they are."""
    staging = stage.Staging.open(folder)
    missing = staging.missing()
    if not missing:
        raise exits.NothingToDo(f"All {len(staging.plan.shards)} shards have results.")
    for number in numbers or missing:
        manifest = stage.run_shard(staging, number)
        out.note(f"Shard {number}: {manifest.seconds:.1f} s, {manifest.peak_mb:.0f} MB.")
    left = len(staging.missing())
    out.record({"shards": len(staging.plan.shards), "missing": left}, id_key="missing")
    out.note("Run the command that made the plan again to publish." if not left else f"{left} shards are missing.")
