"""What shards cost: one ingest run in one process, in worker processes, and over shards, on the same sessions.

    python -m benchmarks.scale [--sessions 1000] [--kilobytes 100] [--workers 1 2 4] [--shards 64] [--kills 20]
                               [--ways one pool here shards kills] [--json FILE] [--folder FOLDER]

Writes made-up sessions of random words (a tenth are copies, a third repeat a secret that one of them names), publishes
them once per way into a separate folder, and compares the published files with those of the first way:

    one      one process, without shards         here     shards, one after the other in this process
    pool     the worker processes of ingest      shards   shards in worker processes
    kills    shards in two worker processes, of which a random one is killed `--kills` times

Every way runs in a separate process, so that peaks do not mix. Its line is printed, and added to `--json`, as soon as
it has ended. Times depend on what else the machine does; processor seconds depend on it less.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from composer_hub import ingest, shards
from composer_hub.hub import PublishOptions, destination
from composer_hub.shards.run import peak_mb
from tests.shards.sessions import write_sessions

SALT = json.dumps({"format": "composer_hub redaction map 1", "salt": "ab" * 32}) + "\n"
BYTES_PER_WORD, TURNS = 6.7, 20
WAYS = ("one", "pool", "here", "shards", "kills")


def published(sessions: Path, folder: Path, way: str, workers: int, num_shards: int, kills: int) -> dict[str, Any]:
    """Ingest and publish in this process and return what it took."""
    os.environ["COMPOSER_HUB_STATE"] = str(folder / "state")
    (folder / "hub").mkdir(parents=True)
    where = destination(str(folder / "hub"))
    memory = ingest.memory_folder(where, "me/traces")
    memory.mkdir(parents=True)
    (memory / "redaction.jsonl").write_text(SALT)
    manifests: list[Any] = []
    seconds: dict[str, float] = {}
    killed: list[int] = []

    def watched(staging: shards.Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        chance = random.Random(workers)

        def kill() -> None:
            watch()
            alive = multiprocessing.active_children()
            if alive and len(killed) < kills and len(staging.done()) * kills >= len(killed) * len(numbers):
                victim = chance.choice(alive)
                killed.append(victim.pid or 0)
                victim.kill()

        began = time.perf_counter()
        (shards.here if way == "here" else shards.in_processes(workers))(staging, numbers, kill)
        seconds[staging.plan.work.rpartition(":")[2]] = time.perf_counter() - began
        manifests.extend(staging.manifest(number) for number in sorted(staging.done()))

    started = time.perf_counter()
    shown = Shown(started)
    sharding = shards.Sharding(folder / "staging", watched, num_shards, shown.shards) if num_shards else None
    options = ingest.IngestOptions(workers=workers, scan=False, viewer=False)
    runs = 1
    while True:
        try:
            run = ingest.ingest([sessions], options, destination=where, repo="me/traces", sharding=sharding,
                                on_file=shown.file)  # fmt: skip
            break
        except shards.ShardError:  # a shard was hit three times; the same command continues
            runs += 1
    read = time.perf_counter() - started
    version = run.publish(PublishOptions())
    took = time.perf_counter() - started
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    files = sorted(path for path in (folder / "hub" / "me").rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)).hexdigest()[:12]
    return {
        "seconds": took,
        "read": read,
        "publish": took - read,
        **{f"{name} shards": value for name, value in seconds.items()},
        "cpu": sum(one.ru_utime + one.ru_stime for one in usage),
        "peak MB": peak_mb(),
        "worker MB": max([one.peak_mb for one in manifests], default=usage[1].ru_maxrss * 1024 / 1e6),
        "killed": len(killed),
        "runs": runs,
        "rows": sum(counts["total"] for counts in version.rows.values()),
        "digest": digest,
    }


class Shown:
    """Progress on stderr, at each tenth."""

    def __init__(self, started: float) -> None:
        self.started, self.last, self.num_files = started, "", 0

    def file(self, path: str, num_files: int) -> None:
        self.num_files += 1
        self.show(f"{10 * (10 * self.num_files // num_files)} % of the files are read")

    def shards(self, progress: shards.ShardProgress) -> None:
        self.show(f"{10 * (10 * progress.num_done // progress.num_shards)} % of {progress.num_shards} shards are done")

    def show(self, text: str) -> None:
        if text != self.last:
            print(f"  {time.perf_counter() - self.started:7.1f} s: {text}", file=sys.stderr, flush=True)
            self.last = text


def measured(*args: Any) -> dict[str, Any]:
    """Run one way in a separate process."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_send, args=(theirs, args))
    process.start()
    theirs.close()
    answer = ours.recv()
    process.join()
    return answer


def _send(pipe: Any, args: Any) -> None:
    pipe.send(published(*args))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--kilobytes", type=float, default=100)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--shards", type=int, nargs="*", default=[64])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--json", type=Path, help="File to which each way adds a line.")
    parser.add_argument("--folder", type=Path, help="Folder for everything that is written (default: that of tempfile)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-", dir=asked.folder) as scratch:
        root = Path(scratch)
        words = int(1000 * asked.kilobytes / BYTES_PER_WORD / (2 * TURNS + 1))
        write_sessions(root / "sessions", asked.sessions, num_turns=TURNS, filler=words)
        num_bytes = sum(path.stat().st_size for path in (root / "sessions").rglob("*.jsonl"))
        about = {"sessions": asked.sessions, "MB": round(num_bytes / 1e6), "cores": os.cpu_count()}
        print(f"{asked.sessions:,} sessions, {num_bytes / 1e6:,.0f} MB, {os.cpu_count()} cores", flush=True)
        expected = ""
        for way, workers, num_shards, kills in chosen(asked):
            found = measured(root / "sessions", root / "way", way, workers, num_shards, kills)
            shutil.rmtree(root / "way")
            expected = expected or found["digest"]
            found["same bytes"] = found["digest"] == expected
            if asked.json:
                with asked.json.open("a") as file:
                    line = {"way": way, "workers": workers, "shards": num_shards, **about, **found}
                    file.write(json.dumps(line) + "\n")
            same = "same bytes" if found.pop("same bytes") else "OTHER BYTES"
            facts = ", ".join(f"{name} {value:,.1f}" for name, value in found.items() if name != "digest")
            print(f"{way}, {workers} workers, {num_shards} shards: {facts}, {same}", flush=True)


def chosen(asked: argparse.Namespace) -> list[tuple[str, int, int, int]]:
    """Return way, workers, shards and kills of everything to measure, in order."""
    many, workers = asked.shards, asked.workers
    by_way = {
        "one": [("one", 1, 0, 0)],
        "pool": [("pool", n, 0, 0) for n in workers if n > 1],
        "here": [("here", 1, n, 0) for n in many],
        "shards": [("shards", n, number, 0) for n in workers for number in many],
        "kills": [("kills", 2, many[0], asked.kills)],
    }
    return [one for way in WAYS if way in asked.ways for one in by_way[way]]


if __name__ == "__main__":
    main()
