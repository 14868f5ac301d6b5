"""Worker processes that read files, a few ahead, and spool the sessions to disk.

In: jobs, in order. Out: the report of each job, and a file of pickled sessions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import multiprocessing
import operator
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from composer_hub.ingest.one_file import Job, Transform, sessions_of, unreadable
from composer_hub.ingest.report import FileReport
from composer_hub.records import Message, Step, ToolCall
from composer_hub.session import Usage


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
        with _interrupts_held_back():  # a process may start here
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


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C while a process starts, since it would print a traceback of its imports."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_transform: Transform | None = None


def _initialise(transform: Transform | None) -> None:
    global _transform
    _transform = transform
    # Workers exit silently on Ctrl-C; the parent process reports it.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # Sessions contain no reference cycles, so frequent garbage collection would only cost about 10 %.
    gc.set_threshold(100_000, 20, 20)


def _spooled(job: Job, spool: Path) -> FileReport:
    """Read a file in a worker and leave its sessions in a file of pickles."""
    report = FileReport(str(job.path), strict=job.options.strict)
    with spool.open("wb") as file:
        pickler = pickle.Pickler(file, protocol=pickle.HIGHEST_PROTOCOL)
        # The default pickling of dataclasses is many times slower, and a session has thousands of them.
        pickler.dispatch_table = {cls: _reducer(cls) for cls in (Message, ToolCall, Step, Usage)}
        for item in sessions_of(job, _transform, report):
            pickler.dump(item)
            pickler.clear_memo()
    return report


def _reducer(cls: type) -> Callable[[Any], tuple[type, tuple[Any, ...]]]:
    values = operator.attrgetter(*(field.name for field in dataclasses.fields(cls)))
    return lambda record: (cls, values(record))


def unspooled(spool: Path) -> Iterator[tuple[str, Any]]:
    with spool.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)
    spool.unlink()
