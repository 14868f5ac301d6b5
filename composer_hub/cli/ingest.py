"""`composer-hub ingest`: session files -> the next version of a redacted, hinted trace dataset."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import click

from composer_hub import exits
from composer_hub import ingest as stage
from composer_hub.cli.grouped import grouped
from composer_hub.cli.ingest_output import check_raw, sessions_here, show_and_publish, show_formats, show_found
from composer_hub.cli.ingest_watch import check_watch, keep_current
from composer_hub.cli.main import format_option
from composer_hub.cli.models import Models, model_options
from composer_hub.cli.options import Publication, publish_options
from composer_hub.cli.paths import FILE
from composer_hub.cli.review import ask, check_review
from composer_hub.cli.sharding import Spread, sharding_options
from composer_hub.output import Output
from composer_hub.redact import need_kingfisher, this_publisher


def _denied(ctx: click.Context, param: click.Parameter, path: Path | None) -> frozenset[str]:
    return stage.read_denied(path) if path else frozenset()


@click.command(short_help="Turn session files into a trace dataset.")
@click.argument("sources", nargs=-1, metavar="[SRC…]")
@click.option("--list", "list_formats", is_flag=True, help="List the formats that can be read.")
@click.option("--report", "show_report", is_flag=True, help="Print all numbers; without --repo, publish nothing.")
@grouped(
    "options",
    stage.IngestOptions,
    click.option("--review", is_flag=True, help="Look at what was replaced, value by value, before publishing."),
    click.option("--deny", "denied", type=FILE, callback=_denied, help="File of trace ids to leave out, one per line."),
)
@click.option("--yes", is_flag=True, help="Make rows public without the review.")
@model_options
@click.option("--raw", is_flag=True, help="Also put the raw files into a private dataset OWNER/NAME-sessions.")
@click.option("--watch", is_flag=True, help="Publish again after each change, until Ctrl-C.")
@click.option(
    "--settle",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    help="Seconds without a change before --watch publishes.",
)
@sharding_options
@publish_options("traces", repo_required=False)
@format_option
def ingest(
    sources: tuple[str, ...],
    list_formats: bool,
    show_report: bool,
    options: stage.IngestOptions,
    yes: bool,
    raw: bool,
    watch: bool,
    settle: float,
    models: Models,
    spread: Spread,
    publication: Publication,
    out: Output,
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
        check_watch(publication, sources, review=options.review)
    if raw:
        check_raw(publication)
    if options.scan:
        need_kingfisher()
    if publication.public:
        options.refuse_unredacted()
    review = check_review(out, public=publication.makes_public, review=options.review, yes=yes)
    chosen = dataclasses.replace(options, review=review, publisher=this_publisher(os.environ, Path.home()))
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
        if review and ask(ingested.samples.values(), ingested.decisions):
            ingested = read()
        show_and_publish(out, publication, ingested, raw=raw, show_report=show_report)

    if watch:
        keep_current(out, sources, run, settle=settle, folder=folder)
    else:
        run()
