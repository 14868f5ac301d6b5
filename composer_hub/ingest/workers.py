"""Read files, in worker processes if that pays: jobs in; each with its report and its sessions out, in order.

A worker spools the sessions of a file to disk, so that the caller holds one at a time.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import hashlib
import operator
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from composer_hub.ingest.files import size_of
from composer_hub.ingest.one_file import ReadJob, Transform, sessions_of, unreadable
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, Step, ToolCall
from composer_hub.session import Usage
from composer_hub.shards.workers import MAX_DEATHS, Died, in_workers

MIN_PARALLEL_BYTES = 16_000_000
"""Below this, starting processes takes longer than reading."""


def outcomes(
    jobs: Sequence[ReadJob], transform: Transform | None, workers: int = 0
) -> Iterator[tuple[ReadJob, FileReport, Iterator[tuple[str, Any]]]]:
    """Yield the report and the transformed sessions of each file. A report is complete after its sessions.

    `workers` is a number of processes; 0 is one per core if there is enough to read, 1 is none but this one.
    """
    num_workers = _num_workers([job for job in jobs if not job.is_unchanged], workers)
    if num_workers <= 1:
        for job in jobs:
            report = FileReport(str(job.path), strict=job.options.strict)
            yield job, report, sessions_of(job, transform, report)
        return
    with tempfile.TemporaryDirectory(prefix="composer-ingest-") as folder:
        work = functools.partial(_spooled, transform, Path(folder))
        with closing(in_workers(work, jobs, num_workers, ahead=num_workers)) as read:
            for job, outcome in zip(jobs, read, strict=True):
                if isinstance(outcome, Died):
                    yield job, _report_of_death(job, outcome), iter(())
                else:
                    yield job, outcome, _unspooled(_spool_of(job, Path(folder)))


def _num_workers(jobs: Sequence[ReadJob], asked: int) -> int:
    if not asked and sum(size_of(job.path) for job in jobs) < MIN_PARALLEL_BYTES:
        return 1
    return min(asked or os.cpu_count() or 1, len(jobs))


def _report_of_death(job: ReadJob, death: Died) -> FileReport:
    report = FileReport(str(job.path))
    report.add("files")
    unreadable(report, f"ended the process that read it, {MAX_DEATHS} times, the last time {death.how}.")
    return report


def _spool_of(job: ReadJob, folder: Path) -> Path:
    return folder / hashlib.sha256(os.fsencode(job.path)).hexdigest()


def _spooled(transform: Transform | None, folder: Path, job: ReadJob) -> FileReport:
    """Read a file in a worker and leave its sessions in a file of pickles."""
    collect_rarely()
    tempfile.tempdir = str(folder)  # an unpacked copy goes with the spool, also if this process is killed
    with _spool_of(job, folder).open("wb") as file:
        return spool_sessions(job, transform, file)[0]


def collect_rarely() -> None:
    """Collect garbage rarely: sessions contain no reference cycles, and looking for them would cost about 10 %."""
    gc.set_threshold(100_000, 20, 20)


def spool_sessions(job: ReadJob, transform: Transform | None, file: IO[bytes]) -> tuple[FileReport, int]:
    """Write the sessions of a file as pickles; return its report and their number."""
    report, number = FileReport(str(job.path), strict=job.options.strict), 0
    for item in sessions_of(job, transform, report):
        spool_one(item, file)
        number += 1
    return report, number


def spool_one(item: Any, file: IO[bytes]) -> None:
    """Write one pickle that can be read by itself."""
    pickler = pickle.Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
    # The default pickling of dataclasses is many times slower, and a session has thousands of them.
    pickler.dispatch_table = _REDUCERS
    pickler.dump(item)


def _reducer(cls: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
    values = operator.attrgetter(*(field.name for field in dataclasses.fields(cls)))
    return lambda record: (cls, values(record))


_REDUCERS: dict[type, Callable[[Any], Any]] = {cls: _reducer(cls) for cls in (Message, ToolCall, Step, Usage)}


def _unspooled(spool: Path) -> Iterator[tuple[str, Any]]:
    with spool.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)
    spool.unlink()
