"""How long a report over a gigabyte of sessions takes, and how much memory.

    python -m benchmarks.report [--megabytes 1000] [--like SESSION.jsonl ...] [--workers 2] [--folder SESSIONS]

Repeats Claude Code sessions under new ids into files of 10 MB and one of 100 MB, makes the whole report from them in a
separate process, and prints wall time, processor time and peak memory. `--folder` reads existing sessions instead.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import orjson

from benchmarks.ingest import write_session
from composer_hub import report
from composer_hub.ingest.files import find_files, size_of
from composer_hub.ingest.report import FileReport

DEMO = Path(report.__file__).parents[1] / "demo" / "sessions"


def write_sessions(folder: Path, like: list[Path], megabytes: int) -> None:
    """Write sessions of that size in all: a tenth of it in one file, the rest in files of 10 MB."""
    records = [[orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()] for path in like]
    write_session(folder / "huge.jsonl", records, megabytes / 10)
    for number in range(max(1, megabytes * 9 // 100)):
        write_session(folder / f"s{number:03}.jsonl", records, min(10, megabytes * 0.9))


def measured(folder: Path, workers: int) -> None:
    """Make one report and print what it took."""
    start = time.perf_counter()
    made = report.report([folder], report.ReportOptions(workers=workers))
    read = time.perf_counter() - start
    page = made.write(folder / "page.html")
    wall = time.perf_counter() - start
    own, workers_used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in (own, workers_used))
    numbers = made.numbers
    print(f"{numbers.collection.num_files:,} files, {numbers.collection.num_bytes / 1e6:,.0f} MB, {workers} workers")
    print(f"{numbers.num_steps:,} messages, {numbers.num_calls:,} calls, {len(numbers.sites):,} failures")
    print(f"wall {wall:.1f} s, of which page {wall - read:.1f} s; processor {cpu:.1f} s")
    print(f"{numbers.collection.num_bytes / 1e6 / cpu:.1f} MB per processor second")
    print(f"peak memory {own.ru_maxrss / 1000:.0f} MB, of a worker {workers_used.ru_maxrss / 1000:.0f} MB")
    print(f"page {size_of(page) / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--like", type=Path, nargs="*", default=sorted(DEMO.rglob("*.jsonl")))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="composer-report-") as scratch:
        folder = options.folder or Path(scratch)
        if not options.folder:
            write_sessions(folder, options.like, options.megabytes)
        find_files([folder], FileReport())  # stat once, so that a cold disk is not measured
        process = multiprocessing.get_context("spawn").Process(target=measured, args=(folder, options.workers))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
