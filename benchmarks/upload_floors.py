"""The least that an upload can cost: bare loops around one socket, in CPU ms per MB. `embedded_hub.py` runs them.

A client process sends random bytes over loopback. Only the receiving process is measured.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

MB = 1_000_000
BLOCK, DIRECT_BLOCK = 1 << 20, 4 << 20
ROWS = {
    "floor_sha256": "sha256 of bytes in memory",
    "floor_receive": "receive and discard",
    "floor_hash": "receive and hash",
    "floor_write": "receive, hash, write, fsync",
    "floor_direct": "receive, hash, write with O_DIRECT, fsync",
    "floor_splice": "splice from socket to file, hash the mapped file, fsync",
}
_SENDER = """
import os, socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
left, block = int(sys.argv[2]), memoryview(os.urandom(1 << 20))
while left:
    link.sendall(block[:left])
    left -= min(left, len(block))
link.recv(1)
"""


def floors(megabytes: int) -> dict[str, float]:
    """Measure each loop once."""
    size, data = megabytes * MB, os.urandom(megabytes * MB)
    with tempfile.TemporaryDirectory(prefix="upload-floors-", dir=Path.cwd()) as folder:
        path = Path(folder) / "file"
        seconds = {"floor_sha256": _cpu(lambda: hashlib.sha256(data))}
        for name, work in (
            ("floor_receive", lambda link: _receive(link, size, lambda piece: None)),
            ("floor_hash", lambda link: _receive(link, size, hashlib.sha256().update)),
            ("floor_write", lambda link: _store(link, size, path, BLOCK, 0)),
            ("floor_direct", lambda link: _store(link, size, path, DIRECT_BLOCK, os.O_DIRECT)),
            ("floor_splice", lambda link: _splice(link, size, path)),
        ):
            seconds[name] = _with_sender(size, work)
            path.unlink(missing_ok=True)
    return {name: 1000 * value / megabytes for name, value in seconds.items()}


def _with_sender(size: int, work: Callable[[socket.socket], object]) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        words = [sys.executable, "-c", _SENDER, str(listener.getsockname()[1]), str(size)]
        with subprocess.Popen(words) as sender:
            link, _ = listener.accept()
            with link:
                seconds = _cpu(lambda: work(link))
            sender.wait()
    return seconds


def _pieces(link: socket.socket, size: int, block: int) -> Iterator[memoryview]:
    room = memoryview(mmap.mmap(-1, block))  # aligned, as O_DIRECT wants it
    while size:
        piece = room[:size]
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, min(len(piece), BLOCK))
        filled = 0
        while filled < len(piece):
            filled += link.recv_into(piece[filled:]) or sys.exit("The sender has gone.")
        yield piece
        size -= len(piece)


def _receive(link: socket.socket, size: int, take: Callable[[memoryview], object]) -> None:
    for piece in _pieces(link, size, BLOCK):
        take(piece)


def _store(link: socket.socket, size: int, path: Path, block: int, flags: int) -> None:
    file, digest = os.open(path, os.O_WRONLY | os.O_CREAT | flags), hashlib.sha256()
    for piece in _pieces(link, size, block):
        digest.update(piece)
        if flags and len(piece) % mmap.PAGESIZE:
            fcntl.fcntl(file, fcntl.F_SETFL, 0)  # the last piece has no whole pages
        os.write(file, piece)
    os.fsync(file)
    os.close(file)


def _splice(link: socket.socket, size: int, path: Path) -> None:
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    out, into = os.pipe()
    fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, BLOCK)
    left = size
    while left:
        moved = os.splice(link.fileno(), into, min(left, BLOCK))
        left -= moved
        while moved:
            moved -= os.splice(out, file, moved)
    with mmap.mmap(file, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE) as mapped:
        hashlib.sha256(mapped)
    os.fsync(file)
    for descriptor in (file, out, into):
        os.close(descriptor)


def _cpu(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before
