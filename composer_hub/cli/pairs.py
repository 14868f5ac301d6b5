"""`composer-hub pairs`: build, report, compare and review preference pairs."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from composer_hub import exits, replay
from composer_hub.cli.executed import execute
from composer_hub.cli.export import chat_tokenizer
from composer_hub.cli.grouped import grouped
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, from_option, publish_options, ref_argument
from composer_hub.cli.pair_versions import apply_verdicts, counts_text, diff
from composer_hub.cli.paths import FOLDER, NEW_FOLDER
from composer_hub.cli.reference import precompute_ref
from composer_hub.cli.sharding import Spread, sharding_options
from composer_hub.hub import destination, load
from composer_hub.output import Output, plural
from composer_hub.pairs import (
    Metric,
    PairOptions,
    Policy,
    RecordedVotes,
    draft,
    make,
    make_repairs,
    report_markdown,
)
from composer_hub.records import to_row


@click.group(short_help="Build and review preference pairs.")
def pairs() -> None:
    """Build, report, compare and review preference pairs."""


for command in (diff, apply_verdicts, execute, precompute_ref):
    pairs.add_command(command)


def _given(**values: Any) -> dict[str, Any]:
    """Return the options that the command line names."""
    source = click.get_current_context().get_parameter_source
    return {name: value for name, value in values.items() if source(name) is not ParameterSource.DEFAULT}


_OF_THE_RUN = {field.name: {"show_default": "that of the run"} for field in dataclasses.fields(Policy)}


@pairs.command(short_help="Make pairs and publish them.")
@click.argument("traces", metavar="REPO@REV")
@click.option(
    "--from",
    "proof",
    type=click.Choice(["votes", "own-repairs"]),
    default="votes",
    help="Proof of a pair: votes of a replay run, or a failure that the student repaired itself.",
)
@click.option("--run", "folder", type=FOLDER, help="Folder of the replay run.")
@grouped("policy_changes", Policy, make=_given, **_OF_THE_RUN)
@grouped("options", PairOptions)
@click.option("--tokenizer", metavar="MODEL", help="Model or folder whose tokenizer counts the tokens (an estimate).")
@click.option("--license", "license_", default="other", help="License of the pair set.")
@sharding_options
@publish_options("pairs")
@format_option
def build(
    traces: str,
    proof: str,
    folder: Path | None,
    policy_changes: dict[str, Any],
    options: PairOptions,
    license_: str,
    spread: Spread,
    publication: Publication,
    out: Output,
) -> None:
    """Make pairs and publish them, by default from the votes of a replay run.

    The policy is the one of the run, with the options given here. Votes that cannot answer it are refused.
    """
    if proof == "votes" and folder is None:
        raise exits.UsageError("Name the folder of the replay run with --run, or take --from own-repairs.")
    options = dataclasses.replace(options, tokenizer=chat_tokenizer(options.tokenizer))
    source, notes = load(publication.destination, traces), list[str]()  # JSON has no other place for notes
    sharding = spread.sharding(out, publication.destination, folder, 0)
    if proof == "votes" and folder:
        votes = RecordedVotes(folder)
        policy = dataclasses.replace(votes.poll.policy if votes.poll else Policy(), **policy_changes)
        made = make(source, votes, dataclasses.replace(options, policy=policy), sharding=sharding)
        missing = plural(len(votes.unused), "trace")
        advice = f"`composer-hub replay status --run {shlex.quote(str(folder))}` shows who was asked."
        notes += [f"Left out: votes of {missing} missing from {source.repo} {source.tag}."] if votes.unused else []
    else:
        if folder or sharding or policy_changes:
            raise exits.UsageError("--from own-repairs asks nobody: it takes no --run, no policy and no --executor.")
        made, advice = make_repairs(source, options), "Teachers find other pairs: composer-hub replay plan."
    with made.plans.until_published():
        if not made.pairs:
            raise exits.NothingToDo(f"No step gave a pair: {counts_text(made.drops) or 'there are no votes'}. {advice}")
        purchase = replay.purchase_of(folder) if folder else None
        version = draft(made, publication.repo.split("/")[-1], source=source, license=license_, purchase=purchase,
                        on_note=notes.append)  # fmt: skip
        for note in notes:
            out.note(note)
        publication.carry_out(
            out, version.tables, version.card, version.lineage, title=version.title, report={"notes": notes}
        )


@pairs.command(short_help="Print the report of a pair set.")
@ref_argument
@click.option("--plots", type=NEW_FOLDER, help="Folder to draw plots into.")
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
