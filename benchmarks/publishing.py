"""Bytes of a pair set whose prompts grow step by step: as `datasets` writes it, with zstd, and as it is published.

In: nothing. Out: a table of one run; every way writes the same rows with the same features.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
from datasets import Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from composer_hub.hub import Table
from composer_hub.hub.tables import build
from composer_hub.records import Message, Pair, features_of, to_row


def pairs(num_traces: int, num_steps: int, words: int) -> Iterator[Pair]:
    """Yield pairs of traces whose prompts grow by two messages a step."""
    source = random.Random(0)
    vocabulary = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 9))) for _ in range(5_000)]

    def message(role: str) -> Message:
        return Message(role, " ".join(source.choices(vocabulary, k=words)))

    for trace in range(num_traces):
        history = [message("system"), message("user")]
        for step in range(num_steps):
            history += [message("assistant"), message("tool")]
            answer = (message("assistant"),)
            name = f"{trace}-{step}"
            yield Pair(
                name, f"trace{trace}", name, step, num_steps, tuple(history), answer, answer, (),
                "L2", 2, 3, ("a", "b"), (), ("x",), "a", "student", "y",
            )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=10)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--words", type=int, default=500)
    options = parser.parse_args()
    rows = [to_row(pair) for pair in pairs(options.traces, options.steps, options.words)]
    features = features_of(Pair)
    table = Dataset.from_list(rows, features=features)
    text = sum(len(message["content"]) for row in rows for message in row["prompt"])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)

        def ours() -> Path:
            built = build(Table("default", rows, features, "pair_id", ("trace_id", "index")), folder / "ours")
            return built.files[built.splits[0].files[0]]

        def stock() -> Path:
            table.to_parquet(folder / "stock.parquet")
            return folder / "stock.parquet"

        def zstd() -> Path:
            pq.write_table(table.data.table, folder / "zstd.parquet", compression="zstd")
            return folder / "zstd.parquet"

        ways: dict[str, Callable[[], Path]] = {
            "datasets' to_parquet": stock,
            "pyarrow with zstd": zstd,
            "composer_hub": ours,
        }
        print(f"{len(rows):,} pairs, {text / 1e6:.1f} MB of prompt text")
        print(f"{'way':<22}{'MB':>8}{'of text':>10}{'CPU s':>8}")
        for name, write in ways.items():
            start = time.process_time()
            size = write().stat().st_size
            print(f"{name:<22}{size / 1e6:>8.2f}{size / text:>10.4f}{time.process_time() - start:>8.2f}")


if __name__ == "__main__":
    main()
