"""Publish sessions, publish them again unchanged, and redact them: CPU seconds and memory of each, in its own process.

In: session files. Out: one JSON line per way. To compare two checkouts, run both in turn on the same files:

    python benchmarks/ingest_again.py SESSION.jsonl … [--megabytes 125]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.ingest import write_session
from composer_hub import ingest
from composer_hub.hub import NothingToPublish, PublishOptions, destination
from composer_hub.ingest.documents import json_lines
from composer_hub.ingest.report import FileReport


def publish(files: list[Path], folder: Path, redact: bool) -> dict[str, Any]:
    """Ingest and publish into a folder; return CPU seconds and peak memory of this process."""
    os.environ["COMPOSER_HUB_STATE"] = str(folder / "state")
    start = time.process_time()
    options = ingest.IngestOptions(redact=redact, workers=1, scan=False)
    run = ingest.ingest(files, options, destination=destination(str(folder / "hub")), repo="me/traces")
    new = True
    try:
        run.publish(PublishOptions())
    except NothingToPublish:
        new = False
    cpu = time.process_time() - start
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    return {"mb": round(megabytes, 1), "new": new, "cpu_s": round(cpu, 2), "mb_cpu_s": round(megabytes / cpu, 1),
            "rss_mb": round(rss)}  # fmt: skip


def apart(files: list[Path], folder: Path, redact: bool) -> dict[str, Any]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(publish, files, folder, redact).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path, nargs="+")
    parser.add_argument("--megabytes", type=float, default=0, help="Also publish one session of this size.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.megabytes:
            big = folder / "big.jsonl"
            like = [[record for _, record in json_lines(path, FileReport())] for path in options.sessions[:12]]
            write_session(big, like, options.megabytes)
            print(
                json.dumps({"way": "one session, not redacted"} | apart([big], folder / "big", redact=False)),
                flush=True,
            )
        print(
            json.dumps({"way": "all files, redacted"} | apart(options.sessions, folder / "all", redact=True)),
            flush=True,
        )
        print(json.dumps({"way": "all files again"} | apart(options.sessions, folder / "all", redact=True)), flush=True)


if __name__ == "__main__":
    main()
