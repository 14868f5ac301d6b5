"""A started process, read until it ends or exceeds its limits."""

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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from composer_hub import exits

FIRST_UID, NUM_UIDS = 20_001, 4_000
_CHUNK = 65_536
_FLOOD = 64 << 20  # output beyond this ends the command


class SandboxError(exits.ComposerError, RuntimeError):
    """A command that could not be started in its sandbox."""


@dataclass(frozen=True)
class Limits:
    """The most that one command may use. Memory, files and processor time count per process."""

    seconds: float = 10.0
    cpu_seconds: int = 0  # 0: as many as `seconds`, rounded up
    memory_mb: int = 2048
    processes: int = 64
    file_mb: int = 64
    open_files: int = 1024
    output_chars: int = 8000

    def of_the_kernel(self) -> dict[int, int]:
        """Return the limits by the numbers of `resource`."""
        return {
            resource.RLIMIT_CPU: self.cpu_seconds or int(self.seconds) + 1,
            resource.RLIMIT_AS: self.memory_mb << 20,
            resource.RLIMIT_NPROC: self.processes,
            resource.RLIMIT_FSIZE: self.file_mb << 20,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_CORE: 0,
        }


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Completed:
    """How a command ended, and its output with the middle left out if it was long."""

    exit_code: int  # 124 if it was ended for its time, 128 + n for signal n
    output: str  # stdout and stderr as they came
    timed_out: bool = False
    flooded: bool = False
    seconds: float = 0.0


def read_to_the_end(
    started: subprocess.Popen[bytes], limits: Limits, end: Callable[[], None], begun: float
) -> Completed:
    """Read a process's output until the process ends, and then `end` all that it left behind."""
    assert started.stdout is not None
    pipe, exit_fd = started.stdout.fileno(), os.pidfd_open(started.pid)
    os.set_blocking(pipe, False)
    kept, deadline = _Kept(limits.output_chars * 4), begun + limits.seconds
    timed_out = flooded = False
    try:
        with selectors.DefaultSelector() as waiting:
            waiting.register(pipe, selectors.EVENT_READ)
            waiting.register(exit_fd, selectors.EVENT_READ)
            while started.poll() is None:
                left = deadline - time.monotonic()
                timed_out, flooded = left <= 0, kept.size > _FLOOD
                if timed_out or flooded:
                    break
                ready = {key.fd for key, _ in waiting.select(left)}
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
        exit_code=124 if timed_out else 128 - code if code < 0 else code,
        output=shortened(kept.text(), limits.output_chars),
        timed_out=timed_out,
        flooded=flooded,
        seconds=time.monotonic() - begun,
    )


def shortened(text: str, most: int) -> str:
    """Return the beginning and the end of a text that is too long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


class _Kept:
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
    """A user number that no other sandbox of this machine uses; None if the caller is not root."""

    def __init__(self) -> None:
        self.uid: int | None = None
        if os.geteuid() != 0:
            return
        folder = Path(tempfile.gettempdir(), "composer-hub-users")
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
