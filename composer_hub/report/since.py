"""Compare with the previous report on this machine: numbers, and the counts kept then, in; a `ReportNews` out.

A file keeps counts per week and digests of the lines to copy, of a few reports. It holds no text of a session.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from composer_hub.named_files import write_whole
from composer_hub.records import stable_id
from composer_hub.report.lessons import Lesson
from composer_hub.report.numbers import Numbers, ReportNews, WeekChange

MIN_AGE = 20 * 3600
"""Seconds after which a report counts as an earlier one; a second report of one day replaces the first."""
MAX_SNAPSHOTS = 12


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counts kept of one report."""

    at: float  # seconds since 1970
    num_sessions: int
    weeks: dict[str, tuple[int, int]]  # Monday -> calls, and how many of them failed by the agent's own fault
    lines: tuple[str, ...]  # digests
    since: float = 0.0  # seconds since 1970: older messages were left out


def snapshot_of(numbers: Numbers, now: float, since: float = 0.0) -> Snapshot:
    """Return the counts that are kept of a report."""
    weeks = {week.name: (week.num_calls, week.failures["model"]) for week in numbers.weeks}
    return Snapshot(now, numbers.num_sessions, weeks, tuple(map(_digest, numbers.lessons)), since)


def change_of(numbers: Numbers, snapshots: Sequence[Snapshot], now: float, since: float = 0.0) -> ReportNews | None:
    """Compare a report with the newest of an earlier day, None if there is none or no call is new.

    A report that left out messages of this one is not compared: they would count as new.
    """
    then = next((one for one in reversed(snapshots) if one.at <= now - MIN_AGE and one.since <= since), None)
    if then is None:
        return None
    weeks = []
    for name, (num_calls, num_failed) in snapshot_of(numbers, now).weeks.items():
        known = then.weeks.get(name, (0, 0))
        if num_calls > known[0]:  # fewer: a harness deleted sessions, or --since left them out
            weeks.append(WeekChange(name, num_calls - known[0], max(0, num_failed - known[1])))
    if not weeks:
        return None
    # Sessions that are gone cancel no new ones, and old ones may have come from another machine.
    earlier = {session.root_id for session in numbers.collection.sessions if session.steps[0].at <= then.at}
    change = ReportNews(then.at, numbers.num_sessions - min(then.num_sessions, len(earlier)), weeks)
    for lesson in numbers.lessons:
        old = change.again if lesson.last > then.at else change.quiet
        (old if _digest(lesson) in then.lines else change.fresh).append(lesson)
    return change


def _digest(lesson: Lesson) -> str:
    return stable_id("line", lesson.project, lesson.line)


def load(path: Path) -> list[Snapshot]:
    """Return the reports that a file keeps, the oldest first; a damaged file keeps none."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [
            Snapshot(
                float(row["at"]),
                int(row["num_sessions"]),
                {str(name): (int(calls), int(failed)) for name, (calls, failed) in row["weeks"].items()},
                tuple(map(str, row["lines"])),
                float(row.get("since", 0)),
            )
            for row in rows
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return []


def save(path: Path, snapshots: Sequence[Snapshot], new: Snapshot) -> None:
    """Add a report to a file that its owner alone can read; an interrupted run leaves the file as it was."""
    kept = [one for one in snapshots if one.at <= new.at - MIN_AGE][1 - MAX_SNAPSHOTS :]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps([asdict(one) for one in (*kept, new)]).encode(), private=True)
