"""How fast sessions are read, beside plain `orjson.loads` of the same lines in the same run.

    python benchmarks/ingest.py [--megabytes 100] [--like SESSION.jsonl ...] [--workers 2]

Writes one big session and a folder of smaller ones, made by repeating Claude Code sessions under new ids, and prints
for each way to read them MB/s, MB a processor second and peak memory. Every way runs in a separate process, so that
peaks do not mix.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from composer_hub.ingest.documents import json_lines
from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.prepare import Preparation
from composer_hub.ingest.readers import claude_code
from composer_hub.ingest.reading import Reading
from composer_hub.ingest.report import FileReport

FIXTURES = Path(__file__).resolve().parents[1] / "tests/fixtures/harnesses/claude_code"


def repeated(records: list[dict[str, Any]], number: int, parent: str | None) -> tuple[list[bytes], str | None]:
    """Return a session's lines under new ids, hanging on the last record of the repetition before."""
    names = {record[key] for record in records for key in ("uuid",) if key in record}
    messages = [record["message"] for record in records if isinstance(record.get("message"), dict)]
    names |= {message["id"] for message in messages if "id" in message}
    text = "\n".join(orjson.dumps(record).decode() for record in records)
    text = re.sub(r'"([\w-]{4,80})"', lambda found: f'"{found[1]}.{number}"' if found[1] in names else found[0], text)
    text = text.replace('"toolu_', f'"toolu_{number}_')
    lines = []
    last = parent
    for line in text.split("\n"):
        record = orjson.loads(line)
        if "uuid" in record:
            record["parentUuid"] = record.get("parentUuid") or parent
            last = record["uuid"]
        lines.append(orjson.dumps(record) + b"\n")
    return lines, last


def write_session(path: Path, like: list[list[dict[str, Any]]], megabytes: float) -> None:
    """Write a session of about that size."""
    parent, size, number = None, 0, 0
    with path.open("wb") as file:
        while size < megabytes * 1e6:
            lines, parent = repeated(like[number % len(like)], f"{path.stem}-{number}", parent)
            file.writelines(lines)
            size += sum(map(len, lines))
            number += 1


def parse_only(paths: list[Path], workers: int) -> int:
    return sum(isinstance(orjson.loads(line), dict) for path in paths for line in path.open("rb"))


def reader_only(paths: list[Path], workers: int) -> int:
    return sum(len(session.trace.steps) for path in paths for session in claude_code.read(path, FileReport()))


def pipeline(paths: list[Path], workers: int) -> int:
    return sum(len(session.trace.steps) for session in Reading(paths, ReadOptions(workers=workers)))


def with_errors_and_hints(paths: list[Path], workers: int) -> int:
    options = ReadOptions(workers=workers, transform=Preparation(None))
    return sum(len(session.trace.steps) for session in Reading(paths, options))


def measured(way: Callable[[list[Path], int], int], paths: list[Path], workers: int) -> dict[str, Any]:
    """Run one way to read in a new process and return its numbers."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure, way, paths, workers).result()


def _measure(way: Callable[[list[Path], int], int], paths: list[Path], workers: int) -> dict[str, Any]:
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    start, cpu = time.perf_counter(), _cpu_seconds()
    count = way(paths, workers)
    seconds, cpu = time.perf_counter() - start, _cpu_seconds() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    return {
        "mb_s": round(megabytes / seconds, 1),
        "mb_cpu_s": round(megabytes / cpu, 1),
        "rss_mb": round(peak),
        "worker_rss_mb": round(child),
        "count": count,
    }


def _cpu_seconds() -> float:
    """Return the processor time of this process and its ended children, which other load does not blur."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--like", type=Path, nargs="*", default=sorted(FIXTURES.glob("*.jsonl")))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    like = [[record for _, record in json_lines(path, FileReport())] for path in args.like]
    with tempfile.TemporaryDirectory() as folder:
        big = Path(folder, "big.jsonl")
        write_session(big, like, args.megabytes)
        small = [Path(folder, f"small{n}.jsonl") for n in range(8)]
        for path in small:
            write_session(path, like, args.megabytes / 8)
        ways: list[tuple[str, Any, list[Path], int]] = [
            ("orjson.loads a line, one file", parse_only, [big], 1),
            ("reader, one file", reader_only, [big], 1),
            ("pipeline in this process, one file", pipeline, [big], 1),
            ("orjson.loads a line, eight files", parse_only, small, 1),
            ("pipeline in this process, eight files", pipeline, small, 1),
            (f"pipeline with {args.workers} workers, eight files", pipeline, small, args.workers),
            (
                f"the same with error sites and hints, {args.workers} workers",
                with_errors_and_hints,
                small,
                args.workers,
            ),
        ]
        for name, way, paths, workers in ways:
            print(json.dumps({"way": name, **measured(way, paths, workers)}), flush=True)


if __name__ == "__main__":
    main()
