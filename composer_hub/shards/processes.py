"""Worker processes on this machine. One that dies costs its shard an attempt and is replaced.

The parent hands out one shard at a time through a pipe of each worker's own, so that a killed worker leaves no lock
behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path

from composer_hub.shards.plan import Staging
from composer_hub.shards.run import Executor, attempt

MAX_DEATHS = 3
"""Workers that a shard may kill before it is given up, for instance for want of memory."""
_WATCH_SECONDS = 1.0


def in_processes(workers: int = 0) -> Executor:
    """Return an executor with this many worker processes (0: one per core)."""

    def execute(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        _run(staging, list(numbers), min(workers or os.cpu_count() or 1, len(numbers)), watch)

    return execute


def _run(staging: Staging, todo: list[int], num_workers: int, watch: Callable[[], None]) -> None:
    deaths: dict[int, int] = {}
    workers: list[_Worker] = []
    todo.reverse()
    try:
        while todo or workers:
            while todo and len(workers) < num_workers:
                workers.append(_Worker(staging.folder, todo.pop()))
            wait([one for worker in workers for one in (worker.pipe, worker.process.sentinel)], _WATCH_SECONDS)
            for worker in list(workers):
                if worker.has_answered() and todo:
                    worker.give(todo.pop())
                elif worker.has_answered():
                    workers.remove(worker)
                    worker.stop()
                elif not worker.process.is_alive():
                    workers.remove(worker)
                    worker.stop()
                    deaths[worker.number] = deaths.get(worker.number, 0) + 1
                    if deaths[worker.number] < MAX_DEATHS:
                        todo.append(worker.number)
                    else:
                        _give_up(staging, worker)
            watch()
    finally:
        for worker in workers:
            worker.process.kill()
            worker.stop()


def _give_up(staging: Staging, worker: _Worker) -> None:
    code = worker.process.exitcode
    error = f"its worker ended {MAX_DEATHS} times (exit code {code}), perhaps for want of memory"
    staging.note("failed", worker.number, {"error": error, "where": "this machine"})


class _Worker:
    """A process and the shard that it runs."""

    def __init__(self, folder: Path, number: int) -> None:
        # Spawned, not forked: the caller may hold threads and locks.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(folder, theirs), daemon=True)
        with interrupts_held_back():
            self.process.start()
        theirs.close()
        self.give(number)

    def give(self, number: int) -> None:
        self.number, self._is_done = number, False
        with contextlib.suppress(OSError):  # it has died, which its end shows
            self.pipe.send(number)

    def has_answered(self) -> bool:
        """Tell whether the worker has finished its shard."""
        with contextlib.suppress(EOFError, OSError):
            if not self._is_done and self.pipe.poll():
                self.pipe.recv()
                self._is_done = True
        return self._is_done

    def stop(self) -> None:
        self.pipe.close()
        self.process.join()


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C while a process starts, since it would print a traceback of its imports."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_silently() -> None:
    """Let a worker exit without a word on Ctrl-C; the parent process reports it."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _serve(folder: Path, pipe: Connection) -> None:
    """Run shards until the parent closes the pipe."""
    end_silently()
    staging = Staging.open(folder)
    with contextlib.suppress(EOFError, OSError):
        while True:
            number = pipe.recv()
            attempt(staging, number)
            pipe.send(number)
