"""`composer-hub pairs`: build, report, compare and review preference pairs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, from_option, publish_options
from composer_hub.cli.policy import policy_options
from composer_hub.cli.reference import precompute_ref
from composer_hub.hub import Draft, Version, destination, load, load_traces
from composer_hub.money import to_usd
from composer_hub.output import Output
from composer_hub.pairs import (
    Metric,
    PairOptions,
    Policy,
    RecordedVotes,
    diff_pairs,
    draft,
    make,
    merged_verdicts,
    read_verdicts,
    report_markdown,
    reviewed_draft,
)
from composer_hub.records import Pair, to_row
from composer_hub.replay.ledger import Ledger

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(short_help="Build and review preference pairs.")
def pairs() -> None:
    """Build, report, compare and review preference pairs."""


pairs.add_command(precompute_ref)


@pairs.command(short_help="Make pairs from votes and publish them.")
@click.argument("traces", metavar="REPO@REV")
@click.option("--run", "folder", required=True, type=_FOLDER, help="Folder of the replay run.")
@policy_options
@click.option("--with-prose", is_flag=True, help="Keep the words beside the calls in chosen and rejected.")
@click.option("--license", "license_", default="other", show_default=True, help="License of the pair set.")
@publish_options
@format_option
def build(
    traces: str,
    folder: Path,
    policy_changes: dict[str, Any],
    with_prose: bool,
    license_: str,
    publication: Publication,
    out: Output,
) -> None:
    """Make pairs from the votes of a replay run and publish them.

    The policy is the one of the run, with the options given here. Votes that cannot answer it are refused.
    """
    votes = RecordedVotes(folder)
    policy = dataclasses.replace(votes.poll.policy if votes.poll else Policy(), **policy_changes)
    source, stream = load_traces(publication.destination, traces)
    made = make(stream, votes, PairOptions(policy, with_prose))
    if votes.unused:
        out.note(f"Left out: the votes of {len(votes.unused):,} traces that are not in {source.repo} {source.tag}.")
    if not made.pairs:
        raise exits.NothingToDo(
            f"No step gave a pair: {_counts(made.drops) or 'there are no votes'}. "
            f"`composer-hub replay status --run {folder}` shows who was asked."
        )
    name = publication.repo.split("/")[-1]
    version = draft(made, name, source=source, license=license_, ambiguous_usd=_ambiguous_usd(folder))
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


@pairs.command(short_help="Compare two versions of a pair set.")
@click.argument("old", metavar="REPO@REV")
@click.argument("new", metavar="REPO@REV")
@from_option
@format_option
def diff(old: str, new: str, origin: str, out: Output) -> None:
    """Show the pairs that were added, removed and changed, with the columns that differ."""
    where = destination(origin)
    changes = diff_pairs(load(where, old).records(Pair, "default"), load(where, new).records(Pair, "default"))
    rows = [{"change": "added", "pair": pair, "columns": ""} for pair in changes.added]
    rows += [{"change": "removed", "pair": pair, "columns": ""} for pair in changes.removed]
    rows += [{"change": "changed", "pair": one.after, "columns": ", ".join(one.fields)} for one in changes.changed]
    out.table(rows, id_key="pair", empty="The pairs are the same.")
    out.note(
        f"{len(changes.added):,} added, {len(changes.removed):,} removed, {len(changes.changed):,} changed, "
        f"{changes.num_same:,} the same."
    )


@pairs.command("apply-verdicts", short_help="Apply reviewers' verdicts to a pair set.")
@click.argument("ref", metavar="REPO@REV")
@click.option(
    "--verdicts",
    "path",
    type=_FILE,
    help="JSONL: pair_id, verdict, reviewer, note, edited_chosen. Default: the verdicts merged into the dataset.",
)
@publish_options
@format_option
def apply_verdicts(ref: str, path: Path | None, publication: Publication, out: Output) -> None:
    """Publish the next version of a pair set, with the verdicts of its reviewers applied."""
    given = list(read_verdicts(path)) if path else None

    def reviewed(source: Version) -> Draft:
        verdicts = list(merged_verdicts(source)) if given is None else given
        if not verdicts:
            raise exits.NothingToDo(
                f"{source.repo} has no merged verdicts. Review it with `composer-hub space open {ref}`, submit, and "
                "merge the pull request."
            )
        draft, counts = reviewed_draft(source, verdicts)
        out.note(f"Verdicts on {source.tag or source.revision}: {_counts(counts) or 'none'}")
        return draft

    publication.carry_out_next(out, ref, reviewed)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.most_common())


def _ambiguous_usd(folder: Path) -> float:
    path = folder / "ledger.sqlite"
    if not path.is_file():
        return 0.0
    with Ledger(path) as ledger:
        return to_usd(ledger.budget().ambiguous)
