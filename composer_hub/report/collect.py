"""Read every session below some folders and merge their facts: paths in, `Collection` out.

Each message of a model counts once, whatever number of files repeat it: resumed sessions and forks copy their past. A
message belongs to the session that began first, and each of its token counts is the largest of all copies.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from composer_hub.ingest.files import find_files, size_of, stat_of
from composer_hub.ingest.one_file import ReadJob, ReadOptions
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.workers import outcomes
from composer_hub.report.facts import Episode, SessionFacts, StepFacts, facts_of


@dataclass
class Collection:
    """All sessions, each message in one of them only, and the report on their files."""

    sessions: list[SessionFacts] = field(default_factory=list)
    report: FileReport = field(default_factory=FileReport)
    num_files: int = 0
    num_bytes: int = 0
    num_messages: int = 0  # in all files
    num_repeated: int = 0  # messages that were in another file too
    num_repeated_sessions: int = 0


def collect(
    paths: Iterable[str | os.PathLike[str]],
    *,
    since: float = 0.0,
    workers: int = 0,
    on_file: Callable[[str, int], None] = lambda path, num_files: None,
) -> Collection:
    """Read the sessions of files and folders; `since` leaves out files and messages from before a time."""
    collection = Collection()
    found = find_files(paths, collection.report)
    files = [path for path in found if not since or not (stat := stat_of(path)) or stat[1] / 1e9 >= since]
    collection.num_files = len(files)
    collection.num_bytes = sum(map(size_of, files))
    read: dict[str, tuple[str, SessionFacts]] = {}
    sessions: list[SessionFacts] = []
    for path, digest, facts in _read(files, workers, collection, on_file):
        if digest and digest in read:  # a format without ids of messages: the copy of a file
            collection.num_repeated_sessions += 1
            continue
        read[digest] = (path, facts)
        sessions.append(dataclasses.replace(facts, path=path))
    collection.num_messages = sum(len(session.steps) for session in sessions)
    collection.sessions = list(_once(sessions, since, collection))
    return collection


def _read(
    files: list[Path], workers: int, collection: Collection, on_file: Callable[[str, int], None]
) -> Iterator[tuple[str, str, SessionFacts]]:
    options = ReadOptions()
    for job, report, sessions in outcomes([ReadJob(path, options) for path in files], facts_of, workers):
        for digest, facts in sessions:
            yield str(job.path), digest, facts
        collection.report.merge([report])
        on_file(str(job.path), len(files))


def _once(sessions: list[SessionFacts], since: float, collection: Collection) -> Iterator[SessionFacts]:
    """Yield the sessions from the first to the last, each message in the first that has it."""
    best: dict[str, StepFacts] = {}
    for session in sessions:
        for step in (*session.steps, *session.thoughts):
            if step.key:
                known = best.get(step.key)
                best[step.key] = step if known is None else _merged(known, step)
    taken: set[str] = set()
    # Of two files of one session, the longer one comes first: it has the results of all calls.
    for session in sorted(sessions, key=lambda one: (_began(one), -len(one.steps), one.path)):
        places: dict[int, int] = {}
        steps: list[StepFacts] = []
        for place, step in enumerate(session.steps):
            if step.key in taken:
                collection.num_repeated += 1
                continue
            if step.at and step.at < since:
                continue
            taken.update([step.key] if step.key else [])
            places[place] = len(steps)
            steps.append(best.get(step.key, step))
        thoughts = [one for one in session.thoughts if one.key not in taken and not (one.at and one.at < since)]
        taken.update(one.key for one in thoughts)
        if steps:
            episodes = tuple(_moved(one, places) for one in session.episodes if one.failed[0] in places)
            causes = tuple(
                dataclasses.replace(one, step=places[one.step]) for one in session.causes if one.step in places
            )
            yield dataclasses.replace(
                session,
                steps=tuple(steps),
                thoughts=tuple(best[one.key] for one in thoughts),
                episodes=episodes,
                causes=causes,
            )
        else:
            collection.num_repeated_sessions += 1


def _began(session: SessionFacts) -> float:
    return next((step.at for step in session.steps if step.at), 0.0)


def _merged(one: StepFacts, other: StepFacts) -> StepFacts:
    """Join two copies of a message: the largest counts, and the failures of the one that has more calls."""
    fuller = max(one, other, key=lambda step: (len(step.tools), len(step.failures)))
    return dataclasses.replace(
        fuller, usage=one.usage | other.usage, at=min(filter(None, (one.at, other.at)), default=0)
    )


def _moved(episode: Episode, places: dict[int, int]) -> Episode:
    failed = tuple(places[place] for place in episode.failed if place in places)
    return dataclasses.replace(episode, failed=failed, worked=places.get(episode.worked, -1))
