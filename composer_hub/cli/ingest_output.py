"""The output of `composer-hub ingest`: formats, local sessions, problems, numbers and versions."""

from __future__ import annotations

import datetime
import os
import shlex
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub import ingest as stage
from composer_hub.cli.options import Publication
from composer_hub.cli.publishing import show_plan, show_published
from composer_hub.cli.review import show_replaced
from composer_hub.harnesses import HARNESSES
from composer_hub.hub import NothingToPublish, check_target
from composer_hub.ingest.discovery import FoundSessions, sessions_on
from composer_hub.output import Output, plural

_MAX_SHOWN_PROBLEMS = 10


def show_formats(out: Output) -> None:
    """Print the formats that can be read."""
    rows = [{"name": h.name, "title": h.title, "gives": h.gives, "lacks": h.lacks} for h in HARNESSES]
    out.table(rows, id_key="name")


def show_problems(out: Output, ingested: stage.Ingested) -> None:
    """Print the first problems, and how many traces lost their token ids."""
    for problem in ingested.report.problems[:_MAX_SHOWN_PROBLEMS]:
        out.note(str(problem))
    if (more := ingested.report.num_problems - _MAX_SHOWN_PROBLEMS) > 0:
        out.note(f"... and {more:,} more problems.")
    if dropped := ingested.numbers()["tokens_dropped"]:
        traces = plural(dropped, "trace")
        out.note(f"Redaction changed the text of {traces}, so their token ids, which spell that text, were dropped.")


def show_numbers(out: Output, numbers: dict[str, Any]) -> None:
    """Print the numbers of a run; people see only those that are not zero."""
    if out.mode in ("json", "quiet"):
        out.record(numbers, id_key="traces")
        return
    shown = {name.replace("_", " "): value for name, value in numbers.items() if value not in (0, {}, None)}
    out.record(shown or {"traces": 0}, id_key="traces")


def sessions_here() -> list[FoundSessions]:
    """Return the sessions of all harnesses on this machine, or raise NothingToDo."""
    found = sessions_on(os.environ, Path.home())
    if not found:
        raise exits.NothingToDo("No harness keeps sessions on this machine. Name a file or a folder of sessions.")
    return found


def show_found(out: Output, found: list[FoundSessions]) -> None:
    """Print what ingest would read on this machine, and the commands that do it."""
    rows = [
        {
            "harness": one.harness,
            "folder": str(one.folder),
            "files": one.num_files,
            "MB": round(one.num_bytes / 1e6, 1),
            "newest": datetime.datetime.fromtimestamp(one.changed).astimezone().strftime("%Y-%m-%d"),
        }
        for one in found
    ]
    out.table(rows, id_key="folder")
    command = f"composer-hub ingest {' '.join(shlex.quote(str(one.folder)) for one in found)}"
    out.note(f"Nothing was read or published. To see the numbers: {command} --report")
    out.note(f"To publish them, redacted and private: {command} --to hub --repo OWNER/NAME")


def check_raw(publication: Publication) -> None:
    """Refuse to publish raw files where others may read them."""
    if publication.public:
        raise exits.Refused("Raw files are not redacted and never become public: leave --raw or --public out.")
    check_target(publication.destination, f"{publication.repo}-sessions", "raw sessions", public=False)


def show_and_publish(
    out: Output, publication: Publication, ingested: stage.Ingested, *, raw: bool, show_report: bool
) -> None:
    """Print problems and numbers; publish or plan the version, then the raw files."""
    numbers = ingested.numbers()
    if publication.makes_public:
        show_replaced(out, numbers, ingested.rules())
    show_problems(out, ingested)
    # A command prints one JSON value, so with --repo the numbers are part of the publication.
    if show_report and (out.mode in ("human", "agent") or not publication.repo):
        show_numbers(out, numbers)
    if not publication.repo:
        return
    report, options = numbers if show_report else None, publication.options("Ingest sessions")
    if publication.dry_run:
        show_plan(out, ingested.plan(options), publication.destination.address, report)
        return
    try:
        show_published(out, ingested.publish(options), publication.to, report)
    except NothingToPublish:
        if not (raw and publish_raw(out, ingested)):
            raise
    else:
        if raw:
            publish_raw(out, ingested)


def publish_raw(out: Output, ingested: stage.Ingested) -> int:
    """Publish the raw files and return how many are new."""
    count, held_back = ingested.publish_raw()
    repo = f"{ingested.repo}-sessions"
    if held_back:
        out.note(f"{plural(held_back, 'raw file')} with a denied trace did not go to {repo}.")
    added = f"{plural(count, 'raw session')} {'is' if count == 1 else 'are'} in {repo} (private) now."
    out.note(added if count else f"{repo} holds every raw session already.")
    return count
