"""What the embedded Hub costs, beside an earlier version of it in the same run: `python benchmarks/embedded_hub.py`.

The figures are CPU seconds of the server, because a machine is rarely quiet, with sha256 of the same bytes in the same
minute, and with the bare loops of `upload_floors.py`. `--before FOLDER` names a checkout of an earlier commit
(`git worktree add --detach FOLDER COMMIT`); its server and today's take turns, with the same stock client.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import upload_floors
from composer_hub.local_hub.server import RunningHub, find_running

HERE = Path(__file__).resolve().parents[1]
MB = 1_000_000
ROWS = {
    "start": ("start to first answer, CPU s", 2),
    "sha256": ("sha256, CPU ms per MB", 2),
    "lfs_up": ("LFS up, CPU ms per MB", 2),
    "lfs_up_ratio": ("LFS up, times sha256", 2),
    "lfs_down": ("LFS down, CPU ms per MB", 2),
    "lfs_disk": ("LFS, bytes on disk per byte", 2),
    "lfs_memory": ("LFS up and down, memory added at its peak, MB", 0),
    "xet_up": ("Xet up, CPU ms per MB", 2),
    "xet_down": ("Xet down, CPU ms per MB", 2),
    "xet_disk": ("Xet, bytes on disk per byte", 2),
    "xet_memory": ("Xet up and down, memory added at its peak, MB", 0),
    "commit": ("small commit by raw HTTP, CPU ms", 2),
    "tree": ("tree of many files with expand, CPU s", 2),
}


@dataclass(frozen=True)
class Sizes:
    """What one round does."""

    megabytes: int
    commits: int
    files: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="checkout of an earlier version")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the median counts")
    parser.add_argument("--megabytes", type=int, default=200, help="MB of the random file that goes up and down")
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--files", type=int, default=10_000, help="files of the tree that is listed with expand")
    parser.add_argument("--part", choices=["lfs", "xet", "commits", "floors"], help=argparse.SUPPRESS)
    parser.add_argument("--checkout", type=Path, default=HERE, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        sizes = Sizes(arguments.megabytes, arguments.commits, arguments.files)
        print(json.dumps(run_part(arguments.part, arguments.checkout, sizes)))
        return
    checkouts = [arguments.before.resolve()] if arguments.before else []
    results = run_rounds([*checkouts, HERE], arguments)
    names = (["before"] if arguments.before else []) + ["now"]
    print("| | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for key, (title, digits) in ROWS.items():
        print(f"| {title} | " + " | ".join(cell(result[key], digits) for result in results) + " |")
    least = results[-1]
    print("\n| bare loop | CPU ms per MB | times sha256 |\n|---|---|---|")
    for key, title in upload_floors.ROWS.items():
        ratio = statistics.median(least[key]) / statistics.median(least["floor_sha256"])
        print(f"| {title} | {cell(least[key], 2)} | {ratio:.2f} |")


def cell(values: list[float], digits: int) -> str:
    """Write the median with the least and the most."""
    low, middle, high = (f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def run_rounds(checkouts: list[Path], arguments: argparse.Namespace) -> list[dict[str, list[float]]]:
    """Let the versions take turns, each part in a new process, since clients read settings when imported."""
    results: list[dict[str, list[float]]] = [{key: [] for key in (*ROWS, *upload_floors.ROWS)} for _ in checkouts]
    options = [f"--{name}={getattr(arguments, name)}" for name in ("megabytes", "commits", "files")]
    for number in range(arguments.rounds):
        for part in ("floors", "lfs", "xet", "commits"):
            for checkout, result in zip(checkouts, results, strict=True):
                if part == "floors" and checkout is not HERE:
                    continue
                command = [sys.executable, __file__, "--part", part, "--checkout", str(checkout), *options]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                for key, value in json.loads(done.stdout).items():
                    result[key].append(value)
                print(f"round {number + 1}, {part}, {checkout.name}", file=sys.stderr)
    return results


def run_part(part: str, checkout: Path, sizes: Sizes) -> dict[str, float]:
    if part == "floors":
        return upload_floors.floors(sizes.megabytes)
    with tempfile.TemporaryDirectory(prefix="embedded-hub-") as folder:
        os.environ |= {
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_XET": str(int(part == "lfs")),
            "HF_HOME": folder + "/home",
            "NO_PROXY": "127.0.0.1",
        }
        with served(checkout, Path(folder) / "hub") as running:
            start = cpu_seconds(running.pid)
            if part == "commits":
                return {"start": start, "commit": commits(running, sizes.commits), "tree": tree(running, sizes.files)}
            return up_and_down(running, Path(folder), part, sizes.megabytes)


@contextlib.contextmanager
def served(checkout: Path, root: Path) -> Iterator[RunningHub]:
    """Serve a new folder with the code of a checkout."""
    command = [sys.executable, "-m", "composer_hub", "hub", "serve", "--data", str(root), "--format", "quiet"]
    env = os.environ | {"PYTHONPATH": str(checkout)}
    process = subprocess.Popen(command, cwd=checkout, env=env, stdout=subprocess.DEVNULL)
    try:
        while (running := find_running(root)) is None:
            if process.poll() is not None:
                raise SystemExit(f"The server of {checkout} did not start.")
            time.sleep(0.05)
        yield running
    finally:
        process.terminate()
        process.wait()


def up_and_down(running: RunningHub, folder: Path, part: str, megabytes: int) -> dict[str, float]:
    from huggingface_hub import HfApi

    api = HfApi(endpoint=running.endpoint, token=running.token)
    api.create_repo("me/bench")
    path = folder / "file.bin"
    with open(path, "wb") as file:
        file.writelines(os.urandom(MB) for _ in range(megabytes))
    data = path.read_bytes()
    sha256 = own_cpu(functools.partial(hashlib.sha256, data))
    del data
    before = status(running.pid, "VmRSS")
    up = server_cpu(
        running, lambda: api.upload_file(path_or_fileobj=str(path), path_in_repo="file.bin", repo_id="me/bench")
    )
    down = server_cpu(running, lambda: api.hf_hub_download("me/bench", "file.bin", local_dir=folder / "down"))
    assert digest(folder / "down" / "file.bin") == digest(path)
    disk = sum(one.stat().st_blocks * 512 for one in running.root.rglob("*") if one.is_file())
    figures = {
        "up": 1000 * up / megabytes,
        "down": 1000 * down / megabytes,
        "disk": disk / MB / megabytes,
        "memory": (status(running.pid, "VmHWM") - before) / MB,
    }
    shown = {f"{part}_{key}": value for key, value in figures.items()}
    if part == "lfs":
        shown |= {"sha256": 1000 * sha256 / megabytes, "lfs_up_ratio": up / sha256}
    return shown


def commits(running: RunningHub, number: int) -> float:
    """Commit by the two requests of a client on one kept connection; return the milliseconds of each."""
    ask = asker(running)
    ask("POST", "/api/repos/create", json.dumps({"name": "small"}).encode())

    def commit_all() -> None:
        for i in range(number):
            file = {"path": f"f{i}.txt", "size": 1, "sample": ""}
            ask("POST", "/api/models/me/small/preupload/main", json.dumps({"files": [file]}).encode())
            added = {"path": f"f{i}.txt", "encoding": "utf-8", "content": str(i)}
            lines = {"key": "header", "value": {"summary": "small"}}, {"key": "file", "value": added}
            ask("POST", "/api/models/me/small/commit/main", "\n".join(map(json.dumps, lines)).encode())

    return 1000 * server_cpu(running, commit_all) / number


def tree(running: RunningHub, num_files: int) -> float:
    """List a tree with the last commit of each file, page by page as clients do; return the seconds."""
    from huggingface_hub import HfApi

    ask = asker(running)
    ask("POST", "/api/repos/create", json.dumps({"name": "many"}).encode())
    lines: list[dict[str, Any]] = [{"key": "header", "value": {"summary": "many"}}]
    for i in range(num_files):
        value = {"path": f"d{i % 50}/f{i}.txt", "encoding": "utf-8", "content": str(i)}
        lines.append({"key": "file", "value": value})
    ask("POST", "/api/models/me/many/commit/main", "\n".join(map(json.dumps, lines)).encode())
    api = HfApi(endpoint=running.endpoint, token=running.token)

    def list_all() -> None:
        assert len(list(api.list_repo_tree("me/many", recursive=True, expand=True))) >= num_files

    return server_cpu(running, list_all)


def asker(running: RunningHub) -> Callable[[str, str, bytes], None]:
    link = http.client.HTTPConnection(running.endpoint.removeprefix("http://"))
    headers = {"Authorization": f"Bearer {running.token}"}

    def ask(method: str, path: str, body: bytes) -> None:
        link.request(method, path, body, headers)
        answer = link.getresponse()
        answer.read()
        assert answer.status == 200, (answer.status, path)

    return ask


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def own_cpu(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return time.process_time() - before


def server_cpu(running: RunningHub, work: Callable[[], object]) -> float:
    before = cpu_seconds(running.pid)
    work()
    return cpu_seconds(running.pid) - before


def cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def status(pid: int, name: str) -> float:
    """Return a size in bytes of the memory of a process."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return 1024 * float(lines[name].split()[0])


if __name__ == "__main__":
    main()
