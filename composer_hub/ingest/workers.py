"""Worker processes that read files, a few ahead, and spool the sessions to disk.

In: jobs, in order. Out: the report of each job, and a file of pickled sessions.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import multiprocessing
import operator
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import IO, Any

from composer_hub.ingest.one_file import Job, Transform, sessions_of, unreadable
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, Step, ToolCall
from composer_hub.session import Usage
from composer_hub.shards.processes import end_silently, interrupts_held_back


class Pool:
    """Worker processes, and the jobs that they run."""

    def __init__(self, workers: int, transform: Transform | None, spool: Path) -> None:
        self.workers, self.transform, self.spool = workers, transform, spool
        self.window = workers + 1
        self.running: dict[Path, Future[FileReport]] = {}
        self.executor = self._start()

    def _start(self) -> ProcessPoolExecutor:
        # Spawned, not forked: the caller may hold threads and locks (a progress bar, an HTTP client).
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, context, _initialise, (self.transform,))

    def ahead(self, jobs: list[Job]) -> None:
        """Keep the next files on their way."""
        for job in jobs[: self.window]:
            if job.path not in self.running:
                try:
                    self.running[job.path] = self._submit(job)
                except BrokenProcessPool:
                    return  # a process has died since; `result` finds out over which file

    def _submit(self, job: Job) -> Future[FileReport]:
        with interrupts_held_back():  # a process may start here
            return self.executor.submit(_spooled, job, self._file(job))

    def result(self, job: Job) -> tuple[FileReport, Path]:
        """Return the report and the spool of the next file."""
        running = self.running.pop(job.path, None)
        try:
            if running is not None:
                return running.result(), self._file(job)
        except BrokenProcessPool:
            pass
        return self._alone(job)

    def _alone(self, job: Job) -> tuple[FileReport, Path]:
        """Read a file alone after a process has died, to find the file that kills it."""
        self.stop()
        self.running.clear()
        self.window = 1
        self.executor = self._start()
        try:
            return self._submit(job).result(), self._file(job)
        except BrokenProcessPool:
            self.stop()
            self.executor = self._start()
            report = FileReport(str(job.path))
            report.add("files")
            unreadable(report, "ended the process that read it, perhaps for want of memory.")
            self._file(job).write_bytes(b"")
            return report, self._file(job)

    def _file(self, job: Job) -> Path:
        return self.spool / hashlib.sha256(os.fsencode(job.path)).hexdigest()

    def stop(self) -> None:
        self.executor.shutdown(cancel_futures=True)


_transform: Transform | None = None


def _initialise(transform: Transform | None) -> None:
    global _transform
    _transform = transform
    end_silently()
    collect_rarely()


def collect_rarely() -> None:
    """Collect garbage rarely: sessions contain no reference cycles, and looking for them would cost about 10 %."""
    gc.set_threshold(100_000, 20, 20)


def _spooled(job: Job, spool: Path) -> FileReport:
    """Read a file in a worker and leave its sessions in a file of pickles."""
    with spool.open("wb") as file:
        return spool_sessions(job, _transform, file)[0]


def spool_sessions(job: Job, transform: Transform | None, file: IO[bytes]) -> tuple[FileReport, int]:
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


def unspooled(spool: Path) -> Iterator[tuple[str, Any]]:
    with spool.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)
    spool.unlink()
