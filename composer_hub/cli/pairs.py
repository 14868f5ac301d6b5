"""`composer-hub pairs`: build, report, compare and review preference pairs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub.cli.executed import execute
from composer_hub.cli.export import chat_tokenizer
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, from_option, publish_options
from composer_hub.cli.pair_versions import apply_verdicts, counts_text, diff
from composer_hub.cli.policy import policy_options
from composer_hub.cli.reference import precompute_ref
from composer_hub.cli.sharding import Spread, sharding_options
from composer_hub.hub import destination, load
from composer_hub.output import Output, plural
from composer_hub.pairs import Metric, PairOptions, Policy, RecordedVotes, draft, make, report_markdown
from composer_hub.pairs.rows import ASIDE
from composer_hub.pairs.windows import MAX_TOKENS
from composer_hub.records import to_row
from composer_hub.replay import purchase_of

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group(short_help="Build and review preference pairs.")
def pairs() -> None:
    """Build, report, compare and review preference pairs."""


for command in (diff, apply_verdicts, execute, precompute_ref):
    pairs.add_command(command)


@pairs.command(short_help="Make pairs from votes and publish them.")
@click.argument("traces", metavar="REPO@REV")
@click.option("--run", "folder", required=True, type=_FOLDER, help="Folder of the replay run.")
@policy_options
@click.option("--with-prose", is_flag=True, help="Keep the words beside the calls in chosen and rejected.")
@click.option(
    "--max-tokens",
    type=click.IntRange(min=0),
    default=MAX_TOKENS,
    show_default=True,
    help="Window of prompt, tools and answer, in tokens (0: whole prompts).",
)
@click.option("--tokenizer", metavar="MODEL", help="Model or folder whose tokenizer counts the tokens (an estimate).")
@click.option(
    "--keep",
    multiple=True,
    type=click.Choice(ASIDE),
    help="Keep pairs that are left out otherwise; their column says why. May be given again.",
)
@click.option("--license", "license_", default="other", show_default=True, help="License of the pair set.")
@sharding_options
@publish_options("pairs")
@format_option
def build(
    traces: str,
    folder: Path,
    policy_changes: dict[str, Any],
    with_prose: bool,
    max_tokens: int,
    tokenizer: str | None,
    keep: tuple[str, ...],
    license_: str,
    spread: Spread,
    publication: Publication,
    out: Output,
) -> None:
    """Make pairs from the votes of a replay run and publish them.

    The policy is the one of the run, with the options given here. Votes that cannot answer it are refused.
    """
    counting = chat_tokenizer(tokenizer)
    votes = RecordedVotes(folder)
    policy = dataclasses.replace(votes.poll.policy if votes.poll else Policy(), **policy_changes)
    source = load(publication.destination, traces)
    sharding = spread.sharding(out, publication.destination, folder, 0)
    made = make(source, votes, PairOptions(policy, with_prose, max_tokens, counting, keep), sharding=sharding)
    if votes.unused:
        out.note(f"Left out: votes of {plural(len(votes.unused), 'trace')} missing from {source.repo} {source.tag}.")
    with made.plans.until_published():
        if not made.pairs:
            raise exits.NothingToDo(
                f"No step gave a pair: {counts_text(made.drops) or 'there are no votes'}. "
                f"`composer-hub replay status --run {folder}` shows who was asked."
            )
        name = publication.repo.split("/")[-1]
        version = draft(made, name, source=source, license=license_, purchase=purchase_of(folder), on_note=out.note)
        publication.carry_out(out, version.tables, version.card, version.lineage, title=version.title)


@pairs.command(short_help="Print the report of a pair set.")
@click.argument("ref", metavar="REPO@REV")
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Folder to draw plots into.")
@from_option
@format_option
def report(ref: str, plots: Path | None, origin: str, out: Output) -> None:
    """Print the numbers published with a pair set."""
    metrics = list(load(destination(origin), ref).records(Metric, "report"))
    if out.mode == "human":
        out.text(report_markdown(metrics))
    else:
        out.table([to_row(metric) for metric in metrics], id_key="metric")
    if plots:
        from composer_hub.pairs.plots import draw

        for plot in draw(metrics, plots):
            out.note(f"{plot.path}: {plot.alt}")
