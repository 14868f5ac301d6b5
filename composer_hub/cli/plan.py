"""`composer-hub replay plan`, and the pilot that it and `replay run` share."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from composer_hub import exits, replay
from composer_hub.cli.grouped import stacked
from composer_hub.cli.main import format_option
from composer_hub.cli.paths import NEW_FOLDER
from composer_hub.cli.replay_options import replay_options, source_options, teacher_options
from composer_hub.money import show_usd
from composer_hub.output import Output, Progress
from composer_hub.replay.options import PILOT_STEPS

if TYPE_CHECKING:
    from composer_hub.replay import Forecast, ReplayOptions, ReplayProgress, Teacher, TraceSource

pilot_options = stacked(
    click.option("--pilot", "is_pilot", is_flag=True, help="Ask about a few steps only, and plan by them."),
    click.option("--pilot-steps", type=click.IntRange(1), default=PILOT_STEPS, help="Steps of a pilot."),
)
"""Pass `is_pilot` and `pilot_steps`."""


@click.command(short_help="Print questions and cost of a run.")
@source_options
@teacher_options(planning=True)
@replay_options
@pilot_options
@click.option("--max-usd", type=float, required=True, help="Cap of the planned run.")
@click.option("--run", "folder", type=NEW_FOLDER, help="Folder of a run or pilot, to see what is left to pay.")
@format_option
def plan(
    out: Output,
    traces: TraceSource,
    teachers: list[Teacher],
    options: ReplayOptions,
    max_usd: float,
    folder: Path | None,
    is_pilot: bool,
    pilot_steps: int,
) -> None:
    """Print what each order would cost and find, and each teacher's part. It needs no keys, unless with --pilot."""
    if is_pilot:
        if folder is None:
            raise exits.UsageError("--pilot buys answers. Name the folder of the run that takes them: --run FOLDER.")
        buy_pilot(out, traces, teachers, options, folder, max_usd, pilot_steps)
        return
    if folder and not folder.is_dir():
        raise exits.UsageError(f"--run {folder} does not exist.")
    planned = replay.forecast(traces, teachers, options, max_usd=max_usd, folder=folder)
    if out.mode == "json":
        out.record(planned.as_row(), id_key="order")
    else:
        _show(out, planned)


def check_panel(teachers: list[Teacher], options: ReplayOptions) -> None:
    """Refuse to pay for answers of so few teachers that no step can give a pair."""
    if reason := options.agreement.too_few(len(teachers)):
        raise exits.UsageError(f"{reason} Name more teachers, or choose a smaller --min-agree.")


def buy_pilot(
    out: Output,
    traces: TraceSource,
    teachers: list[Teacher],
    options: ReplayOptions,
    folder: Path,
    max_usd: float,
    num_steps: int,
    *,
    change_cap: bool = False,
    buy_again: bool = False,
) -> None:
    """Buy the answers to a few steps; print them, their price and the plan of the rest."""
    check_panel(teachers, options)
    with out.progress("asking") as bar:
        made = replay.pilot(
            traces, teachers, folder, options, max_usd=max_usd, num_steps=num_steps,
            change_cap=change_cap, buy_again=buy_again, on_progress=shown(bar), on_note=out.warn,
        )  # fmt: skip
    if out.mode == "json":
        out.record(made.as_row(), id_key="run")
    else:
        out.table(made.answers, id_key="trace")
        out.text("")
        _show(out, made.forecast)
        out.note(
            f"The pilot cost {show_usd(made.cost)}. "
            f"To buy the rest: composer-hub replay run … --run {shlex.quote(str(folder))}"
        )
    if made.stopped:
        raise made.stopped


def _show(out: Output, forecast: Forecast) -> None:
    out.table(forecast.orders, id_key="order")
    out.text("")
    out.table(forecast.teachers, id_key="teacher")
    for note in forecast.notes:
        out.note(note)


def shown(bar: Progress) -> Callable[[ReplayProgress], None]:
    """Return a function that shows progress on a live line."""

    def advance(progress: ReplayProgress) -> None:
        bar.total = progress.num_expected
        bar.advance(
            progress.num_asked - bar.done,
            spent=show_usd(progress.spent),
            cached=f"{progress.cached_share:.0%}",
            **{"would-be pairs": progress.num_pairs},
            **({"waiting for": ", ".join(progress.waiting)} if progress.waiting else {}),
        )

    return advance
