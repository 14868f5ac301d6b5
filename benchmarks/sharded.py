"""Sharded weights against whole ones: two steps of FSDP2 or ZeRO-3 on two CPU processes, and in one process.

    python -m benchmarks.sharded [--method fsdp2|zero3] [--cases "full tied ema" …]

Every case trains in one process with whole weights first. The largest difference of any parameter is shown beside the
largest change that training made. Ends with 1 if a difference is above 1e-6. ZeRO-3 needs DeepSpeed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 1e-6
RANKS = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=["fsdp2", "zero3"], default="fsdp2")
    parser.add_argument("--cases", nargs="*")
    args = parser.parse_args()
    os.environ.update({"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"})

    from tests.train.sharded_ranks import FSDP2, MATRIX, ZERO3, ZERO3_MATRIX, reference, small_model

    world = small_model()
    cases = args.cases or list(MATRIX if args.method == "fsdp2" else ZERO3_MATRIX)
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.redirect_stdout(sys.stderr):  # the logs of the trainer
            for case in cases:
                reference(world, case, Path(folder))
        script = [str(Path(__file__).parents[1] / "tests/train/sharded_ranks.py"), folder, *cases]
        special = ["bits", "generated"] if args.method == "fsdp2" else []
        environment = os.environ | (FSDP2 if args.method == "fsdp2" else ZERO3)
        done = subprocess.run([*RANKS, *script, *special], env=environment, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
    print("| case | worst difference | moved | sharded |\n|---|---|---|---|")
    for row in rows:
        share = f"{row['num_sharded']} of {row['num_parameters']}" if "num_sharded" in row else ""
        moved = f"{row['moved']:.1e}" if "moved" in row else ""
        print(f"| {row['case']} | {row.get('worst', 0.0):.1e} | {moved} | {share} |")
    worst = max(row.get("worst", 0.0) for row in rows)
    sys.exit(done.returncode or int(worst > LIMIT))


if __name__ == "__main__":
    main()
