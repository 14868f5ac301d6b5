"""Measure the memory of each rank that trains on pairs: their tokens in lists, and in a mapped file.

    python -m benchmarks.train_memory [--pairs 30000] [--ranks 2]

All ranks run at once on one machine with the same synthetic pairs of 2,000 tokens. They load the pairs, then draw a
hundred batches. The way `lists` keeps all tokens in each rank, as runs once did; `mapped` is what runs do now. Private
memory is what a rank alone holds; mapped pages are shared and may be dropped. Prints Markdown.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time
from array import array
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

from composer_hub.train.mapped import PAIRS, MappedRows, pair_row, read_pair, write
from composer_hub.train.pair_loader import PairLoader, TokenPair


def pairs(count: int) -> Iterator[TokenPair]:
    rng = random.Random(0)
    for _ in range(count):
        yield TokenPair(*(array("i", rng.choices(range(150_000), k=size)) for size in (1_600, 200, 200)), -1.0, -2.0)


def memory() -> dict[str, float]:
    """Return what /proc knows about this process, in MB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) / 1024 for name, rest in (line.split(":") for line in lines)}


def rank(way: str, number: int, ranks: int, count: int, path: Path, together: Barrier) -> None:
    before, begun = memory(), time.process_time()
    if way == "lists":
        rows = list(pairs(count))
    else:
        if number == 0:
            write(path, PAIRS, (pair_row(str(place), pair) for place, pair in enumerate(pairs(count))))
        together.wait()
        rows = MappedRows.open(path, read_pair(array("d", bytes(16 * count))))
    loaded = time.process_time() - begun
    loader = PairLoader(rows, 8, rank=number, num_ranks=ranks)
    begun = time.process_time()
    for _ in range(100):
        loader.take()
    drawn, after = time.process_time() - begun, memory()
    together.wait()  # so that all ranks are measured while all are there
    private, pss = ((after[name] - before[name]) for name in ("Private_Dirty", "Pss"))
    print(f"| {way} | {number} | {private:,.0f} | {pss:,.0f} | {loaded:.1f} | {10 * drawn:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=30_000)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    print(f"{options.pairs:,} pairs, {options.ranks} ranks\n")
    print("| way | rank | private memory, MB | with its share of mapped pages, MB | loading, CPU s | a batch, CPU ms |")
    print("|---|---|---|---|---|---|", flush=True)
    context = multiprocessing.get_context("spawn")
    for way in ("lists", "mapped"):
        with tempfile.TemporaryDirectory() as folder:
            together = context.Barrier(options.ranks)
            args = [
                (way, one, options.ranks, options.pairs, Path(folder) / "tokens", together)
                for one in range(options.ranks)
            ]
            ranks = [context.Process(target=rank, args=one) for one in args]
            for process in ranks:
                process.start()
            for process in ranks:
                process.join()


if __name__ == "__main__":
    main()
