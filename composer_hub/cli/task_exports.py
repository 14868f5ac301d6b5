"""Tasks that leave: published with their oracles, `tasks serve` (an OpenEnv server), `tasks harbor` (Harbor trees)."""

from __future__ import annotations

from pathlib import Path

import click

from composer_hub import extras
from composer_hub import tasks as stage
from composer_hub.cli.main import format_option
from composer_hub.cli.options import Publication, from_option, sandbox_option
from composer_hub.cli.paths import NEW_FOLDER
from composer_hub.cli.publishing import show_plan, show_published
from composer_hub.hub import Draft, NothingToPublish, Version, destination, dry_run, newest, update
from composer_hub.output import Output
from composer_hub.tasks.harbor import write_harbor


@click.command(short_help="Serve tasks to OpenEnv clients.")
@click.argument("ref", metavar="OWNER/NAME[@VERSION]")
@click.option("--port", default=8000, type=click.IntRange(0, 65535), help="Port (0: a free one).")
@click.option("--max-sessions", default=16, type=click.IntRange(1), help="Episodes at the same time.")
@sandbox_option
@from_option
@format_option
def serve(ref: str, port: int, max_sessions: int, sandbox: str, origin: str, out: Output) -> None:
    """Serve a version of tasks to OpenEnv clients on this machine until Ctrl-C."""
    extras.need("This server", "openenv", "openenv")
    from composer_hub.environments import CodingOptions, open_shelf
    from composer_hub.environments.openenv_server import serve as serve_shelf

    shelf = open_shelf(ref, destination(origin))

    def tell(url: str) -> None:
        out.note(f"{len(shelf.tasks):,} tasks are at {url}. Train with --environment openenv:{url}.")

    serve_shelf(shelf, port, options=CodingOptions(sandbox=sandbox), max_sessions=max_sessions, on_start=tell)


@click.command(short_help="Write tasks as Harbor trees.")
@click.argument("ref", metavar="OWNER/NAME[@VERSION]")
@click.argument("folder", type=NEW_FOLDER)
@click.option("--max", "number", type=int, help="Tasks to write (default: all).")
@from_option
@format_option
def harbor(ref: str, folder: Path, number: int | None, origin: str, out: Output) -> None:
    """Write a version as Harbor tasks with a registry.json, each tried with its solution and without."""
    written = write_harbor(destination(origin), ref, folder, number)
    out.record({"folder": str(folder), **written}, id_key="folder")


def publish(out: Output, publication: Publication, made: stage.TaskSet, num_trees: int = 0) -> None:
    """Publish or plan both datasets: the oracles first, because tasks without theirs would be judged by tests alone."""
    where, repo, numbers = publication.destination, publication.repo, made.numbers()
    numbers["sources"] = [vars(one) for one in made.reports]
    name = repo.split("/")[1]
    options = publication.options()
    hidden = f"{repo}-oracle"

    def make_draft(before: Version | None) -> Draft:
        # Read for each attempt: the kept tasks of another run have their oracles in the newest version.
        oracles = None if publication.dry_run else newest(where, hidden)
        return stage.draft(made, name, before, repo=repo, num_trees=num_trees, hidden=oracles)

    if publication.dry_run:
        draft = make_draft(newest(where, repo))
        plan = dry_run(where, repo, draft.tables, draft.card, lineage=draft.lineage, options=options)
        show_plan(out, plan, where.address, numbers)
        return
    if made.oracles:
        try:
            update(where, hidden, lambda before: stage.oracle_draft(made, name, before))
            text = f"{len(made.oracles):,} hidden oracles are in {hidden} (private)."
            out.note(text, num_oracles=len(made.oracles))
        except NothingToPublish:
            out.note(f"{hidden} already holds these oracles.")
    published = update(where, repo, make_draft, options=options)
    show_published(out, published, publication.to, numbers)
