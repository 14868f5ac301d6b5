"""Two ranks that exchange every few steps against one process, in the tiny world, over seeds.

    python -m benchmarks.local_sgd OUT.jsonl --seeds 71 72 73 74 75
    python -m benchmarks.local_sgd OUT.jsonl --table

Every run makes the same number of rollouts in the same number of steps; a rank makes half of them. One line of JSON
per run, so several processes may write to one file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import socket
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads it

from benchmarks.federation import rates
from composer_hub.train.run.main import quieten, run
from composer_hub.train.run.options import parse_options

STEPS, ROLLOUTS = 16, 64
ONE = "one process"
ARMS = {  # exchange every n-th step, outer rate, outer momentum
    ONE: (),
    "H = 2, .7 / .9": (2, 0.7, 0.9),
    "H = 4, .7 / .9": (4, 0.7, 0.9),
    "H = 8, .7 / .9": (8, 0.7, 0.9),
    "H = 4, 1 / 0": (4, 1.0, 0.0),
    "H = 8, 1 / 0": (8, 1.0, 0.0),
}


def words_of(seed: int, arm: str, folder: Path) -> list[str]:
    """Return the options of one run."""
    num_ranks = 2 if ARMS[arm] else 1
    options = {
        "seed": seed,
        "output_dir": folder,
        "to": folder.parent / "hub",
        "max_steps": STEPS,
        "save_steps": STEPS,
        "per_device_train_batch_size": ROLLOUTS // num_ranks,
        "preflight": "false",
        "measure_every": 0,
    }
    if ARMS[arm]:
        options |= {"ddp_backend": "gloo"} | dict(
            zip(("sync_every", "outer_lr", "outer_momentum"), ARMS[arm], strict=True)
        )
    return ["--config", "tiny", *(str(word) for name, value in options.items() for word in (f"--{name}", value))]


def trained(words: list[str], rank: int, num_ranks: int, port: int, log: Path) -> None:
    if num_ranks > 1:
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": num_ranks}
        os.environ.update({name: str(value) for name, value in place.items()})
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    with open(log, "w", buffering=1) as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        run(parse_options(words))


def one_run(seed: int, arm: str) -> dict[str, Any]:
    """Train in processes that have all libraries already, and return what was measured."""
    with tempfile.TemporaryDirectory() as name:
        folder, num_ranks = Path(name) / "run", 2 if ARMS[arm] else 1
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        make = multiprocessing.get_context("fork").Process
        logs = [Path(name) / f"{rank}.log" for rank in range(num_ranks)]
        words = words_of(seed, arm, folder)
        ranks = [make(target=trained, args=(words, rank, num_ranks, port, log)) for rank, log in enumerate(logs)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise SystemExit("\n".join(log.read_text()[-3000:] for log in logs))
        before, *_, after = rates(folder)
        (checkpoint,) = folder.glob("checkpoint-*")
        history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    exchanges = [line["outer/bytes"] for line in history if line.get("outer/bytes")]
    spreads = [line["outer/spread"] for line in history if line.get("outer/bytes")]
    return {
        "seed": seed,
        "arm": arm,
        "before": before,
        "after": after,
        "rewards": [round(line["reward"], 3) for line in history if "reward" in line],
        "exchanges": len(exchanges),
        "bytes": sum(exchanges),
        "spread": max(spreads, default=0.0),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the runs as a table of Markdown."""
    found = {(row["arm"], row["seed"]): row for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    lines = [f"| seed | {' | '.join(map(str, seeds))} | mean | exchanges | MB per rank |"]
    lines += ["|---|" + "---:|" * (len(seeds) + 3)]
    for arm in ARMS:
        own = [found[arm, seed] for seed in seeds if (arm, seed) in found]
        if len(own) == len(seeds):
            shown = [f"{row['after']:.3f}".removeprefix("0") for row in own]
            mean = f"{fmean(row['after'] for row in own):.3f}".removeprefix("0")
            sent = f"{own[0]['exchanges']} | {own[0]['bytes'] / 1e6:.1f}" if ARMS[arm] else "- | -"
            lines += [f"| {arm} | {' | '.join(shown)} | {mean} | {sent} |"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[71, 72, 73, 74, 75])
    parser.add_argument("--table", action="store_true", help="print what OUT has")
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for line in options.out.read_text().splitlines()]))
        return
    quieten()
    for seed in options.seeds:
        for arm in ARMS:
            row = json.dumps(one_run(seed, arm))
            with options.out.open("a") as file:
                file.write(row + "\n")
            print(row, flush=True)


if __name__ == "__main__":
    main()
