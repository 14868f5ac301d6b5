"""Child processes that end with their parent, however it ends: by itself, by a signal, or by `kill -9`.

A child's stdin is a pipe whose other end the parent holds, and the system closes it with the parent. The child runs
this file, which waits for that in a thread, beside the program. In: the words of a Python program, as `python` takes
them: a file, or `-m` and a module. Run as a plain file with the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

GRACE_SECONDS = 10.0


def start(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a Python program that ends with this process."""
    return subprocess.Popen([sys.executable, __file__, *words], stdin=subprocess.PIPE, **options)


@contextlib.contextmanager
def ending(process: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> Iterator[subprocess.Popen[bytes]]:
    """End a process when the block is left, politely for `grace` seconds."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def end_with_parent(descriptor: int = 0) -> None:
    """Wait until the parent closes the other end of a pipe, and end this process."""
    # A buffered read would hold a lock of stdin, which Python wants at its end.
    while os.read(descriptor, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run a program as `python` runs it, until it ends or the parent does."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.argv = sys.argv[1:]
    # Python has put the folder of this file first, which the program must not import from.
    if sys.argv[0] == "-m":
        sys.argv = sys.argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
