"""`composer-hub federation status`: the rounds of a federation."""

from __future__ import annotations

import click

from composer_hub.cli.main import format_option
from composer_hub.cli.options import from_option
from composer_hub.hub import destination
from composer_hub.output import Output, plural, size
from composer_hub.train.apart.status import read_status


@click.group(short_help="Look at a federation of workers.")
def federation() -> None:
    """Look at workers that train one adapter and meet on the Hub (composer-hub train … --federation)."""


@federation.command(short_help="Show rounds, workers, sizes and scores.")
@click.argument("repo", metavar="OWNER/NAME")
@from_option
@format_option
def status(repo: str, origin: str, out: Output) -> None:
    """Show rounds, workers, sizes and held-out scores of a federation."""
    found = read_status(destination(origin), repo)
    out.table(found.rows(), id_key="round", empty="No round is closed.")
    rules, after = found.rules, len(found.closed)
    scores = found.mean_scores()
    if 0 in scores:
        out.text("Held-out scores: " + ", ".join(f"{score:.3f} after {number}" for number, score in scores.items()))
    progress = "All rounds are closed." if found.is_finished else (
        f"Round {after} of {rules['num_rounds']} is open: {len(found.delivered)} of {rules['num_workers']} deltas "
        f"({', '.join(found.delivered) or 'none'})."
    )  # fmt: skip
    out.text(
        f"{plural(len(found.workers), 'worker')} ({', '.join(found.workers)}), {size(found.num_bytes)} sent. {progress}"
    )
