"""The sandboxes that need no package: Landlock with a filter of system calls, and limits alone.

Both start `confine.py` as a program, which confines itself, starts the command, and ends every process that it leaves.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from composer_hub.environments import seccomp
from composer_hub.environments.interpreter import interpreter_of, linked, show_modules, without
from composer_hub.environments.process import (
    DEFAULT_LIMITS,
    Completed,
    Limits,
    OwnUser,
    SandboxError,
    memory_file,
    num_threads,
    read_to_the_end,
)
from composer_hub.environments.trees import remove

_PROGRAM = Path(__file__).with_name("confine.py")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Confined:
    """Commands that see the machine's paths: an allow list of them (`landlock`), or all (`weak`)."""

    def __init__(self, isolation: str) -> None:
        self.isolation, self._user = isolation, OwnUser()

    @property
    def has_own_user(self) -> bool:
        return self._user.uid is not None

    def inside(self, root: Path) -> str:
        return str(root)

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
        interpreter, uid = interpreter_of(venv), self._user.uid
        show_modules(root, interpreter.modules)
        home = Path(tempfile.mkdtemp(prefix="composer-home-"))
        if uid is not None:
            os.chown(home, uid, uid)
        # A rule for a link would allow all that it leads to: `/lib` has packages of the system.
        shown = [*interpreter.read_only, *read_only, *(Path(name) for name, target in linked() if not target)]
        masks = interpreter.hidden
        policy = {
            "landlock": self.isolation == "landlock",
            "readable": [str(one) for path in shown for one in without(path, masks)],
            # Python lists the folders that it imports from, so the names of hidden folders can be seen.
            "listable": [str(parent) for one in masks for parent in one.parents if _is_below(parent, shown)],
            "writable": [str(root), str(home), *_DEVICES],
            "filter": base64.b64encode(seccomp.program(sockets=False)).decode() if self.isolation == "landlock" else "",
            "limits": list(limits.of_the_kernel(0 if self.has_own_user else num_threads()).items()),
            "uid": uid,
            "root": str(root),
        }
        argv = ["/bin/bash", "-c", command] if isinstance(command, str) else list(command)
        files = [memory_file(data) for data in (stdin, json.dumps(policy).encode())]
        try:
            started = subprocess.Popen(
                # In the arguments, what cannot be one (a null character) is refused here and now.
                [sys.executable, "-IS", str(_PROGRAM), str(files[1]), ",".join(map(str, pass_fds)), *argv],
                stdin=files[0],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[files[1], *pass_fds],
                start_new_session=True,
                env={"PATH": interpreter.path, "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8",
                     "USER": "agent", "PYTHONDONTWRITEBYTECODE": "1"} | dict(env or {}),
            )  # fmt: skip

            def end() -> None:
                # It ends its command's processes on this signal, and itself last.
                if started.poll() is None:
                    os.kill(started.pid, signal.SIGTERM)
                    try:
                        started.wait(10)
                    except subprocess.TimeoutExpired:
                        started.kill()

            done = read_to_the_end(started, limits, end, begun, root)
        except OSError as error:
            raise SandboxError(f"The sandbox {self.isolation} cannot start a command in {root} ({error}).") from error
        finally:
            for number in files:
                os.close(number)
            remove(home)
        if done.exit_code == 125 and done.output.startswith("confine: "):
            raise SandboxError(f"The sandbox {self.isolation} does not work here: {done.output[9:].strip()}")
        return done


def _is_below(path: Path, shown: Sequence[Path]) -> bool:
    return any(path.is_relative_to(one) for one in shown)
