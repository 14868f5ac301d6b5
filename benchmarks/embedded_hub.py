"""How fast the embedded Hub is, against what this machine does at the same minute: `python benchmarks/embedded_hub.py`.

Speeds of files are given beside those of a plain copy with a flush to disk in the same run, and commits beside the
requests a second that the same client and server exchange at all. All happens in one temporary folder, which goes.
"""

from __future__ import annotations

import argparse
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

from composer_hub.hub.local.server import ServerProcess, start_server

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
    python = timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
    rows = [("start to first answer", f"{statistics.median(starts):.2f} s", f"bare python {python:.2f} s")]
    with start_server(folder / "hub") as server:
        from huggingface_hub import HfApi

        api = HfApi(endpoint=server.endpoint, token=server.token)
        api.create_repo("me/bench")
        rows += commits(api, arguments.commits)
        rows += up_and_down(api, folder, arguments.size)
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
    return [("small commits", f"{ours:.0f}/s", f"{ours / bare:.2f} of two bare requests ({bare:.0f}/s)")]


def up_and_down(api: Any, folder: Path, size: int) -> list[tuple[str, str, str]]:
    path, copy = folder / "file.bin", folder / "copy.bin"
    write_random(path, size)
    plain = size / timed(lambda: copy_file(path, copy))
    copy.unlink()
    up = size / timed(lambda: api.upload_file(path_or_fileobj=str(path), path_in_repo="file.bin", repo_id="me/bench"))
    down = size / timed(lambda: api.hf_hub_download("me/bench", "file.bin", local_dir=folder / "down"))
    path.unlink()
    (folder / "down" / "file.bin").unlink()
    return [
        (f"copy {size} MiB", f"{plain:.0f} MiB/s", "read, write, flush"),
        (f"upload {size} MiB", f"{up:.0f} MiB/s", f"{up / plain:.2f} of the copy (hashed by both sides)"),
        (f"download {size} MiB", f"{down:.0f} MiB/s", f"{down / plain:.2f} of the copy"),
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
