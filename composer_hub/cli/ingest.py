"""`composer-hub ingest`: session files -> the next version of a redacted, hinted trace dataset."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import click

from composer_hub import exits
from composer_hub import ingest as stage
from composer_hub.cli.ingest_output import (
    publish,
    sessions_here,
    show_formats,
    show_found,
    show_numbers,
    show_problems,
)
from composer_hub.cli.ingest_watch import check_watch, keep_current
from composer_hub.cli.main import format_option
from composer_hub.cli.models import Models, model_options
from composer_hub.cli.options import Publication, publish_options
from composer_hub.cli.paths import FILE, FILE_OR_FOLDER
from composer_hub.cli.review import ask, check_review, show_replaced
from composer_hub.cli.sharding import Spread, sharding_options
from composer_hub.hub import check_target
from composer_hub.output import Output
from composer_hub.redact import need_kingfisher, this_publisher


@click.command(short_help="Turn session files into a trace dataset.")
@click.argument("sources", nargs=-1, metavar="[SRC…]")
@click.option("--from", "format", default="", metavar="NAME", help="Format of every file; see --list.")
@click.option("--list", "list_formats", is_flag=True, help="List the formats that can be read.")
@click.option("--report", "show_report", is_flag=True, help="Print all numbers; without --repo, publish nothing.")
@click.option("--redact/--no-redact", default=True, show_default=True, help="Replace secrets and personal data.")
@click.option(
    "--personal",
    type=click.Choice(["standard", "strict"]),
    default="standard",
    show_default=True,
    help="Personal data to replace; strict takes look-alikes with it.",
)
@click.option("--scan/--no-scan", default=None, help="Check the result with kingfisher (default: if installed).")
@click.option("--review", is_flag=True, help="Look at what was replaced, value by value, before publishing.")
@click.option("--yes", is_flag=True, help="Make rows public without the review.")
@click.option("--deny", type=FILE, help="File of trace ids to leave out, one per line.")
@click.option("--env-file", "env_files", multiple=True, type=FILE_OR_FOLDER, help="File or folder of .env values.")
@click.option("--writers", default="hindsight,quoted", show_default=True, help="Hint writers, in order.")
@model_options
@click.option("--outcome-hints", is_flag=True, help="Also write hints from failed tests and compilers.")
@click.option("--user-hints", is_flag=True, help="Also write hints from the user's words at a rejection.")
@click.option("--text-rules", is_flag=True, help="Also read other failures from shell output without an exit code.")
@click.option("--license", default="other", show_default=True, help="License of files that do not state one.")
@click.option("--strict", is_flag=True, help="End the run at a corrupt line or an unknown record.")
@click.option("--workers", default=0, help="Worker processes (0: one per core).")
@click.option("--fresh", is_flag=True, help="Ignore earlier versions and read every file again.")
@click.option("--viewer/--no-viewer", default=True, show_default=True, help="Add sessions for the Hub's trace viewer.")
@click.option("--raw", is_flag=True, help="Also put the raw files into a private dataset OWNER/NAME-sessions.")
@click.option("--watch", is_flag=True, help="Publish again after each change, until Ctrl-C.")
@click.option("--settle", default=30.0, show_default=True, help="Seconds without a change before --watch publishes.")
@sharding_options
@publish_options("traces", repo_required=False)
@format_option
def ingest(
    sources: tuple[str, ...],
    list_formats: bool,
    show_report: bool,
    raw: bool,
    review: bool,
    yes: bool,
    deny: Path | None,
    watch: bool,
    settle: float,
    models: Models,
    spread: Spread,
    publication: Publication,
    out: Output,
    **options: Any,
) -> None:
    """Turn session files and folders into a versioned, redacted trace dataset.

    SRC is a file, a folder such as ~/.claude/projects, or hf://datasets/OWNER/NAME. Without SRC, the sessions of all
    harnesses on this machine are listed, and with --report they are read.
    """
    if list_formats:
        show_formats(out)
        return
    if not sources:
        if publication.repo or raw or watch:
            raise exits.UsageError("Name the sessions to publish. `composer-hub ingest` lists those on this machine.")
        found = sessions_here()
        if not show_report:
            show_found(out, found)
            return
        sources = tuple(str(one.folder) for one in found)
    if not publication.repo and not show_report:
        raise exits.UsageError("Name the dataset with --repo OWNER/NAME, or add --report to only see the numbers.")
    if watch:
        check_watch(publication, sources, review=review)
    if raw:
        if publication.public:
            raise exits.Refused("Raw files are not redacted and never become public: leave --raw or --public out.")
        check_target(publication.destination, f"{publication.repo}-sessions", "raw sessions", public=False)
    if options["scan"]:
        need_kingfisher()
    denied = stage.read_denied(deny) if deny else frozenset()
    chosen = stage.Options(denied=denied, publisher=this_publisher(os.environ, Path.home()), **options)
    if publication.public:
        chosen.refuse_unredacted()
    public = publication.public and not publication.dry_run
    chosen = dataclasses.replace(chosen, review=check_review(out, public=public, review=review, yes=yes))
    # The embedded Hub starts only if something needs it.
    needs_hub = publication.repo or any(source.startswith("hf://") for source in sources)
    destination = publication.destination if needs_hub else None
    folder = stage.memory_folder(destination, publication.repo)
    asked = models.open(folder, out.note)
    sharding = spread.sharding(out, destination, folder, chosen.workers)

    def read() -> stage.Ingested:
        with out.progress("reading") as bar:

            def on_file(path: str, num_files: int) -> None:
                bar.total = num_files
                bar.advance(1, file=path[-40:])

            given = {**asked, "on_file": on_file, "sharding": sharding}
            return stage.ingest(sources, chosen, destination=destination, repo=publication.repo, **given)

    def run() -> None:
        ingested = read()
        if chosen.review and ask(ingested.samples.values(), ingested.decisions):
            ingested = read()
        if public:
            show_replaced(out, ingested.numbers(), ingested.rules())
        show_problems(out, ingested)
        # A command prints one JSON value, so with --repo the numbers are part of the publication.
        if show_report and (out.mode in ("human", "agent") or not publication.repo):
            show_numbers(out, ingested.numbers())
        if publication.repo:
            publish(out, publication, ingested, raw=raw, report=ingested.numbers() if show_report else None)

    if watch:
        keep_current(out, sources, run, settle=settle, folder=folder)
    else:
        run()
