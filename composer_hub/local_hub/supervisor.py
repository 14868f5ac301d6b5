"""The process between the embedded Hub and one job: starts it, writes its log, ends it with everything it started.

In: one JSON line on stdin (`command`, `env`, `cwd`, `log`, `timeout`, `masks`); a second line, or the end of stdin,
means stop. Out: JSON lines on stdout, `{"started": pid}`, then `{"ended": exit code, "cause": …}` with the cause exit,
timeout, canceled or server stopped. Because the server's death closes stdin, no job outlives a `kill -9` of the server.
Runs as a plain file with the standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

MAX_LINE = 64 * 1024
MAX_LOG = 256 * 1024 * 1024
GRACE_SECONDS = 3.0
_PR_SET_CHILD_SUBREAPER = 36


class Log:
    """Append log lines as JSON, with the job's secrets masked and strictly growing timestamps."""

    def __init__(self, file: BinaryIO, masks: Sequence[str]) -> None:
        self.file, self.masks = file, sorted((mask.encode() for mask in masks), key=len, reverse=True)
        self.rest = b""
        self.last = datetime.datetime.fromtimestamp(0, datetime.UTC)
        self.room = MAX_LOG

    def feed(self, data: bytes) -> None:
        """Take output as it comes; whole lines go to the file at once."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) > MAX_LINE:
            line = self._masked(self.rest)
            # The last bytes may be the beginning of a secret, so they wait for what follows.
            cut = max(0, len(line) - max(map(len, self.masks), default=0))
            lines, self.rest = [*lines, line[:cut]], line[cut:]
        self.write(lines)

    def close(self) -> None:
        if self.rest:
            self.write([self.rest])

    def write(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if self.room <= 0:
                return
            self.room -= len(line)
            text = self._masked(line).rstrip(b"\r").decode("utf-8", "replace")
            self._append(text if self.room > 0 else f"Log cut here: it is longer than {MAX_LOG >> 20} MiB.")
        self.file.flush()

    def _masked(self, line: bytes) -> bytes:
        for mask in self.masks:
            line = line.replace(mask, b"***")
        return line

    def _append(self, text: str) -> None:
        # A client that reconnects finds its place again by the timestamp, so no two lines may share one.
        self.last = max(datetime.datetime.now(datetime.UTC), self.last + datetime.timedelta(microseconds=1))
        stamp = self.last.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        self.file.write(json.dumps({"data": text, "timestamp": stamp}).encode() + b"\n")


def supervise(order: dict[str, Any]) -> None:
    """Run one job to its end and say how it ended."""
    adopt_orphans()
    with open(order["log"], "ab") as file:
        log = Log(file, order["masks"])
        try:
            process = subprocess.Popen(
                order["command"],
                env=order["env"],
                cwd=order["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            say(ended=127, cause="exit", why=f"{order['command'][0]} could not be started: {error}")
            return
        say(started=process.pid)
        deadline = time.monotonic() + order["timeout"] if order["timeout"] else None
        cause = watch(process, log, deadline)
        end_group(process, grace=0.0 if cause in ("exit", "server stopped") else GRACE_SECONDS)
        drain(process, log)
        log.close()
    say(ended=process.returncode, cause=cause)


def watch(process: subprocess.Popen[bytes], log: Log, deadline: float | None) -> str:
    """Copy output to the log until the job ends or must end; return why."""
    output: Any = process.stdout
    os.set_blocking(output.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while process.poll() is None:
            if deadline is not None and time.monotonic() >= deadline:
                return "timeout"
            for key, _ in selector.select(timeout=0.1):
                if key.fd == sys.stdin.fileno():
                    return "canceled" if os.read(sys.stdin.fileno(), 4096) else "server stopped"
                if not copy(output, log):
                    selector.unregister(output)
    return "exit"


def copy(output: Any, log: Log) -> bool:
    """Copy what the pipe holds now; False once it is closed."""
    try:
        data = os.read(output.fileno(), 1 << 16)
    except BlockingIOError:
        return True
    log.feed(data)
    return bool(data)


def drain(process: subprocess.Popen[bytes], log: Log) -> None:
    """Copy what the job wrote before its end; a stray writer cannot hold this up."""
    assert process.stdout is not None
    with contextlib.suppress(BlockingIOError):
        while data := os.read(process.stdout.fileno(), 1 << 16):
            log.feed(data)


def end_group(process: subprocess.Popen[bytes], grace: float) -> None:
    """End the job's process group, politely for `grace` seconds, then whatever it left behind elsewhere."""
    if process.poll() is None and grace:
        signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    signal_group(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(100):
        strays = list(children())
        if not strays:
            return
        for pid in strays:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group, which may have ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def adopt_orphans() -> None:
    """Become the parent of descendants that leave their process group (Linux), so that none is lost from sight."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> Iterator[int]:
    """Yield the living children of this process, if /proc lists them."""
    with contextlib.suppress(OSError):
        yield from map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def say(**facts: Any) -> None:
    """Report to the server on stdout, as one line of JSON."""
    # The server may be gone; the job is ended anyway.
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(facts), flush=True)


def main() -> None:
    """Run the job that the first line of stdin orders; only the server ends it early, not a signal."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Only the server decides, and it does so on stdin. A handler, unlike SIG_IGN, is not inherited by the job.
        signal.signal(number, lambda number, frame: None)
    supervise(json.loads(read_line()))


def read_line() -> bytes:
    """Read one line unbuffered, so that what follows stays in the pipe for `watch` to see."""
    line = bytearray()
    while (byte := os.read(sys.stdin.fileno(), 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line)


if __name__ == "__main__":
    main()
