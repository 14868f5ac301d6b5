"""What shards cost: one ingest run in one process, in worker processes, and over shards, on the same sessions.

    python -m benchmarks.scale [--sessions 1000] [--kilobytes 100] [--workers 1 2 4] [--shards 64] [--kills 20]

Writes made-up sessions of random words (a tenth are copies, a third repeat a secret that one of them names), publishes
them once per way into a folder of its own, and compares the published files with those of one process. Every way runs
in a process of its own, so that peaks do not mix. With `--kills`, a random worker is killed that many times. Times
depend on what else the machine does; processor seconds depend on it less.
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
        (shards.in_processes(workers) if way == "shards" else shards.here)(staging, numbers, kill)
        seconds[staging.plan.work.rpartition(":")[2]] = time.perf_counter() - began
        manifests.extend(staging.manifest(number) for number in sorted(staging.done()))

    sharding = shards.Sharding(folder / "staging", watched, num_shards) if "shard" in way else None
    started = time.perf_counter()
    options = ingest.Options(workers=workers, scan=False, viewer=False)
    runs = 1
    while True:
        try:
            run = ingest.ingest([sessions], options, destination=where, repo="me/traces", sharding=sharding)
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


def measured(*args: Any) -> dict[str, Any]:
    """Run one way in a process of its own."""
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
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-", dir=asked.folder) as scratch:
        root = Path(scratch)
        words = int(1000 * asked.kilobytes / BYTES_PER_WORD / (2 * TURNS + 1))
        write_sessions(root / "sessions", asked.sessions, num_turns=TURNS, filler=words)
        num_bytes = sum(path.stat().st_size for path in (root / "sessions").rglob("*.jsonl"))
        print(f"{asked.sessions:,} sessions, {num_bytes / 1e6:,.0f} MB, {os.cpu_count()} cores", flush=True)
        ways = [("one process", 1, 0, 0)]
        ways += [("process pool", n, 0, 0) for n in asked.workers if n > 1]
        ways += [("shards in one process", 1, n, 0) for n in asked.shards]
        ways += [("shards", n, many, 0) for n in asked.workers for many in asked.shards]
        ways += [("shards", 2, asked.shards[0], asked.kills)] if asked.kills else []
        expected = ""
        for number, (way, workers, num_shards, kills) in enumerate(ways):
            folder = root / str(number)
            found = measured(root / "sessions", folder, way, workers, num_shards, kills)
            shutil.rmtree(folder)
            expected = expected or found["digest"]
            same = "same bytes" if found.pop("digest") == expected else "OTHER BYTES"
            facts = ", ".join(f"{name} {value:,.1f}" for name, value in found.items())
            print(f"{way}, {workers} workers, {num_shards} shards: {facts}, {same}", flush=True)


if __name__ == "__main__":
    main()
