"""`composer-hub pairs`: from votes to a published pair set, its report, its differences, and its reviews."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, publish_options, to_option
from composer_hub.cli.policy import policy_options
from composer_hub.cli.reference import precompute_ref
from composer_hub.families import FAMILIES
from composer_hub.output import Output
from composer_hub.pairs.policy import Policy, Poll
from composer_hub.records import Message, Pair, Trace, Vote, features_of, from_row, to_row

if TYPE_CHECKING:
    from composer_hub.hub import Card, Table, Version
    from composer_hub.pairs.report import Metric, Tally

INDEX_COLUMNS = (
    "trace_id", "index", "num_steps", "level", "num_agree", "num_votes", "teachers", "families", "chosen_teacher",
    "source_model", "source_family", "error_kind", "after_error", "resolved", "cost_usd", "repository",
)  # fmt: skip
FAMILY_BITS = tuple(name for name, _ in FAMILIES)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def pairs() -> None:
    """Build, report, compare and review preference pairs."""


pairs.add_command(precompute_ref)


@pairs.command()
@click.argument("traces", metavar="REPO@REV")
@click.option(
    "--run",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the replay run.",
)
@policy_options
@click.option("--with-prose", is_flag=True, help="Keep the words beside the calls in chosen and rejected.")
@click.option("--license", "license_", default="other", show_default=True, help="Licence of the pair set.")
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

    The policy is the one the run asked for, with the options given here; votes that cannot answer it are refused.
    """
    from composer_hub.hub import Lineage, Parent, load_traces

    poll = Poll.read(folder)
    policy = dataclasses.replace(poll.policy, **policy_changes)
    poll.check(policy)
    source, stream = load_traces(publication.destination, traces)
    votes = VoteFile(folder / "votes.jsonl")
    made = make_pairs(stream, votes, policy, with_prose=with_prose)
    if votes.unused:
        out.note(
            f"The votes of {len(votes.unused):,} traces are left out: {source.repo} {source.tag} does not have them."
        )
    if not made.pairs:
        raise exits.NothingToDo(
            f"No step gave a pair: {_reasons(made.drops)}. `composer-hub replay status` shows who was asked."
        )
    money = _ambiguous_usd(folder)
    card, tables = pair_set(made, votes, policy, publication.repo, license_, ambiguous_usd=money)
    lineage = Lineage(
        parents=(Parent("traces", source.repo, source.revision, tag=source.tag),),
        config=dataclasses.asdict(policy) | {"with_prose": with_prose, "order": poll.order},
        sources={
            "teachers": sorted(made.teachers),
            "price_stamps": sorted(made.price_stamps),
            "family_bits": list(FAMILY_BITS),
        },
    )
    publication.carry_out(out, tables, card, lineage, title=f"Pairs from {source.repo} {source.tag}")


@pairs.command()
@click.argument("ref", metavar="REPO@REV")
@click.option("--plots", type=click.Path(file_okay=False, path_type=Path), help="Draw plots into this folder.")
@to_option
@format_option
def report(ref: str, plots: Path | None, to: str, out: Output) -> None:
    """Print the numbers published with a pair set."""
    from composer_hub.hub import destination, load
    from composer_hub.pairs.report import Metric

    version = load(destination(to), ref)
    metrics = list(version.records(Metric, "report"))
    if out.mode == "human":
        from composer_hub.pairs.report_card import report_markdown

        out.text(report_markdown(metrics))
    else:
        out.table([to_row(metric) for metric in metrics], id_key="metric")
    if plots:
        from composer_hub.pairs.plots import draw

        for plot in draw(metrics, plots):
            out.note(f"{plot.path}: {plot.alt}")


@pairs.command()
@click.argument("old", metavar="REPO@REV")
@click.argument("new", metavar="REPO@REV")
@to_option
@format_option
def diff(old: str, new: str, to: str, out: Output) -> None:
    """Show which pairs came, went and changed, and in which columns."""
    from composer_hub.hub import destination, load
    from composer_hub.pairs.verdicts import diff_pairs

    where = destination(to)
    before, after = load(where, old), load(where, new)
    found = diff_pairs(before.records(Pair, "default"), after.records(Pair, "default"))
    rows = [{"change": "added", "pair": pair, "columns": ""} for pair in found.added]
    rows += [{"change": "removed", "pair": pair, "columns": ""} for pair in found.removed]
    rows += [{"change": "changed", "pair": one.after, "columns": ", ".join(one.fields)} for one in found.changed]
    out.table(rows, id_key="pair", empty="No pair differs.")
    out.note(
        f"{len(found.added):,} added, {len(found.removed):,} removed, {len(found.changed):,} changed, "
        f"{found.num_same:,} the same."
    )


@pairs.command("apply-verdicts")
@click.argument("ref", metavar="REPO@REV")
@click.option(
    "--verdicts", "path", required=True, type=_FILE, help="JSONL: pair_id, verdict, reviewer, note, edited_chosen."
)
@publish_options
@format_option
def apply_verdicts(ref: str, path: Path, publication: Publication, out: Output) -> None:
    """Fold what reviewers said into the next version of a pair set."""
    from composer_hub.hub import Lineage, Parent, load
    from composer_hub.pairs import verdicts

    source = load(publication.destination, ref)
    kept, counts = verdicts.apply_verdicts(source.records(Pair, "default"), read_verdicts(path))
    splits = splits_of(source)
    tables = [pairs_table(kept, splits), *copied(source, ("votes", "report"))]
    card = reviewed_card(source, kept, counts)
    lineage = Lineage(
        parents=(Parent("reviewed", source.repo, source.revision, tag=source.tag),),
        sources={"verdicts": dict(counts)},
    )
    out.note("Verdicts: " + (", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"))
    publication.carry_out(out, tables, card, lineage, title=f"Apply verdicts to {source.tag}")


# ------------------------------------------------------------------------------------------------------------- making


class VoteFile:
    """The votes of a run, by trace; only where they stand is kept in memory."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise exits.UsageError(
                f"{path} is not there: run `composer-hub replay run` with --run {path.parent} first."
            )
        self.path = path
        self.places: dict[str, list[int]] = defaultdict(list)
        for offset, row in self._lines():
            self.places[row["trace_id"]].append(offset)
        self.unused = set(self.places)

    def of(self, trace_id: str) -> list[Vote]:
        """Return the votes of a trace."""
        self.unused.discard(trace_id)
        with self.path.open("rb") as file:
            votes = []
            for offset in self.places.get(trace_id, ()):
                file.seek(offset)
                votes.append(from_row(Vote, orjson.loads(file.readline())))
        return votes

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the votes of the traces that were used, as rows."""
        for _, row in self._lines():
            if row["trace_id"] not in self.unused:
                yield row

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        offset = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = orjson.loads(line)
                    from_row(Vote, row)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise exits.ComposerError(
                        f"{self.path}:{number} is not a vote ({error}). Write the file anew with "
                        "`composer-hub replay run`; nothing is paid twice."
                    ) from error
                yield offset, row
                offset += len(line)


@dataclass
class Made:
    """What a run's votes became."""

    pairs: list[Pair] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)
    teachers: set[str] = field(default_factory=set)
    price_stamps: set[str] = field(default_factory=set)
    splits: dict[str, str] = field(default_factory=dict)  # trace -> train or test
    num_traces: int = 0
    num_votes: int = 0


def make_pairs(traces: Iterator[Trace], votes: VoteFile, policy: Policy, *, with_prose: bool = False) -> Made:
    """Turn traces and their votes into pairs, one trace at a time."""
    from composer_hub.pairs.ballots import ballots
    from composer_hub.pairs.make import pairs_from, split_of, without_duplicates
    from composer_hub.pairs.report import tally

    made, seen = Made(), set[str]()
    for trace in traces:
        cast = votes.of(trace.trace_id)
        if not cast:
            continue
        counted = list(ballots(trace, cast, exclude_same_family=policy.exclude_same_family))
        found, drops = pairs_from(counted, policy=policy, with_prose=with_prose)
        fresh = list(without_duplicates(found, seen))
        made.pairs += fresh
        made.tallies += [tally(ballot) for ballot in counted]
        made.drops += drops + Counter(duplicate=len(found) - len(fresh))
        made.teachers |= {vote.teacher for vote in cast}
        made.price_stamps |= {vote.price_stamp for vote in cast if vote.price_stamp}
        made.splits[trace.trace_id] = split_of(trace)
        made.num_traces += 1
        made.num_votes += len(cast)
    return made


def pair_set(
    made: Made, votes: VoteFile, policy: Policy, repo: str, license: str, *, ambiguous_usd: float
) -> tuple[Card, list[Table]]:
    """Return the card and the tables of a pair set."""
    from composer_hub.hub import Card
    from composer_hub.pairs.report import report_rows
    from composer_hub.pairs.report_card import report_markdown

    metrics = report_rows(
        made.pairs, made.tallies, drops=made.drops, ambiguous_usd=ambiguous_usd, veto_level=policy.veto_level
    )
    card = Card(
        "pairs",
        pretty_name=f"{repo.split('/')[1]}: preference pairs from teacher replay",
        license=license,
        tags=("preference", "dpo", "agents", "tool-use", "teacher-replay"),
        counts={"traces": made.num_traces, "teacher answers": made.num_votes, "pairs": len(made.pairs)},
        dropped=dict(made.drops.most_common()),
        holes={"policy": policy_text(policy, sorted(made.teachers)), "report": report_markdown(metrics)},
    )
    return card, [pairs_table(made.pairs, made.splits), votes_table(votes.rows()), report_table(metrics)]


def pairs_table(rows: list[Pair], splits: Mapping[str, str]) -> Table:
    """Return the `default` config: pairs with their split, and an index light enough to browse by."""
    from datasets import Value

    from composer_hub.hub import Table
    from composer_hub.pairs.preview import preview, tool_names

    text = Value("string")
    return Table(
        "default",
        [to_row(pair) | {"split": splits[pair.trace_id]} for pair in rows],
        features_of(Pair),
        "pair_id",
        ("trace_id", "index"),
        split=None,
        index_name="pairs",
        index_columns=INDEX_COLUMNS,
        index_derived={
            "family_mask": (Value("int64"), lambda row: family_mask(row["families"])),
            "chosen_tool": (text, lambda row: tool_names(row["chosen"])),
            "rejected_tool": (text, lambda row: tool_names(row["rejected"])),
            "chosen_preview": (text, lambda row: preview(row["chosen"])),
            "rejected_preview": (text, lambda row: preview(row["rejected"])),
        },
    )


def splits_of(source: Version) -> dict[str, str]:
    """Return the split each trace's pairs stand in."""
    return {row["trace_id"]: name for name in source.splits("default") for row in source.rows("default", name)}


def family_mask(families: list[str]) -> int:
    """Return one bit a family, in the order of `FAMILY_BITS`; an unknown family is the highest bit."""
    mask = 0
    for family in families:
        mask |= 1 << (FAMILY_BITS.index(family) if family in FAMILY_BITS else 62)
    return mask


def votes_table(rows: Iterator[dict[str, Any]]) -> Table:
    """Return the `votes` config."""
    from composer_hub.hub import Table

    return Table("votes", rows, features_of(Vote), "vote_id", ("trace_id", "index", "teacher"))


def report_table(metrics: list[Metric]) -> Table:
    """Return the `report` config: one number a row."""
    from datasets import Value

    from composer_hub.hub import Table
    from composer_hub.pairs.report import Metric

    # Read back, every number is a float: a count written as an int would be another row to whoever copies it.
    rows = [
        {key: float(value) if isinstance(value, int) and key != "n" else value for key, value in to_row(metric).items()}
        | {"id": f"{metric.metric} {metric.scope}".strip()}
        for metric in metrics
    ]
    features = features_of(Metric)
    features["id"] = Value("string")
    return Table("report", rows, features, "id")


def policy_text(policy: Policy, teachers: list[str]) -> str:
    """Say in words when votes became a pair."""
    own = "left out" if policy.exclude_same_family else "counted too"
    return (
        f"Teachers: {', '.join(f'`{name}`' for name in teachers)}. A pair needs at least {policy.min_agree} teachers, "
        f"and a majority of those whose vote counts, that agree at {policy.agree_level}, and a student that differs "
        f"from them at {policy.veto_level}. Teachers of the student's own family are {own}."
    )


def _ambiguous_usd(folder: Path) -> float:
    from composer_hub.money import to_usd
    from composer_hub.replay.ledger import Ledger

    path = folder / "ledger.sqlite"
    if not path.is_file():
        return 0.0
    with Ledger(path) as ledger:
        return to_usd(ledger.budget().ambiguous)


def _reasons(drops: Counter[str]) -> str:
    return (
        ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in drops.most_common())
        or "there are no votes"
    )


# ----------------------------------------------------------------------------------------------------------- reviewing


def read_verdicts(path: Path) -> Iterator[Any]:
    """Yield the verdicts of a JSONL file."""
    from composer_hub.pairs.verdicts import Verdict

    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            edited = tuple(Message.from_chat(message) for message in row.get("edited_chosen") or ())
            yield Verdict(row["pair_id"], row["verdict"], row["reviewer"], row.get("note") or "", edited)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise exits.UsageError(
                f"{path}:{number} is not a verdict ({error}): an object with pair_id, verdict and reviewer is needed."
            ) from error


def copied(source: Version, configs: tuple[str, ...]) -> list[Table]:
    """Return configs of a version as tables, unchanged."""
    from datasets import Value

    from composer_hub.hub import Table
    from composer_hub.pairs.report import Metric

    report_features = features_of(Metric)
    report_features["id"] = Value("string")
    known = {
        "votes": (features_of(Vote), "vote_id", ("trace_id", "index", "teacher")),
        "report": (report_features, "id", ()),
    }
    return [
        Table(config, source.rows(config), *known[config]) for config in configs if config in source.manifest["tables"]
    ]


def reviewed_card(source: Version, kept: list[Pair], counts: Counter[str]) -> Card:
    """Return the card of a reviewed version: what the source said, and what reviewers changed."""
    from composer_hub.hub import Card
    from composer_hub.pairs.report import Metric
    from composer_hub.pairs.report_card import report_markdown

    metrics = list(source.records(Metric, "report"))
    said = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items()) or "none"
    return Card(
        "pairs",
        pretty_name=f"{source.repo.split('/')[1]}: reviewed preference pairs",
        license=license_of(source),
        tags=("preference", "dpo", "agents", "tool-use", "teacher-replay", "reviewed"),
        counts={**source.manifest["counts"], "pairs": len(kept)},
        dropped=source.manifest["dropped"],
        holes={
            "policy": f"The pairs of {source.repo} {source.tag} with their reviewers' verdicts ({said}).",
            "report": f"Numbers of {source.tag}, before review:\n\n{report_markdown(metrics)}",
        },
    )


def license_of(source: Version) -> str:
    """Return the licence on the card of a version."""
    from huggingface_hub import DatasetCard

    readme = source.destination.fetch(source.repo, source.revision, "README.md")
    return str(DatasetCard.load(readme).data.license or "other") if readme else "other"
