"""Worker processes on this machine: a function and a list of items in, one result per item out, in order.

A worker is a fresh interpreter. It imports the module of the function and nothing of the program that called.
So a script without `if __name__ == "__main__"`, a notebook, a prompt or a pipe may start workers, and no line of
it runs twice. The start methods of `multiprocessing` either import the caller's main module again or fork, which
is not safe beside threads. Each worker has its own pipe, so that a killed one leaves no lock behind.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any, TypeVar, cast

from composer_hub import exits
from composer_hub.local_hub import children

MAX_DEATHS = 3
"""Workers that an item may cost before it is given up."""
_WATCH_SECONDS = 1.0
_END_SECONDS = 60.0
# The path comes before the first import that could look into the current folder.
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; from composer_hub.shards.workers import serve; serve(int(sys.argv[1]))"
)
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)  # the process at the other end of a pipe has ended
T = TypeVar("T")
R = TypeVar("R")


class WorkerError(exits.ComposerError, RuntimeError):
    """A worker process could not start."""


@dataclass(frozen=True)
class Died:
    """The outcome of an item whose workers died. `how` is the end of the last one, such as "with exit code 1"."""

    how: str


def in_workers(
    work: Callable[[T], R],
    items: Sequence[T],
    num_workers: int,
    *,
    ahead: int,
    watch: Callable[[], None] = lambda: None,
) -> Generator[R | Died]:
    """Yield the results of `work` for the items, in order.

    An exception of `work` is raised here as soon as its worker sends it, perhaps before the results of earlier items,
    and it ends all workers. No more than `ahead` items after the one that is waited for are begun. `watch` is called at
    least every second while an item is waited for. `work` travels as a pickle, so it is a function of a module that can
    be imported.
    """
    todo, results, deaths = deque(range(len(items))), dict[int, R | Died](), Counter[int]()
    workers: list[_Worker] = []

    def give(number: int) -> bool:
        worker = next((one for one in workers if not one.is_busy), None)
        if worker is None and len(workers) == num_workers:
            return False
        if worker is None:
            workers.append(worker := _Worker(work))
        worker.give(number, items[number])
        return True

    def collect(seconds: float) -> None:
        busy = {worker.pipe.fileno(): worker for worker in workers if worker.is_busy}
        for descriptor in wait(list(busy), seconds):
            worker = busy[cast(int, descriptor)]
            for outcome in worker.outcomes():
                if isinstance(outcome, Died):
                    workers.remove(worker)
                    deaths[worker.number] += 1
                if not isinstance(outcome, Died) or deaths[worker.number] == MAX_DEATHS:
                    results[worker.number] = outcome

    try:
        for wanted in range(len(items)):
            collect(0)
            while True:
                while todo and todo[0] <= wanted + ahead and give(todo[0]):
                    todo.popleft()
                if wanted in results:
                    break
                if not any(worker.is_busy for worker in workers):
                    give(wanted)  # its worker died; it is tried again while nothing else takes memory
                collect(_WATCH_SECONDS)
                watch()
            yield results.pop(wanted)
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A process that has one item at a time."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.pipe, theirs = Pipe()
        self.number, self.is_busy, self._is_ready = -1, False, False
        path = [place for place in sys.path if isinstance(place, str)]
        command = [sys.executable, "-c", _START, str(theirs.fileno()), *path]
        with theirs, interrupts_held_back():
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[theirs.fileno()])
        self._send(work)

    def give(self, number: int, item: Any) -> None:
        self.number, self.is_busy = number, True
        self._send(item)

    def _send(self, value: Any) -> None:
        data = pickle.dumps(value)
        with contextlib.suppress(*_GONE):  # `outcomes` finds out how it died
            self.pipe.send_bytes(data)

    def outcomes(self) -> Iterator[Any]:
        """Yield the result of the item, or `Died`, or nothing if the worker only became ready."""
        try:
            result, error, trace = pickle.loads(self.pipe.recv_bytes())
        except _GONE:
            yield self._death()
            return
        if error is not None:
            raise error from _Trace(trace)
        if self._is_ready:
            self.is_busy = False
            yield result
        self._is_ready = True

    def _death(self) -> Died:
        code = self._wait()
        if code >= 0 and not self._is_ready:
            raise WorkerError(
                f"A worker process did not start: {sys.executable} ended {how_ended(code)}, and its own message is in "
                "the output of this program. With one worker, no other process is needed."
            )
        return Died(how_ended(code))

    def _wait(self) -> int:
        self.pipe.close()  # a worker that waits for an item ends
        try:
            return self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            cast(IO[bytes], self.process.stdin).close()

    def stop(self) -> None:
        """End the process, also in the middle of an item."""
        if self.is_busy:
            self.process.kill()
        self._wait()


class _Trace(Exception):
    """The traceback of an exception in a worker, shown as the cause of the exception."""

    def __str__(self) -> str:
        return f"in a worker process\n{self.args[0]}"


def how_ended(code: int) -> str:
    """Describe how a process ended, as far as its exit status shows."""
    if code >= 0:
        return f"with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    reason = ", which is also what a system sends that runs out of memory" if name == "SIGKILL" else ""
    return f"by {name}{reason}"


# -------------------------------------------------------------------------------------------------- inside a worker


def serve(descriptor: int) -> None:
    """Call the function that the pipe brings with each item that it brings, until the pipe is closed."""
    os.set_inheritable(descriptor, False)
    _end_with_parent()
    with Connection(descriptor) as pipe, contextlib.suppress(*_GONE):
        work: list[Any] = []
        pipe.send_bytes(_answer(work.append, pipe.recv_bytes()))
        while work:
            pipe.send_bytes(_answer(work[0], pipe.recv_bytes()))


def _answer(function: Callable[[Any], Any], data: bytes) -> bytes:
    """Call a function with an unpickled value; pickle its result, or its exception with the traceback."""
    try:
        return pickle.dumps((function(pickle.loads(data)), None, ""))
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return pickle.dumps((None, _portable(error), traceback.format_exc()))


def _portable(error: Exception) -> Exception:
    """Return an exception that survives a pickle, as many with special arguments do not."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - a pickle may fail in any way
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Hold back Ctrl-C and the like while a process starts, which would print a traceback of its imports.

    The process inherits the mask of this thread. Here another thread may take the signal, so handlers wait as well.
    """
    received: list[int] = []
    numbers = (signal.SIGINT, *exits.END_SIGNALS)
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in numbers if is_main}
    before = {number: handler for number, handler in before.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(numbers))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in received:
            signal.raise_signal(number)


def _end_with_parent() -> None:
    """Let a worker exit silently on Ctrl-C, which the parent process reports, and whenever the parent is gone."""
    lifeline = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)  # work that reads stdin must not wait for the parent
    threading.Thread(target=children.end_with_parent, args=(lifeline,), daemon=True).start()
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, *exits.END_SIGNALS})
