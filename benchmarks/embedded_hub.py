"""How fast the embedded Hub is, against what this machine does at the same minute: `python benchmarks/embedded_hub.py`.

Speeds of files are given beside those of a plain copy with a flush to disk in the same run, and commits beside the
requests a second that the same client and server exchange at all. All happens in one temporary folder, which goes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from composer_hub.local_hub.server import ServerProcess, start_server

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=500, help="MiB of the file that goes up and down")
    parser.add_argument("--big", type=int, default=0, help="MiB of the file for the memory test; 0 leaves it out")
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--xet", action="store_true", help="upload through Xet instead of LFS")
    arguments = parser.parse_args()
    # The client libraries read these when they are imported.
    os.environ |= {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "NO_PROXY": "127.0.0.1",
        "HF_HUB_DISABLE_XET": str(int(not arguments.xet)),
    }
    with tempfile.TemporaryDirectory(prefix="embedded-hub-", dir=os.environ.get("TMPDIR")) as folder:
        os.environ["HF_HOME"] = folder + "/home"
        rows = run(Path(folder), arguments)
    width = max(len(row[0]) for row in rows)
    print("\n".join(f"{name:<{width}}  {value:>12}  {beside}" for name, value, beside in rows))


def run(folder: Path, arguments: argparse.Namespace) -> list[tuple[str, str, str]]:
    starts = [start_and_stop(folder / f"start{i}") for i in range(arguments.starts)]
    hashed = MIB * 100 / timed(lambda: hashlib.sha256(bytes(MIB * 100)).digest()) / MIB
    python = timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
    rows = [
        ("start to first answer", f"{statistics.median(starts):.2f} s", f"bare python {python:.2f} s"),
        ("sha256 on one core", f"{hashed:.0f} MiB/s", "an upload is hashed by the client first, then by the server"),
    ]
    with start_server(folder / "hub") as server:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=server.endpoint, token=server.token)
        api.create_repo("me/bench")
        rows += commits(api, arguments.commits)
        rows += raw_commits(server, arguments.commits)
        rows += up_and_down(api, server, folder, arguments.size)
        if arguments.big:
            rows += memory(api, server, folder, arguments.big)
    return rows


def start_and_stop(root: Path) -> float:
    start = time.perf_counter()
    with start_server(root):
        return time.perf_counter() - start


def commits(api: Any, number: int) -> list[tuple[str, str, str]]:
    from huggingface_hub import CommitOperationAdd

    def commit(i: int) -> None:
        api.create_commit("me/bench", [CommitOperationAdd(f"f{i}.txt", b"%d" % i)], commit_message="small")

    commit(-1)
    ours = per_second(commit, number)
    # The same two round trips without work: what client and server can exchange on this machine now.
    bare = per_second(lambda i: (api.whoami(cache=False), api.whoami(cache=False)), number)
    return [("small commits, stock client", f"{ours:.0f}/s", f"{ours / bare:.2f} of two bare requests ({bare:.0f}/s)")]


def raw_commits(server: ServerProcess, number: int) -> list[tuple[str, str, str]]:
    """Commit by the same two requests on one kept connection: without a client library, what the server takes."""
    import http.client

    link = http.client.HTTPConnection(server.endpoint.removeprefix("http://"))
    headers = {"Authorization": f"Bearer {server.token}"}

    def ask(method: str, path: str, body: bytes | None = None) -> None:
        link.request(method, path, body, headers)
        answer = link.getresponse()
        answer.read()
        assert answer.status == 200, answer.status

    def commit(i: int) -> None:
        file = {"path": f"raw{i}.txt", "size": 1, "sample": ""}
        ask("POST", "/api/models/me/bench/preupload/main", json.dumps({"files": [file]}).encode())
        added = {"path": f"raw{i}.txt", "encoding": "base64", "content": base64.b64encode(b"%d" % i).decode()}
        lines = {"key": "header", "value": {"summary": "small"}}, {"key": "file", "value": added}
        ask("POST", "/api/models/me/bench/commit/main", "\n".join(map(json.dumps, lines)).encode())

    commit(-1)
    before = cpu_seconds(server.running.pid)
    ours = per_second(commit, number)
    cpu = (cpu_seconds(server.running.pid) - before) / number
    bare = per_second(lambda i: ask("GET", "/api/whoami-v2"), 2 * number) / 2
    beside = f"{ours / bare:.2f} of two bare requests ({bare:.0f}/s), {1000 * cpu:.1f} ms of CPU in the server"
    return [("small commits, raw HTTP", f"{ours:.0f}/s", beside)]


def up_and_down(api: Any, server: ServerProcess, folder: Path, size: int) -> list[tuple[str, str, str]]:
    path, copy = folder / "file.bin", folder / "copy.bin"
    write_random(path, size)
    plain = size / timed(lambda: copy_file(path, copy))
    copy.unlink()
    cpu = [cpu_seconds(server.running.pid)]
    up = size / timed(lambda: api.upload_file(path_or_fileobj=str(path), path_in_repo="file.bin", repo_id="me/bench"))
    cpu.append(cpu_seconds(server.running.pid))
    down = size / timed(lambda: api.hf_hub_download("me/bench", "file.bin", local_dir=folder / "down"))
    cpu.append(cpu_seconds(server.running.pid))
    path.unlink()
    (folder / "down" / "file.bin").unlink()
    up_cpu, down_cpu = (1000 * (after - before) / size for before, after in itertools.pairwise(cpu))
    return [
        (f"copy {size} MiB", f"{plain:.0f} MiB/s", "read, write, flush"),
        (
            f"upload {size} MiB",
            f"{up:.0f} MiB/s",
            f"{up / plain:.2f} of the copy, {up_cpu:.1f} ms of CPU a MiB",
        ),
        (
            f"download {size} MiB",
            f"{down:.0f} MiB/s",
            f"{down / plain:.2f} of the copy, {down_cpu:.1f} ms of CPU a MiB",
        ),
    ]


def memory(api: Any, server: ServerProcess, folder: Path, size: int) -> list[tuple[str, str, str]]:
    path = folder / "big.bin"
    write_random(path, size)
    with watched(server.running.pid) as growth:
        api.upload_file(path_or_fileobj=str(path), path_in_repo="big.bin", repo_id="me/bench")
        path.unlink()
        api.hf_hub_download("me/bench", "big.bin", local_dir=folder / "down")
    return [(f"memory of the server, {size} MiB", f"+{growth[0] / MIB:.0f} MiB", "at its highest, up and down")]


@contextmanager
def watched(pid: int) -> Iterator[list[float]]:
    """Measure how far a process grows while the block runs."""
    before, highest, done = resident(pid), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            highest[0] = max(highest[0], resident(pid) - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield highest
    finally:
        done.set()
        thread.join()


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds a process has used: what it costs, however busy the machine is."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def write_random(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.writelines(os.urandom(MIB) for _ in range(size))


def copy_file(source: Path, target: Path) -> None:
    with open(source, "rb") as read, open(target, "wb") as write:
        while chunk := read.read(MIB):
            write.write(chunk)
        write.flush()
        os.fsync(write.fileno())


def per_second(function: Callable[[int], object], number: int) -> float:
    return number / timed(lambda: [function(i) for i in range(number)])


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
