"""`composer-hub pairs diff` and `apply-verdicts`: compare two versions of a pair set, and make the reviewed one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Sized
from pathlib import Path
from typing import TypeVar

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, from_option, publish_options, ref_argument
from composer_hub.cli.paths import FILE
from composer_hub.hub import Draft, ReviewFile, Version, destination, load
from composer_hub.output import Output
from composer_hub.pairs import diff_pairs, merged_verdicts, read_verdicts, reviewed_draft
from composer_hub.records import Pair

V = TypeVar("V")


@click.command(short_help="Compare two versions of a pair set.")
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
    out.table(rows, id_key="pair", empty="The pairs are the same.", num_same=changes.num_same)
    out.note(
        f"{len(changes.added):,} added, {len(changes.removed):,} removed, {len(changes.changed):,} changed, "
        f"{changes.num_same:,} the same."
    )


@click.command("apply-verdicts", short_help="Apply reviewers' verdicts to a pair set.")
@ref_argument
@click.option(
    "--verdicts",
    "path",
    type=FILE,
    help="JSONL: pair_id, verdict, reviewer, note, edited_chosen, taken as it is. Default: the verdicts merged into "
    "the dataset, by their authors on the Hub.",
)
@publish_options("pairs")
@format_option
def apply_verdicts(ref: str, path: Path | None, publication: Publication, out: Output) -> None:
    """Publish the next version of a pair set, with the verdicts of its reviewers applied."""
    given = verdicts_in(path, read_verdicts)

    def reviewed(source: Version) -> Draft:
        verdicts, refused = merged_verdicts(source) if given is None else (given, [])
        need_verdicts(out, ref, source, verdicts, refused)
        draft, counts = reviewed_draft(source, verdicts, refused)
        show_counts(out, source, counts)
        return draft

    publication.carry_out_next(out, ref, reviewed)


def verdicts_in(path: Path | None, read: Callable[[Path], Iterable[V]]) -> list[V] | None:
    """Return the verdicts of a file that the user names, None without one; end if it holds none."""
    found = list(read(path)) if path else None
    if found == []:
        raise exits.NothingToDo(f"{path} holds no verdict for this command. Name the file that the reviewers wrote.")
    return found


def need_verdicts(out: Output, ref: str, source: Version, verdicts: Sized, refused: Sequence[ReviewFile]) -> None:
    """Name the files of verdicts that do not count; end if no verdict is left."""
    for file in refused:
        out.warn(f"Not counted: {file}.")
    if not verdicts:
        raise exits.NothingToDo(
            f"{source.repo} has no merged verdicts{' that count' if refused else ''}. Review it with "
            f"`composer-hub space open {ref}`, submit, and merge the pull request."
        )


def show_counts(out: Output, source: Version, counts: Counter[str]) -> None:
    """Print the verdicts on a version by outcome."""
    words = f"Verdicts on {source.name}: {counts_text(counts) or 'none'}"
    out.note(words, reviewed=source.name, verdicts=dict(counts))


def counts_text(counts: Counter[str]) -> str:
    """Return counts in words, the largest first."""
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.most_common())
