"""`composer-hub report`: session files -> a page and a summary of where agents lose turns."""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
import shutil
import webbrowser
from pathlib import Path

import click

from composer_hub import exits
from composer_hub import report as stage
from composer_hub.cli.grouped import grouped
from composer_hub.cli.main import format_option
from composer_hub.output import Output
from composer_hub.redact import environment_secrets, this_publisher
from composer_hub.report.make import default_folders, writable

_SPAN = re.compile(r"(\d{1,5})([dwmy])")
_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


@click.command(short_help="See where your agents lose turns.")
@click.argument("sources", nargs=-1, metavar="[FOLDER…]")
@click.option("--out", "path", default="agent-report.html", metavar="FILE", help="File of the page.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in the browser.")
@click.option(
    "--since",
    default="",
    metavar="DATE|30d",
    callback=lambda ctx, param, value: _seconds(value),
    help="Leave out what is older: a date, or 30d, 6w, 3m, 1y.",
)
@grouped("options", stage.ReportOptions)
@format_option
def report(sources: tuple[str, ...], path: str, open_page: bool, options: stage.ReportOptions, out: Output) -> None:
    """Write a page about the sessions in FOLDER, or in the folders of all harnesses on this machine.

    The page shows whose fault failed calls were, what they cost, lines to copy into AGENTS.md, and what changed since
    the report before. Nothing leaves this machine, and no model is called.
    """
    if options.raw and options.share:
        raise exits.UsageError("--raw shows words and --share shows none: choose one of them.")
    home = Path.home()
    writable(path)  # before a minute of reading
    options = dataclasses.replace(
        options,
        publisher=this_publisher(os.environ, home),
        exact=tuple(environment_secrets(os.environ)),
        memory=Path(os.environ.get("COMPOSER_HUB_STATE") or home / ".local" / "state" / "composer_hub"),
    )
    folders = [Path(source).expanduser() for source in sources] or default_folders(os.environ, home)
    if missing := [source for source in sources if not source or not Path(source).expanduser().exists()]:
        raise exits.UsageError(f"There is no {missing[0] or 'empty path'}. Name a file or a folder of sessions.")
    if not sources:
        out.note(f"Reading {', '.join(str(folder) for folder in folders)}.")
    with out.progress("reading") as bar:

        def on_file(name: str, num_files: int) -> None:
            bar.total = num_files
            bar.advance(1, file=name[-40:])

        made = stage.report(folders, options, home=home, on_file=on_file)
    page = made.write(path)
    if out.mode == "json":
        out.record({"page": str(page), **made.data()}, id_key="page")
    elif out.mode == "quiet":
        out.record({"page": str(page)}, id_key="page")
    else:
        out.text(made.summary(width=shutil.get_terminal_size((80, 24)).columns))
        out.text(f"\nPage: {page}")
        if not options.share:
            out.note(
                "It quotes your sessions. Secrets are "
                + ("in it." if options.raw else "replaced, but read it before you share it, or use --share.")
            )
    if open_page and not webbrowser.open(page.absolute().as_uri()):
        out.note("No browser could be started. Open the page yourself.")


def _seconds(since: str) -> float:
    """Return a date or a span of days as seconds since 1970, 0 for what is before."""
    if not since:
        return 0.0
    now = datetime.datetime.now().astimezone()
    try:
        if match := _SPAN.fullmatch(since.strip().lower()):
            day = now - datetime.timedelta(days=int(match[1]) * _DAYS[match[2]])
        else:
            day = datetime.datetime.fromisoformat(since)
        if day.year == datetime.MAXYEAR:  # in another time zone perhaps the year after
            raise OverflowError
    except (ValueError, OverflowError):
        raise exits.UsageError(
            f"--since {since!r} is no date: write 2026-10-01, or a span such as 30d, 6w or 1y."
        ) from None
    return day.timestamp() if day.year > 1970 else 0.0
