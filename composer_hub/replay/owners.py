"""The process that holds a reservation, and whether it is still alive.

In: `/proc`. Out: `Owner`, and `is_alive`. A wrong verdict cannot exceed the cap: a reservation taken from a living
process stays counted, and its answer is still settled. At worst, one question is asked twice.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

SILENT_S = 300.0
"""A process on another machine counts as dead when its heartbeat is this old."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, distinct from a later one with the same pid."""

    owner: str
    host: str  # machine and pid namespace: in another container the same number is another process
    boot: str
    pid: int
    started: str

    @classmethod
    def this_process(cls, owner: str) -> Owner:
        return cls(owner, _host(), _boot(), os.getpid(), _started(os.getpid()))

    @property
    def identity(self) -> tuple[str, str, str, int, str]:
        return (self.owner, self.host, self.boot, self.pid, self.started)


def is_alive(owner: Owner, silent_s: float) -> bool:
    """Return whether the process still runs; on another machine, judge by its heartbeat."""
    if owner.host != _host():
        return abs(silent_s) < SILENT_S
    if owner.boot != _boot():
        return False
    if not _pid_exists(owner.pid):
        return False
    return _started(owner.pid) == owner.started


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _host() -> str:
    try:
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _boot() -> str:
    return _read("/proc/sys/kernel/random/boot_id").strip()


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; "" for a zombie, which cannot write any more."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
