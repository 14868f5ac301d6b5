"""What a sandbox adds to one command, in the same run as no sandbox, and what a pool over rollouts gains.

python -m benchmarks.sandbox [--runs 100]
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from composer_hub import exits
from composer_hub.environments.sandbox import KINDS, open_sandbox

CALL = ["python3", "-IS", "-c", "sum(range(5_000_000))"]  # about what a short test run costs


def costs(run: Callable[[list[str]], object], argv: list[str], runs: int) -> str:
    """Describe the least and the median wall time of a command, and its CPU time, which load hardly changes."""
    times, before = [], os.times()
    for _ in range(runs):
        start = time.perf_counter()
        run(argv)
        times.append((time.perf_counter() - start) * 1000)
    cpu = sum(os.times()[:4]) - sum(before[:4])
    return f"{min(times):6.1f} {statistics.median(times):6.1f} {cpu * 1000 / runs:5.1f}"


def rollouts_s(root: Path, num_rollouts: int, workers: int) -> float:
    """Return the seconds for one call of each rollout, one after another or in a pool."""
    boxes = [open_sandbox() for _ in range(num_rollouts)]
    trees = [root / str(number) for number in range(num_rollouts)]
    for tree in trees:
        tree.mkdir(exist_ok=True)
    begun = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda one: one[0].run(CALL, root=one[1]), zip(boxes, trees, strict=True)))
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rollouts", type=int, default=8)
    options = parser.parse_args()
    commands = {"true": ["/bin/true"], "python -IS": ["python3", "-IS", "-c", "pass"]}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "work")
        root.mkdir()
        Path(folder).chmod(0o755)
        rows: dict[str, Callable[[list[str]], object]] = {
            "none": functools.partial(subprocess.run, capture_output=True),
            "bwrap alone": lambda argv: subprocess.run(["bwrap", "--ro-bind", "/", "/", *argv], capture_output=True),
        }
        for kind in KINDS:
            try:
                rows[kind] = functools.partial(open_sandbox(kind).run, root=root)
            except exits.ComposerError as error:
                print(f"{kind:12} {error}")
        print("command: least and median wall ms, CPU ms")
        for name, run in rows.items():
            print(f"{name:12}" + "".join(f"  {one} {costs(run, argv, options.runs)}" for one, argv in commands.items()))
        serial, pooled = (min(rollouts_s(root, options.rollouts, workers) for _ in range(3)) for workers in (1, 2))
        print(f"a call of {options.rollouts} rollouts: {serial:.2f} s in turn, {pooled:.2f} s with two workers")


if __name__ == "__main__":
    main()
