"""Redact sessions in one process: MB of session file per CPU second, and a digest of the result.

In: session files. Out: one line. To compare two checkouts, run both in turn on the same files; equal results have equal
digests:

    python -m benchmarks.redaction_speed SESSION.jsonl …
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path

from composer_hub import ingest
from composer_hub.records import to_row
from composer_hub.redact import Redactor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path, nargs="+")
    options = parser.parse_args()
    run = ingest.ingest(options.sessions, ingest.IngestOptions(redact=False, workers=1))
    megabytes = sum(path.stat().st_size for path in options.sessions) / 1e6
    redactor, digest, seconds = Redactor(b"s" * 32), hashlib.sha256(), 0.0
    for trace in run.traces():
        start = time.process_time()
        clean, secrets = redactor.trace_and_secrets(trace)
        seconds += time.process_time() - start
        # The digest of the rules differs between checkouts.
        row = {**to_row(clean), "redaction": "", "secrets": list(secrets.items())}
        digest.update(json.dumps(row, default=str, sort_keys=True).encode())
    print(f"{megabytes:.1f} MB, {seconds:.2f} CPU-s, {megabytes / seconds:.2f} MB/CPU-s, {digest.hexdigest()[:12]}")


if __name__ == "__main__":
    main()
