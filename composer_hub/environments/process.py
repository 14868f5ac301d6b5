"""A started process, read until it ends or exceeds its limits.

A busy machine changes no result: the time in which a command was ready to run and had no processor does not count.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import resource
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from composer_hub import exits

FIRST_UID, NUM_UIDS = 24_001, 4_000  # earlier versions reserved those below elsewhere
_USERS = "composer-hub-users"
_FOR_ALL = ("/run", "/var/lock", "/dev/shm", "/tmp")
_CHUNK = 65_536
_FLOOD = 64 << 20  # output beyond this ends the command
_FIRST_LOOK = 0.2
_GLANCES = 3
_GLANCE = 0.1  # seconds between two looks at memory and disk
_STARVED = 20  # times its seconds a command may take on the clock
_FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)


class SandboxError(exits.ComposerError, RuntimeError):
    """A command that could not be started in its sandbox."""


class CommandInterrupted(exits.ComposerError, RuntimeError):
    """A command that something else may have ended, so its result is not known."""


@dataclass(frozen=True)
class Limits:
    """The most that one command may use. `total_mb` and `tree_mb` are for all of its processes."""

    seconds: float = 10.0  # without the time in which it waits for a processor
    cpu_seconds: int = 0  # 0: as many as `seconds`, rounded up
    memory_mb: int = 2048
    total_mb: int = 4096  # memory of all processes together
    tree_mb: int = 1024  # of disk, which the work tree may grow by
    processes: int = 64
    file_mb: int = 64
    open_files: int = 1024
    output_chars: int = 8000

    def of_the_kernel(self, others: int = 0) -> dict[int, tuple[int, int]]:
        """Return the soft and hard limits by the numbers of `resource`; the user may have other processes."""
        most = {
            resource.RLIMIT_AS: self.memory_mb << 20,
            resource.RLIMIT_NPROC: self.processes + others,
            resource.RLIMIT_FSIZE: self.file_mb << 20,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_CORE: 0,
        }
        cpu = self.cpu_seconds or int(self.seconds) + 1
        # A second apart, so that running out of processor time has a distinct signal, SIGXCPU.
        return {number: (limit, limit) for number, limit in most.items()} | {resource.RLIMIT_CPU: (cpu, cpu + 1)}


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Completed:
    """How a command ended, and its output with the middle left out if it was long."""

    exit_code: int  # 124 if it was ended for its time, 128 + n for signal n
    output: str  # stdout and stderr as they came
    timed_out: bool = False
    flooded: bool = False
    starved: bool = False  # timed out on the clock, although it had hardly any processor
    seconds: float = 0.0  # without the time in which it waited for a processor
    exceeded: str = ""  # memory or disk, if all processes together took too much

    def check_uninterrupted(self) -> None:
        """Raise `CommandInterrupted` if another process or the load of the machine may have ended the command."""
        if self.starved:
            raise CommandInterrupted(
                f"A command had hardly any processor: it was ended after {self.seconds:.1f} s of its own."
            )
        if self.exit_code - 128 in _FROM_OUTSIDE and not self.exceeded:
            raise CommandInterrupted(f"A command was ended by {signal.Signals(self.exit_code - 128).name}.")


def read_to_the_end(
    started: subprocess.Popen[bytes], limits: Limits, end: Callable[[], None], begun: float, root: Path | None = None
) -> Completed:
    """Read a process's output until the process ends, and then `end` all that it left behind."""
    assert started.stdout is not None
    pipe, exit_fd = started.stdout.fileno(), os.pidfd_open(started.pid)
    os.set_blocking(pipe, False)
    kept, own, flooded = _BothEnds(limits.output_chars * 4), _OwnTime(started.pid, begun), False
    left, look = limits.seconds, begun + min(limits.seconds, _FIRST_LOOK)
    watch, exceeded = _Watch(started.pid, root, limits), ""
    try:
        with selectors.DefaultSelector() as waiting:
            waiting.register(pipe, selectors.EVENT_READ)
            waiting.register(exit_fd, selectors.EVENT_READ)
            while started.poll() is None:
                if (now := time.monotonic()) >= look:
                    left = min(limits.seconds - own.passed(now), begun + _STARVED * limits.seconds - now)
                    look = now + max(min(left, own.seconds, limits.seconds / 8), 0.01)
                flooded, exceeded = kept.size > _FLOOD, watch.exceeded(now)
                if left <= 0 or flooded or exceeded:
                    break
                ready = {key.fd for key, _ in waiting.select(min(max(look - now, 0), _GLANCE))}
                if pipe in ready and not kept.read(pipe):
                    waiting.unregister(pipe)
    finally:
        os.close(exit_fd)
        end()
    code = started.wait()
    while not flooded and kept.size <= _FLOOD and kept.read(pipe):
        pass
    started.stdout.close()
    return Completed(
        exit_code=137 if exceeded else 124 if left <= 0 else 128 - code if code < 0 else code,
        output=shortened(kept.text(), limits.output_chars),
        timed_out=left <= 0,
        exceeded=exceeded,
        flooded=flooded,
        starved=left <= 0 and own.seconds < limits.seconds,
        seconds=own.seconds if left <= 0 else own.passed(time.monotonic()),
    )


class _Watch:
    """The total use of all processes of a command, which the kernel cannot limit without a cgroup."""

    def __init__(self, pid: int, root: Path | None, limits: Limits) -> None:
        self.pid, self.root, self.limits, self.next = pid, root, limits, 0.0
        self.most = max(limits.total_mb, limits.memory_mb) << 20
        self.free = self._free()

    def exceeded(self, now: float) -> str:
        """Return which limit is exceeded, or nothing."""
        if now < self.next:
            return ""
        self.next = now + _GLANCE
        if self._held("statm") > self.most and self._held("smaps_rollup") > self.most:
            return "memory"
        # Other programs fill the disk as well, so less space is only a reason to look at the tree.
        most = self.limits.tree_mb << 20
        if self.root is None or self.free - self._free() <= most:
            return ""
        return "disk" if _blocks(self.root, most) > most else ""

    def _free(self) -> int:
        if self.root is None:
            return 0
        disk = os.statvfs(self.root)
        return disk.f_bavail * disk.f_frsize

    def _held(self, name: str) -> int:
        """Return the bytes of memory of all processes; pages that several share count once in `smaps_rollup`."""
        held = 0
        for process in _processes(self.pid):
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = Path(process, name).read_text()
                if name == "statm":
                    held += int(text.split()[1]) * resource.getpagesize()
                else:
                    held += int(text.partition("\nPss:")[2].split()[0]) << 10
        return held


def _processes(pid: int) -> Iterator[str]:
    """Yield the folders in /proc of a process and of all that it started."""
    todo = [str(pid)]
    while todo:
        yield (process := f"/proc/{todo.pop()}")
        with contextlib.suppress(OSError):
            for task in Path(process, "task").iterdir():
                todo += (task / "children").read_text().split()


def _blocks(root: Path, most: int) -> int:
    """Return the bytes on the disk below a folder, up to more than `most`."""
    held, todo = 0, [str(root)]
    while todo and held <= most:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    held += entry.stat(follow_symlinks=False).st_blocks * 512
    return held


class _OwnTime:
    """The time that a process and its children have used: on the clock, without their wait for a processor.

    The kernel reports how long living threads waited, but forgets it for threads that live for milliseconds.
    So a look that finds a thread ready to run counts what was computed since the last look, and one that
    finds none counts the clock.
    """

    def __init__(self, pid: int, begun: float) -> None:
        self.seconds, self._pid, self._last = 0.0, pid, begun
        self._seen: dict[str, tuple[int, int]] = {}

    def passed(self, now: float) -> float:
        """Return the seconds until now."""
        for _ in range(_GLANCES):  # one may come between the end of a child and the next
            found = dict(_schedules(self._pid))
            if is_ready := any(ready for _, _, ready in found.values()):
                break
        seen = {task: (ran, waited) for task, (ran, waited, _) in found.items()}
        new = [tuple(map(int.__sub__, one, self._seen.get(task, (0, 0)))) for task, one in seen.items()]
        ran, waited = sum(one[0] for one in new) / 1e9, max((one[1] for one in new), default=0) / 1e9
        clock, self._last, self._seen = now - self._last, now, seen
        # Children that take the processors from each other have used this time themselves.
        self.seconds += min(clock, ran if is_ready else max(clock - waited, ran))
        return self.seconds


def _schedules(pid: int) -> Iterator[tuple[str, tuple[int, int, bool]]]:
    """Yield how many nanoseconds each thread below a process ran and waited for a processor, and whether it waits now.

    The entry of a process includes its children that have ended.
    """
    for process in _processes(pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            ended = _status(process)[13:15]
            yield process, (sum(map(int, ended)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK"), 0, False)
            for task in Path(process, "task").iterdir():
                ran, waited, _ = map(int, (task / "schedstat").read_text().split())
                yield str(task), (ran, waited, _status(str(task))[0] == "R")


def _status(process: str) -> list[str]:
    """Return the fields of a process after its name: its state first."""
    return Path(process, "stat").read_text().rpartition(")")[2].split()


def shortened(text: str, most: int) -> str:
    """Return the beginning and the end of a text that is too long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


class _BothEnds:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, most: int) -> None:
        self.half, self.size = max(most // 2, 1), 0
        self.head, self.tail = bytearray(), bytearray()

    def read(self, pipe: int) -> bool:
        """Read what is there; False at the end of the stream or if nothing waits."""
        try:
            data = os.read(pipe, _CHUNK)
        except BlockingIOError:
            return False
        self.size += len(data)
        room = self.half - len(self.head)
        self.head += data[:room] if room > 0 else b""
        self.tail = (self.tail + data[max(room, 0) :])[-self.half :]
        return bool(data)

    def text(self) -> str:
        gap = b"" if self.size <= len(self.head) + len(self.tail) else b"\n[...]\n"
        return bytes(self.head + gap + self.tail).decode("utf-8", errors="replace").replace("\0", "�")


# ----------------------------------------------------------------------------------------------------------------- uids


class OwnUser:
    """A user number that no other sandbox of this machine uses; None if the caller may not choose its user."""

    def __init__(self, folders: Sequence[str] = _FOR_ALL) -> None:
        self.uid: int | None = None
        if os.geteuid() != 0 or not _has_users():
            return
        # One place for the machine, wherever a run keeps its temporary files: the end of a command ends all processes
        # of its user, so a number that two runs share ends the commands of both.
        folder = Path(next((one for one in folders if os.access(one, os.W_OK)), tempfile.gettempdir()), _USERS)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != 0:
            raise SandboxError(f"{folder} belongs to another user. Remove it.")
        for uid in range(FIRST_UID, FIRST_UID + NUM_UIDS):
            lock = open(folder / str(uid), "w")  # noqa: SIM115 (held as long as this object lives)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self.uid, self._lock = uid, lock
            return
        raise SandboxError(f"All {NUM_UIDS} users for sandboxes are taken ({folder}).")

    def own(self, root: Path) -> None:
        """Give a work tree to the user, once."""
        if self.uid is None or os.lstat(root).st_uid == self.uid:
            return
        for folder, names, files in os.walk(root):
            for name in (*names, *files):
                os.chown(os.path.join(folder, name), self.uid, self.uid, follow_symlinks=False)
        os.chown(root, self.uid, self.uid, follow_symlinks=False)


def _has_users() -> bool:
    """Return whether the sandboxes' users exist here: in a container, root may be the only one."""
    try:
        spans = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except (OSError, ValueError):
        return True
    return any(first <= FIRST_UID and first + count >= FIRST_UID + NUM_UIDS for first, _, count in spans)


def num_threads() -> int:
    """Return how many threads the caller's user has, which the kernel counts as processes."""
    found = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += len(os.listdir(process / "task")) if process.stat().st_uid == os.geteuid() else 0
    return found


def memory_file(data: bytes) -> int:
    """Return a descriptor that reads some bytes."""
    number = os.memfd_create("composer")
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]
    os.lseek(number, 0, os.SEEK_SET)
    return number


@functools.cache
def which(name: str) -> str:
    """Return the path of a program that the sandbox needs."""
    path = shutil.which(name)
    if path is None:
        raise SandboxError(f"{name} is not installed. Install it with the system's package manager.")
    return path


def end_now(pid_fd: int, seconds: float = 10.0) -> None:
    """Kill a process and wait until it is gone."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pid_fd, signal.SIGKILL)
    with selectors.DefaultSelector() as waiting:
        waiting.register(pid_fd, selectors.EVENT_READ)
        waiting.select(seconds)
