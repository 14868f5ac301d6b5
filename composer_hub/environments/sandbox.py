"""Run untrusted commands: a command and a work tree in, its output and how it ended out.

`open_sandbox` takes the strongest kind that this machine offers:

- `bubblewrap`: own mounts, processes and network, a filter of system calls, an own user if the caller is root.
- `landlock`: no package needed. Files by an allow list, no sockets; processes of the machine stay visible as numbers.
- `weak`: limits and, for root, an own user. Reads what that user may read. Never chosen unless named.

All of them limit processor time, memory, processes, files and output, and end every process with the call.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from composer_hub import exits
from composer_hub.environments.bubblewrap import Bubblewrap
from composer_hub.environments.confined import Confined
from composer_hub.environments.process import DEFAULT_LIMITS, CommandInterrupted, Completed, Limits, SandboxError

KINDS = ("bubblewrap", "landlock", "weak")
__all__ = [
    "KINDS",
    "CommandInterrupted",
    "Completed",
    "Limits",
    "Sandbox",
    "SandboxError",
    "described",
    "holds",
    "open_sandbox",
]


class Sandbox(Protocol):
    """Runs one command after another; every process that a command started ends with it."""

    isolation: str  # of KINDS

    @property
    def has_own_user(self) -> bool:
        """Return whether commands run as a user that nothing else on the machine uses."""

    def inside(self, root: Path) -> str:
        """Return the path under which a command sees the work tree."""

    def run(
        self,
        command: Sequence[str] | str,  # a string goes to bash
        *,
        root: Path,  # the writable work tree and working directory
        venv: Path | None = None,  # seen read-only, first on PATH
        read_only: Sequence[Path] = (),  # also seen, at the same paths
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        limits: Limits = DEFAULT_LIMITS,
        pass_fds: Sequence[int] = (),
    ) -> Completed:
        """Run a command to its end or to its limits; `SandboxError` if it could not start."""


def open_sandbox(kind: str = "auto") -> Sandbox:
    """Return the named sandbox, or the strongest one; refuse if nothing isolates here."""
    if kind not in ("auto", *KINDS):
        raise exits.UsageError(f"There is no sandbox {kind!r}. Name auto, {', '.join(KINDS)}.")
    reasons = []
    for one in KINDS[:2] if kind == "auto" else (kind,):
        reason = _reason_against(one)
        if not reason:
            return Bubblewrap() if one == "bubblewrap" else Confined(one)
        reasons.append(f"{one}: {reason}")
    raise exits.Refused(
        f"No sandbox isolates commands on this machine ({'; '.join(reasons)}). Install bubblewrap, allow it user "
        "namespaces, or name the sandbox `weak` if this machine holds nothing that matters."
    )


@functools.cache
def _reason_against(kind: str) -> str:
    """Return why a kind does not work here, or nothing."""
    try:
        if kind == "bubblewrap" and shutil.which("bwrap") is None:
            return "bwrap is not installed"
        failed = [name for name, holds_here in holds(Bubblewrap() if kind == "bubblewrap" else Confined(kind)).items()
                  if not holds_here and kind != "weak"]  # fmt: skip
        return f"it does not give {', '.join(failed)}" if failed else ""
    except (SandboxError, OSError) as error:
        return str(error)


def described() -> tuple[str, str]:
    """Return the kind of the strongest sandbox and what it prevents here, in words."""
    sandbox = open_sandbox()
    prevented = [name for name, holds_here in holds(sandbox).items() if holds_here]
    user = "own user" if sandbox.has_own_user else "the caller's user"
    return sandbox.isolation, f"{sandbox.isolation}: {', '.join(prevented)}; {user}"


_PROBE = """
import ctypes, os, socket, sys
outside, secret = sys.argv[1:]
def allowed(do):
    try: do()
    except (OSError, MemoryError): return False
    return True
def listening():
    with socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), timeout=1): pass
def new_namespace():
    if ctypes.CDLL(None).unshare(0x10000000): raise OSError
def other_processes():
    os.kill(int(os.environ["HOST"]), 0)
print(*(int(not allowed(do)) for do in (
    listening, lambda: open(secret).read(), lambda: open(outside, "w"), new_namespace, other_processes,
    lambda: bytearray(3 << 30))))
"""


def holds(sandbox: Sandbox) -> dict[str, bool]:
    """Try to leave a sandbox, and return what it prevents."""
    import socket
    import tempfile

    names = (
        "no network",
        "no reading outside",
        "no writing outside",
        "no namespaces",
        "no other processes",
        "limited memory",
    )
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        root, secret = Path(folder, "work"), Path(folder, "secret")
        root.mkdir()
        secret.write_text("secret")
        os.chmod(secret, 0o644)
        os.chmod(folder, 0o777)
        done = sandbox.run(
            ["python3", "-IS", "-c", _PROBE, f"{folder}/new", str(secret)],
            root=root,
            env={"PORT": str(server.getsockname()[1]), "HOST": str(os.getpid())},
            limits=Limits(seconds=20, memory_mb=1024),
        )
        flags = done.output.split()
        if done.exit_code != 0 or len(flags) != len(names):
            raise SandboxError(f"The sandbox {sandbox.isolation} cannot start Python: {done.output.strip()[-300:]}")
    return dict(zip(names, (flag == "1" for flag in flags), strict=True))
