"""What a sandbox adds to one command, in the same run as no sandbox.

python -m benchmarks.sandbox [--runs 100]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from composer_hub import exits
from composer_hub.environments.sandbox import KINDS, open_sandbox


def median_ms(run: Callable[..., object], argv: list[str], runs: int, **options: object) -> tuple[float, float]:
    """Return wall and CPU milliseconds per command; CPU hardly depends on what else the machine does."""
    times, before = [], os.times()
    for _ in range(runs):
        start = time.perf_counter()
        run(argv, **options)
        times.append((time.perf_counter() - start) * 1000)
    cpu = sum(os.times()[:4]) - sum(before[:4])
    return statistics.median(times), cpu * 1000 / runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    commands = {"true": ["/bin/true"], "python -IS": ["python3", "-IS", "-c", "pass"]}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "work")
        root.mkdir()
        Path(folder).chmod(0o755)
        base = {name: median_ms(subprocess.run, argv, runs, capture_output=True) for name, argv in commands.items()}
        print(f"{'none':12}" + "".join(f" {name} {wall:6.1f} ms ({cpu:.1f} CPU)" for name, (wall, cpu) in base.items()))
        for kind in KINDS:
            try:
                sandbox = open_sandbox(kind)
            except exits.ComposerError as error:
                print(f"{kind:12} {error}")
                continue
            cells = []
            for name, argv in commands.items():
                wall, cpu = median_ms(sandbox.run, argv, runs, root=root)
                cells.append(f" {name} {wall:6.1f} ms (+{cpu - base[name][1]:.1f} CPU)")
            print(f"{kind:12}" + "".join(cells))


if __name__ == "__main__":
    main()
