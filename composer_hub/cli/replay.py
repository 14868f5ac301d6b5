"""`composer-hub replay`: plan, run and inspect a replay of traces by teachers."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from composer_hub import replay as stage
from composer_hub.cli.main import format_option
from composer_hub.cli.paths import NEW_FOLDER
from composer_hub.cli.plan import buy_pilot, check_panel, pilot_options, plan, shown
from composer_hub.cli.replay_options import replay_options, source_options, teacher_options
from composer_hub.money import show_usd
from composer_hub.output import Output
from composer_hub.replay import ReplayOptions, Teacher, TraceSource

run_option = click.option(
    "--run", "folder", type=NEW_FOLDER, default=Path("replay-run"),
    help="Folder of the run: its ledger and votes.",
)  # fmt: skip


@click.group(short_help="Ask teachers for the steps of traces.")
def replay() -> None:
    """Ask several teachers what they would have done at each step of recorded traces."""


replay.add_command(plan)


@replay.command(short_help="Ask the teachers, or continue a run.")
@source_options
@teacher_options()
@replay_options
@pilot_options
@click.option("--max-usd", type=float, required=True, help="Hard cap of the folder, over all processes and restarts.")
@click.option("--change-cap", is_flag=True, help="Give an existing run the new cap.")
@click.option("--buy-again", is_flag=True, help="Buy answers again after a change of --max-tokens or params.")
@run_option
@format_option
def run(
    out: Output,
    traces: TraceSource,
    teachers: list[Teacher],
    options: ReplayOptions,
    max_usd: float,
    change_cap: bool,
    buy_again: bool,
    folder: Path,
    is_pilot: bool,
    pilot_steps: int,
) -> None:
    """Ask the teachers. The same command again continues the run and pays for nothing twice."""
    if is_pilot:
        buy_pilot(out, traces, teachers, options, folder, max_usd, pilot_steps,
                  change_cap=change_cap, buy_again=buy_again)  # fmt: skip
        return
    check_panel(teachers, options)
    notes = list[str]()  # also part of the JSON output

    def take(note: str) -> None:
        notes.append(note)
        out.warn(note)

    with out.progress("asking") as bar:
        summary = stage.run(
            traces, teachers, folder, options, max_usd=max_usd, change_cap=change_cap, buy_again=buy_again,
            on_progress=shown(bar), on_note=take,
        )  # fmt: skip
    out.record(summary.as_row() | {"notes": notes}, id_key="run")
    if summary.stopped:
        raise summary.stopped
    if traces.arguments:
        out.note(f"Next: composer-hub pairs build {traces.arguments} --run {shlex.quote(str(folder))} --repo ME/PAIRS")


@replay.command(short_help="Print questions and money of a run.")
@run_option
@format_option
def status(out: Output, folder: Path) -> None:
    """Print the questions of a run by teacher and state, and its money."""
    rows, budget = stage.status(folder)
    out.table(rows, id_key="teacher", empty="Nothing was asked yet.", **budget.as_row())
    out.note(f"{budget}; {show_usd(max(budget.left, 0))} left.")


@replay.command(short_help="Compare money with the providers' records.")
@teacher_options()
@click.option("--own-key", is_flag=True, help="Nothing else used the keys: settle the rest by what they spent.")
@run_option
@format_option
def audit(out: Output, teachers: list[Teacher], own_key: bool, folder: Path) -> None:
    """Look up requests whose answer was lost, and compare the ledger with what the keys have spent."""
    rows = stage.audit(folder, teachers, own_key=own_key)
    out.table([row.as_row() for row in rows], id_key="endpoint")
    for row in rows:
        if row.key_spent_usd is None:
            out.note(f"{row.endpoint} does not tell what the key has spent; compare the bill by hand.")
        elif row.ambiguous:
            out.note(f"{row.endpoint}: if only this run used the key, --own-key settles the rest by its usage.")
