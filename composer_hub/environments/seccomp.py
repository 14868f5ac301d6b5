"""System calls that sandboxed commands may not make, as a seccomp filter in the kernel's bytecode.

They concern namespaces, mounts, other processes' memory, priorities and the kernel itself; Python packages do not
need them.
"""

from __future__ import annotations

import functools
import platform
import struct
from collections.abc import Iterator

from composer_hub import exits

# name: x86-64, arm64. Numbers from 424 on are the same everywhere.
_FORBIDDEN = {
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "swapon": (167, 224), "reboot": (169, 142), "acct": (163, 89), "syslog": (103, 116),
    "io_uring_setup": (425, 425), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "pidfd_getfd": (438, 438),
    # A command that gives its processor away could blame the machine for its time.
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274), "setpriority": (141, 140),
}  # fmt: skip
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), 435
_NEW_NAMESPACES = 0x7E020000
_ARCHES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _EPERM, _EACCES, _ENOSYS = 0x7FFF0000, 0x80000000, 0x50001, 0x5000D, 0x50026


class SeccompError(exits.ComposerError, OSError):
    """A processor that the filter does not know."""


@functools.cache
def program(*, sockets: bool, machine: str = "") -> bytes:
    """Return the filter; without `sockets` a process cannot create one (socket pairs still work)."""
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        raise SeccompError(f"There is no filter for {machine}. Use a machine with x86_64 or aarch64.")
    arch, column = _ARCHES[machine]
    return b"".join(_instructions(arch, column, sockets))


def _instructions(arch: int, column: int, sockets: bool) -> Iterator[bytes]:
    yield _op(_LOAD, 4)  # the architecture
    yield _op(_EQUAL, arch, 1, 0)
    yield _op(_RETURN, _KILL)
    yield _op(_LOAD, 0)  # the number of the call
    if column == 0:
        yield _op(_AT_LEAST, _X32, 0, 1)
        yield _op(_RETURN, _EPERM)
    for numbers in _FORBIDDEN.values():
        yield from _if(numbers[column], _EPERM)
    yield from _if(_CLONE3, _ENOSYS)  # its flags are in memory, out of reach; libraries fall back to clone
    if not sockets:
        yield from _if(_SOCKET[column], _EACCES)
    yield _op(_EQUAL, _CLONE[column], 0, 3)
    yield _op(_LOAD, 16)  # the flags of clone
    yield _op(_ANY_BIT, _NEW_NAMESPACES, 0, 1)
    yield _op(_RETURN, _EPERM)
    yield _op(_RETURN, _ALLOW)


def _if(number: int, answer: int) -> Iterator[bytes]:
    yield _op(_EQUAL, number, 0, 1)
    yield _op(_RETURN, answer)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
