"""A federation in the tiny world against one worker with all data, over seeds, and workers that are killed.

    composer-hub run --fresh -- python -m benchmarks.federation gain OUT.jsonl --seeds 51 52 53 54 55
    python -m benchmarks.federation kills --kills 20

Each worker is a process with the preset `tiny`, an adapter, and half of the tasks; one line of JSON per run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch reads it

from composer_hub.hub import destination
from composer_hub.train.apart.status import read_status
from composer_hub.train.evals import measured
from composer_hub.train.run.main import quieten, run
from composer_hub.train.run.options import parse_options

BATCH = 32
COMMON = (
    "--preflight false --use_peft true --lora_r 8 --lora_alpha 16 "
    "--lora_target_modules all-linear --learning_rate 3e-3 --num_tasks 120 --measure_every 0 --logging_steps 4"
)


def halves(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return the tasks of one worker: a half that the other does not have; without a worker, those of both."""
    from composer_hub.environments.desk import tasks

    half = os.environ.get("HALF", "")
    rows = [row for row in tasks(8 * count, seed=seed // 10) if not half or row["a"] % 2 == int(half)]
    return rows[:count] if half else rows[: 2 * count]


def started(folder: Path, seed: int, steps: int, batch: int, half: str, *more: str) -> Any:
    """Start a run in a process that has all libraries already."""
    words = ["--config", "tiny", *COMMON.split(), "--seed", str(seed), "--output_dir", str(folder)]
    words += ["--max_steps", str(steps), "--save_steps", str(steps)]
    words += ["--tasks", "benchmarks.federation:halves", "--per_device_train_batch_size", str(batch), *more]
    process = multiprocessing.get_context("fork").Process(target=_trained, args=(words, half, f"{folder}.log"))
    process.start()
    return process


def _trained(words: list[str], half: str, log: str) -> None:
    os.environ["HALF"] = half
    with open(log, "w", buffering=1) as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        run(parse_options(words))


def rates(folder: Path) -> list[float]:
    """Return pass@1 of a run, before and after it."""
    (checkpoint,) = folder.glob("checkpoint-*")
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    return [rate.value for _, rate in measured(history)]


def gain(
    out: Path, seeds: list[int], outer: list[str], steps: int, rounds: int, samples: int, with_alone: bool
) -> None:
    quieten()
    where = destination("local")
    for seed in seeds:
        with tempfile.TemporaryDirectory() as name:
            folder, repo = Path(name), f"me/federation-{seed}-{int(time.time())}"
            attempts = ["--num_eval_samples", str(samples)]
            meeting = ["--federation", repo, "--workers", "2", "--rounds", str(rounds), *attempts]
            meeting += ["--outer_lr", outer[0], "--outer_momentum", outer[1]]
            alone = [started(folder / "alone", 10 * seed, steps, 2 * BATCH, "", *attempts)] if with_alone else []
            workers = [
                started(folder / who, 10 * seed + number, steps, BATCH, str(number), *meeting, "--worker", who)
                for number, who in enumerate(("ada", "bob"))
            ]
            for process in (*alone, *workers):
                process.join()
            if failed := [
                who for who in (*["alone"] * with_alone, "ada", "bob") if not (folder / who / "final").is_dir()
            ]:
                raise SystemExit((folder / f"{failed[0]}.log").read_text()[-3000:])
            status = read_status(where, repo)
            row = {
                "seed": seed,
                "outer": outer,
                "steps": steps,
                "attempts": 40 * samples,
                "alone": rates(folder / "alone") if with_alone else None,
                "federation": {who: rates(folder / who) for who in ("ada", "bob")},
                "digests": sorted({str(one["digest"])[:12] for one in status.results.values()}),
                "bytes": status.num_bytes,
                "num_rounds": len(status.closed),
            }
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def kills(num_kills: int) -> None:
    from composer_hub.local_hub.server import start_server
    from tests.train.test_federation import killed

    with tempfile.TemporaryDirectory() as name, start_server(Path(name) / "hub") as server:
        begun = time.monotonic()
        ends, count = killed(server.env, "me/killed", Path(name), num_kills=num_kills, num_rounds=3 * num_kills)
        print(json.dumps({"kills": count, "digests": sorted(set(ends)), "seconds": round(time.monotonic() - begun)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=("gain", "kills"))
    parser.add_argument("out", nargs="?", type=Path, default=Path("federation.jsonl"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[51, 52, 53, 54, 55])
    parser.add_argument("--outer", nargs=2, default=["1", "0"], metavar=("LR", "MOMENTUM"))
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--samples", type=int, default=2, help="attempts at each of the 40 held-out tasks")
    parser.add_argument("--without-alone", action="store_true", help="leave out the worker with all data")
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    if options.what == "gain":
        gain(
            options.out,
            options.seeds,
            options.outer,
            options.steps,
            options.rounds,
            options.samples,
            with_alone=not options.without_alone,
        )
    else:
        kills(options.kills)


if __name__ == "__main__":
    main()
