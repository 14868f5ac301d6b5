"""The program inside a job of `fan_out.py`: run some shards and put each result into the bucket as one batch."""

from __future__ import annotations

import base64
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from composer_hub.shards import Staging
from composer_hub.shards.run import attempt


def open_plan(mounted: Path, folder: Path, private: bytes) -> Staging:
    """Copy a plan from its mount to a folder where shards can run."""
    for name in ("results", "running", "failed"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("inputs", "given"):
        if (mounted / name).is_dir():
            shutil.copytree(mounted / name, folder / name, dirs_exist_ok=True)
    shutil.copy(mounted / "plan.json", folder / "plan.json")
    (folder / "private").write_bytes(private)
    return Staging.open(folder)


def run(staging: Staging, numbers: Sequence[int], api: HfApi, bucket: str) -> None:
    """Run shards, one after the other; a failed one leaves a note in the bucket, and the next one runs."""
    for number in numbers:
        name = f"{number:05d}"
        if attempt(staging, number):
            add: list[Any] = [(path, f"results/{name}/{path.name}") for path in staging.result(number).iterdir()]
        else:
            add = [(staging.folder / "failed" / f"{name}.json", f"failed/{name}.json")]
        api.batch_bucket_files(bucket, add=add)
        print(f"shard {number}: {'done' if add[0][1].startswith('results') else 'failed'}", flush=True)
        shutil.rmtree(staging.result(number), ignore_errors=True)


def main() -> int:
    """Run the shards of the command line as the environment describes the plan."""
    private = base64.b64decode(os.environ["COMPOSER_SHARDS_PRIVATE"])
    staging = open_plan(Path(os.environ["COMPOSER_SHARDS_PLAN"]), Path("plan").absolute(), private)
    run(staging, [int(word) for word in sys.argv[1:]], HfApi(), os.environ["COMPOSER_SHARDS_BUCKET"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
