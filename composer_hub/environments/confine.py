"""Confine one command with Landlock and seccomp. Run as a program with `python -IS`; standard library only.

The policy comes as JSON through an inherited descriptor, the numbers of other descriptors and the command as
arguments. This process stays outside: it waits for the command, then
ends everything that the command has left behind, and exits with its code (125 if the policy cannot be enforced).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import resource
import signal
import stat
import struct
import sys
from types import FrameType
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
NO_NEW_PRIVS, SET_SECCOMP, KEEP_CAPS, SUBREAPER, AMBIENT, DEATH_SIGNAL = 38, 22, 8, 36, 47, 1
EXECUTE, WRITE, READ, LIST, TRUNCATE, IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
READ_SEARCH = 2  # the capability that reads every file, which Landlock then restricts


def checked(value: int, what: str) -> int:
    """Return the result of a call to the C library; if it is negative, raise the OSError behind it."""
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return value


def prctl(option: int, first: int = 0, second: Any = 0) -> None:
    """Set an attribute of this process; raise OSError if the kernel refuses."""
    checked(LIBC.prctl(option, ctypes.c_ulong(first), second, 0, 0), f"prctl {option}")


def restrict_files(readable: list[str], listable: list[str], writable: list[str]) -> None:
    """Let this process and its children use only these paths."""
    abi = LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 3:
        raise OSError(0, "the kernel has no Landlock, or an old one (it needs version 3, Linux 6.2)")
    every = (1 << (16 if abi >= 5 else 15)) - 1
    fields = struct.pack("<QQQ", every, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    rules = checked(LIBC.syscall(CREATE_RULESET, fields, ctypes.c_size_t(size), 0), "landlock_create_ruleset")
    for paths, allowed in ((readable, EXECUTE | READ | LIST), (listable, LIST), (writable, every)):
        for path in paths:
            try:
                number = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            if not stat.S_ISDIR(os.fstat(number).st_mode):
                allowed_here = allowed & (EXECUTE | WRITE | READ | TRUNCATE | (IOCTL if abi >= 5 else 0))
            else:
                allowed_here = allowed
            rule = struct.pack("<Qi", allowed_here, number)
            checked(LIBC.syscall(ADD_RULE, rules, 1, rule, 0), f"landlock_add_rule {path}")
            os.close(number)
    checked(LIBC.syscall(RESTRICT_SELF, rules, 0), "landlock_restrict_self")
    os.close(rules)


def filter_calls(program: bytes) -> None:
    """Leave this process and its children only the system calls that a seccomp program allows, for good."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    prctl(SET_SECCOMP, 2, header)


def become(uid: int, *, keep_reading: bool) -> None:
    """Become another user; with `keep_reading` folders of root may still be passed."""
    if keep_reading:
        prctl(KEEP_CAPS, 1)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    if keep_reading:
        header, data = struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", *[1 << READ_SEARCH] * 3, 0, 0, 0)
        checked(LIBC.capset(header, data), "capset")
        prctl(AMBIENT, 2, READ_SEARCH)


def enter(policy: dict[str, Any]) -> None:
    """Give up everything that the policy does not allow."""
    prctl(DEATH_SIGNAL, signal.SIGKILL)
    for number, both in policy["limits"]:
        hard = resource.getrlimit(number)[1]
        is_free = hard == resource.RLIM_INFINITY or os.geteuid() == 0
        resource.setrlimit(number, tuple(both) if is_free else tuple(min(one, hard) for one in both))
    if policy["uid"] is not None:
        become(policy["uid"], keep_reading=policy["landlock"])
    prctl(NO_NEW_PRIVS, 1)
    os.chdir(policy["root"])
    if policy["landlock"]:
        restrict_files(policy["readable"], policy["listable"], policy["writable"])
        filter_calls(base64.b64decode(policy["filter"]))


def processes_below(ancestor: int) -> list[int]:
    """Return the living processes that descend from one."""
    parents = {}
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = open(f"/proc/{int(name)}/stat").read().rpartition(")")[2].split()  # noqa: SIM115
            if fields[0] != "Z":
                parents[int(name)] = int(fields[1])
    found = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {ancestor})


def end_all(uid: int | None) -> None:
    """End every process that the command has started; orphans are children of this one."""
    if uid is not None:
        killer = os.fork()
        if killer == 0:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)  # all processes of the user at once, itself excepted
            os._exit(0)
        os.waitpid(killer, 0)
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        left = processes_below(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Run the command in a child that obeys the policy; return its exit code, 128 + n after a signal n."""
    number, kept, *argv = sys.argv[1:]
    with open(int(number), "rb") as file:
        policy = json.loads(file.read())
    prctl(SUBREAPER, 1)

    def stop(*_: int | FrameType | None) -> None:
        end_all(policy["uid"])
        os._exit(124)

    signal.signal(signal.SIGTERM, stop)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            enter(policy)
        except OSError as error:
            os.write(2, f"confine: {error.strerror or error}\n".encode())
            os._exit(125)
        try:
            os.execvpe(argv[0], argv, os.environ)
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
            os._exit(127)
    for one in filter(None, kept.split(",")):
        os.close(int(one))
    _, status = os.waitpid(child, 0)
    end_all(policy["uid"])
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
