"""The report as a whole: folders in, a `Made` with its numbers, its page, its summary and its JSON out."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub import __version__, exits
from composer_hub.harnesses import session_folders
from composer_hub.named_files import refuse_odd, write_whole
from composer_hub.options import option
from composer_hub.output import plural
from composer_hub.records import stable_id
from composer_hub.redact import NO_ONE, Publisher, Redactor
from composer_hub.report.cleaner import Cleaner
from composer_hub.report.collect import Collection, collect
from composer_hub.report.data import as_json
from composer_hub.report.evidence import View, evidence_of
from composer_hub.report.numbers import Numbers, numbers_of
from composer_hub.report.page import MARK, page
from composer_hub.report.projects import short_names
from composer_hub.report.since import change_of, load, save, snapshot_of
from composer_hub.report.summary import summary

HEAD = 4096  # bytes of a page that hold its mark


@dataclass(frozen=True)
class ReportOptions:
    """How to make a report. The fields are the options of `composer-hub report`."""

    since: float = 0.0  # seconds since 1970: leave out what is older
    raw: bool = option(False, "Show words of sessions as they are, with their secrets.")
    share: bool = option(False, "Counts only: no paths, commands, words or names.")
    workers: int = option(0, "Worker processes (0: one per core).")
    publisher: Publisher = NO_ONE  # whose name, address and machine are replaced
    exact: tuple[str, ...] = field(default=(), repr=False)  # further values to replace
    zone: datetime.tzinfo | None = None  # of days and weeks; None = the machine's
    memory: Path | None = None  # folder for the counts that the next report is compared with
    now: float = 0.0  # seconds since 1970; 0 = the clock


class Made:
    """A report that can be shown in several ways."""

    def __init__(self, numbers: Numbers, options: ReportOptions, home: str, memory: Path | None = None) -> None:
        self.numbers, self.options, self.memory = numbers, options, memory
        self.now = options.now or time.time()
        self.snapshots = load(memory) if memory else []
        change = change_of(numbers, self.snapshots, self.now, options.since)
        redactor = None
        if not options.raw:
            redactor = Redactor(secrets.token_bytes(16), exact=options.exact, publisher=options.publisher)
        cleaner = Cleaner(redactor, home)
        names = short_names(numbers.projects.values())
        if options.share:
            names = {project: f"project {number}" for number, project in enumerate(names, start=1)}
        evidence = evidence_of(numbers, cleaner, options.zone)
        self.view = View(numbers, evidence, cleaner, names, options.zone, options.share, __version__, change)

    def page(self) -> str:
        """Return the report as one HTML file."""
        return page(self.view)

    def summary(self, *, width: int = 80) -> str:
        """Return the report as a few lines of text."""
        return summary(self.view, width=width)

    def data(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return as_json(self.view)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, readable by its owner only, and keep its counts for the next report.

        An interrupted run leaves the old file as it was.
        """
        target = writable(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, self.page().encode(errors="replace"), private=True)
        if self.memory:
            with contextlib.suppress(OSError):  # a page without a memory is still a page
                save(self.memory, self.snapshots, snapshot_of(self.numbers, self.now, self.options.since))
        return target


def report(
    paths: Iterable[str | os.PathLike[str]],
    options: ReportOptions = ReportOptions(),  # frozen
    *,
    home: Path | None = None,
    on_file: Callable[[str, int], None] = lambda path, num_files: None,
) -> Made:
    """Read sessions and return the report; `on_file` is called after each file with its path and their number."""
    named = [Path(path).expanduser() for path in paths]
    collection = collect(named, since=options.since, workers=options.workers, on_file=on_file)
    _refuse_nothing(collection, named, options)
    # A report on other folders is not compared with this one, nor one of all time with one that begins later.
    key = stable_id("report", *sorted(str(path.absolute()) for path in named), "all" if not options.since else "since")
    memory = options.memory / "report" / f"{key}.json" if options.memory else None
    return Made(numbers_of(collection, options.zone), options, str(home or Path.home()), memory)


def writable(path: str | os.PathLike[str]) -> Path:
    """Return the path of a page that may be written: a new file, or an older page of this command."""
    target = Path(path).expanduser()
    if target.is_dir():
        raise exits.UsageError(f"{target} is a folder. Name the file of the page, such as {target / 'report.html'}.")
    refuse_odd(target)
    if target.exists():
        with target.open("rb") as file:
            if MARK.encode() not in file.read(HEAD):
                raise exits.UsageError(f"{target} exists and is no page of this command. Name another file with --out.")
    return target


def default_folders(environment: Mapping[str, str], home: Path) -> list[Path]:
    """Return the folders of all harnesses that have sessions on this machine."""
    known = session_folders(environment, home)
    found = [folder for folder in known if folder.exists()]
    if not found:
        names = ", ".join(dict.fromkeys(harness.title for harness in known.values()))
        raise exits.NothingToDo(
            f"No sessions were found. Looked for the folders of {names}, such as {next(iter(known))}. "
            "Name a file or a folder: composer-hub report FOLDER."
        )
    return found


def _day(options: ReportOptions) -> str:
    return datetime.datetime.fromtimestamp(options.since, options.zone).date().isoformat()


def _refuse_nothing(collection: Collection, named: list[Path], options: ReportOptions) -> None:
    if collection.sessions:
        return
    where = ", ".join(map(str, named[:4])) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
    if not collection.num_files and not collection.report.num_problems:
        since = f" that changed since {_day(options)}" if options.since else ""
        raise exits.NothingToDo(f"There are no files{since} in {where}. Name a folder of sessions.")
    if options.since and collection.num_messages:
        raise exits.NothingToDo(
            f"No message since {_day(options)} was found in {where}. Name an earlier day with --since."
        )
    why = "; ".join(str(problem) for problem in collection.report.problems[:3])
    raise exits.NothingToDo(
        f"No session with a step of a model was found in {where} ({plural(collection.num_files, 'file')} looked at). "
        f"{why or '`composer-hub ingest --list` shows the formats that can be read.'}"
    )
