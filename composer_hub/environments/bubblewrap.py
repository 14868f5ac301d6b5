"""The sandbox of bubblewrap: a private root with the work tree at /workspace, and an interpreter.

As root, mounts are made as root, so that interpreters in a home folder are found, and the command then runs
as a separate user. Other users need user namespaces. Limits are set on the first process before the command
starts (`--block-fd`), which costs no further program.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from composer_hub.environments import seccomp
from composer_hub.environments.interpreter import interpreter_of, linked, show_modules
from composer_hub.environments.process import (
    DEFAULT_LIMITS,
    Completed,
    Limits,
    OwnUser,
    SandboxError,
    end_now,
    memory_file,
    read_to_the_end,
    which,
)

WORK = "/workspace"
_TMP_BYTES = str(256 << 20)
# bwrap gives /dev/shm to the user that mounts, and locks of multiprocessing are made there by the command's own user.
DEVICES = ("--proc", "/proc", "--dev", "/dev", "--size", _TMP_BYTES, "--perms", "1777", "--tmpfs", "/dev/shm")
_PASSWD = "root:x:0:0::/:/bin/sh\nagent:x:{0}:{0}::/tmp:/bin/bash\n"


class Bubblewrap:
    """Commands in their own namespaces. Work trees of one object belong to one user."""

    isolation = "bubblewrap"

    def __init__(self) -> None:
        which("bwrap")
        self._user = OwnUser()
        self._as_user: list[str] = []
        if self._user.uid is not None:
            uid = self._user.uid
            self._as_user = [which("setpriv"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]

    @property
    def has_own_user(self) -> bool:
        return self._user.uid is not None

    def inside(self, root: Path) -> str:
        return WORK

    def run(
        self,
        command: Sequence[str] | str,
        *,
        root: Path,
        venv: Path | None = None,
        read_only: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        limits: Limits = DEFAULT_LIMITS,
        pass_fds: Sequence[int] = (),
    ) -> Completed:
        begun = time.monotonic()
        self._user.own(root)
        if self.has_own_user and (closed := [one for one in read_only if one.stat().st_mode & 0o004 == 0]):
            raise SandboxError(
                f"{closed[0]} cannot be read by the sandbox's user. Run `chmod -R a+rX` on the folder where "
                "composer_hub is installed."
            )
        interpreter = interpreter_of(venv)
        show_modules(root, interpreter.modules)
        uid = self._user.uid if self._user.uid is not None else os.getuid()
        texts = {"/etc/passwd": _PASSWD.format(uid), "/etc/hosts": "127.0.0.1 localhost\n"}
        files = {path: memory_file(text.encode()) for path, text in texts.items()}
        options = [
            *(("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID") if self._as_user else ("--unshare-user",)),
            *("--unshare-net", *DEVICES),
            *("--size", _TMP_BYTES, "--perms", "1777", "--tmpfs", "/tmp"),
            *_mounts((*interpreter.read_only, *read_only), interpreter.hidden),
            *("--bind", str(root), WORK, "--chdir", WORK),
            *(part for path, fd in files.items() for part in ("--perms", "0644", "--file", str(fd), path)),
        ]
        own = {"PATH": interpreter.path, "HOME": "/tmp", "LANG": "C.UTF-8", "USER": "agent"}
        try:
            return launch(
                options,
                [*self._as_user, *(("/bin/bash", "-c", command) if isinstance(command, str) else command)],
                env=own | {"PYTHONDONTWRITEBYTECODE": "1"} | dict(env or {}),
                stdin=stdin,
                limits=limits,
                pass_fds=[*files.values(), *pass_fds],
                begun=begun,
                root=root,
            )
        except OSError as error:
            raise SandboxError(f"bwrap cannot start a command in {root} ({error}).") from error
        finally:
            for fd in files.values():
                os.close(fd)


@functools.lru_cache(maxsize=256)
def _mounts(shown: tuple[Path, ...], hidden: tuple[Path, ...]) -> tuple[str, ...]:
    argv: list[str] = []
    if taken := [path for path in shown if path == Path("/") or path.is_relative_to(WORK)]:
        raise SandboxError(f"{taken[0]} cannot be shown: the work tree is at {WORK}. Move it to another folder.")
    for name, target in linked():
        argv += ["--symlink", target, name] if target else ["--ro-bind", name, name]
    # bwrap makes missing parents for their owner alone.
    parents = {parent for path in (*shown, Path("/etc/passwd")) for parent in path.parents}
    bound = set(shown)
    for parent in sorted(parents - {Path("/"), Path("/tmp")}):
        if not bound.intersection((parent, *parent.parents)):
            argv += ["--dir", str(parent)]
    for path in sorted(bound):  # a folder before what is in it
        argv += ["--ro-bind", str(path), str(path)]
    for path in hidden:
        argv += ["--tmpfs", str(path), "--remount-ro", str(path)]
    return tuple(argv)


def launch(
    options: Sequence[str],
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    limits: Limits,
    stdin: bytes = b"",
    stderr: int = subprocess.STDOUT,
    pass_fds: Sequence[int] = (),
    cpus: int = 0,  # 0: all
    begun: float = 0.0,
    root: Path | None = None,  # the work tree, whose growth is limited
) -> Completed:
    """Start bubblewrap with some mounts, limit its first process, and wait for the end of all of them."""
    info, info_end = os.pipe()
    blocked, go = os.pipe()
    filtered = memory_file(seccomp.program(sockets=True))  # without a network, sockets reach the own loopback only
    given = memory_file(stdin)
    argv = [
        *(which("bwrap"), "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
        *("--die-with-parent", "--hostname", "sandbox", *options),
        *("--info-fd", str(info_end), "--block-fd", str(blocked), "--seccomp", str(filtered), "--", *command),
    ]
    try:
        started = subprocess.Popen(
            argv,
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=[info_end, blocked, filtered, *pass_fds],
            start_new_session=True,
            env=dict(env),
        )
    except BaseException:
        os.close(info)
        os.close(go)
        raise
    finally:
        for number in (info_end, blocked, filtered, given):
            os.close(number)
    try:
        return _supervised(started, info, go, limits, cpus, begun or time.monotonic(), root)
    finally:
        os.close(info)
        os.close(go)


def _supervised(
    started: subprocess.Popen[bytes],
    info: int,
    go: int,
    limits: Limits,
    cpus: int,
    begun: float,
    root: Path | None,
) -> Completed:
    status = b""
    while data := os.read(info, 4096):
        status += data
    try:
        first = int(json.loads(status)["child-pid"])
        first_fd = os.pidfd_open(first)
        for number, both in limits.of_the_kernel().items():
            resource.prlimit(first, number, both)
        if cpus:
            os.sched_setaffinity(first, sorted(os.sched_getaffinity(0))[:cpus])
    except (ValueError, KeyError, ProcessLookupError) as error:
        started.kill()
        output = started.communicate()[0].decode(errors="replace").strip()
        raise SandboxError(f"bwrap did not start: {output[-300:] or error}") from error
    try:
        os.write(go, b"1")
        # The first process of the namespace ends last, so its end is the end of every process in it.
        return read_to_the_end(started, limits, lambda: end_now(first_fd), begun, root)
    finally:
        os.close(first_fd)
