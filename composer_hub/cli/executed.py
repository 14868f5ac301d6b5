"""`composer-hub pairs execute`: let the tests of tasks decide between the two actions of pairs."""

from __future__ import annotations

import dataclasses

import click

from composer_hub import exits
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, publish_options, ref_argument, sandbox_option
from composer_hub.hub import Draft, Version, load, load_traces, parse_ref
from composer_hub.output import Output
from composer_hub.records import Execution, Pair


@click.command(short_help="Let tests decide between actions.")
@ref_argument
@click.option("--tasks", "tasks_ref", required=True, metavar="REPO@REV", help="Tasks that the traces were played on.")
@click.option("--traces", "traces_ref", metavar="REPO@REV", help="Rollouts (default: those that the pairs came from).")
@click.option("--apply", is_flag=True, help="Also swap and remove pairs as the tests say.")
@sandbox_option
@click.option("--workers", default=2, type=click.IntRange(1), help="Traces at the same time.")
@publish_options("pairs", repo_required=False)
@format_option
def execute(
    ref: str,
    tasks_ref: str,
    traces_ref: str | None,
    apply: bool,
    sandbox: str,
    workers: int,
    publication: Publication,
    out: Output,
) -> None:
    """Execute both actions of each pair in the state before its step, run the tests, and publish the verdicts.

    The next version of the pair set has a config `executed`. Without --repo it is published to the set itself.
    """
    from composer_hub.environments import CodingOptions, open_shelf
    from composer_hub.environments.executed import execute_pairs
    from composer_hub.pairs import executed_draft, executed_numbers, executed_text

    publication = dataclasses.replace(publication, repo=publication.repo or parse_ref(ref).repo)
    publication.check()
    where = publication.destination
    tasks, shelf = load(where, tasks_ref), open_shelf(tasks_ref, where)
    known: dict[str, Execution] = {}

    def executed(source: Version) -> Draft:
        """Execute the pairs that were not executed before: the head may move, and this runs again."""
        pairs = [pair for pair in source.records(Pair, "default") if pair.pair_id not in known]
        _, traces = load_traces(where, traces_ref or _traces_of(source))
        with out.progress("pairs", len(pairs)) as bar:
            made = execute_pairs(
                pairs, traces, shelf, options=CodingOptions(sandbox=sandbox), workers=workers, on_pair=bar.advance
            )
        known.update({one.pair_id: one for one in made})
        rows = [known[row["pair_id"]] for row in source.rows("default")]
        out.note(executed_text(numbers := executed_numbers(rows)), executed=numbers)
        draft, changed = executed_draft(source, rows, tasks, apply=apply)
        if apply:
            counts = ", ".join(f"{name} {count:,}" for name, count in changed.items())
            out.note(f"Applied to {source.name}: {counts or 'nothing'}.", applied=dict(changed))
        return draft

    publication.carry_out_next(out, ref, executed)


def _traces_of(pairs: Version) -> str:
    """Return the traces that a pair set was made from, through the versions between."""
    version = pairs
    while True:
        parents = {one["role"]: one for one in version.manifest.get("parents", ())}
        if "traces" in parents:
            return f"{parents['traces']['repo']}@{parents['traces']['revision']}"
        before = next((parents[role] for role in ("reviewed", "executed", "pairs") if role in parents), None)
        if before is None:
            raise exits.UsageError(
                f"{pairs.repo} does not name its traces. Name them with --traces owner/name@revision."
            )
        version = load(version.destination, f"{before['repo']}@{before['revision']}")
