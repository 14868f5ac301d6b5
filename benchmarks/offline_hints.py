"""Does a student learn from its own published rollouts alone? The tiny world, before and after offline hints.

    python -m benchmarks.offline_hints FOLDER [--seeds 3]

For each seed: 256 rollouts of the starting model are published with their hints, a run without environment learns from
them, and 256 rollouts of other tasks are scored. Nothing is learned while rollouts are made (learning rate 0).
"""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path
from typing import Any

from composer_hub.train.run.export import read_rollouts
from composer_hub.train.run.main import run
from composer_hub.train.run.options import parse

COMMON = (
    "--use_cpu true --bf16 false --gradient_checkpointing false --logging_steps 10 --report_to none "
    "--disable_tqdm true --license apache-2.0 --save_strategy no --bands false"
)
# A weight of almost nothing, so that sites and hints are found and exported.
ROLLOUTS = (
    "--environment desk --num_generations 8 --per_device_train_batch_size 32 --max_completion_length 96 "
    "--max_tool_calling_iterations 3 --num_tasks 64 --max_steps 8 --learning_rate 0 --alpha_sdpo 1e-9"
)
OFFLINE = "--hint_source traces --alpha_sdpo 1.0 --max_steps 40 --trace_batch_size 8 --learning_rate 3e-4"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    for seed in range(1, args.seeds + 1):
        print(json.dumps({"seed": seed, **compare(args.folder / str(seed), seed)}), flush=True)


def compare(folder: Path, seed: int) -> dict[str, Any]:
    """Return the scores of the starting model and of the one that learned from its rollouts."""
    train(folder, "before", f"{ROLLOUTS} --seed {seed} --model_name_or_path small --rollouts_repo me/rollouts")
    begun = time.monotonic()
    final = train(folder, "offline", f"{OFFLINE} --seed {seed} --model_name_or_path small --traces me/rollouts@v1.0.0")
    seconds = time.monotonic() - begun
    record = json.loads((folder / "offline" / "composer_run.json").read_text())
    train(folder, "after", f"{ROLLOUTS} --seed {seed + 100} --model_name_or_path {shlex.quote(str(final))}")
    return {
        "before": scores(folder / "before"),
        "after": scores(folder / "after"),
        "sites": record["hinted_steps"]["sites"],
        "seconds": round(seconds, 1),
    }


def train(folder: Path, name: str, words: str) -> Path:
    place = ["--to", str(folder / "hub"), "--output_dir", str(folder / name)]
    return run(parse([*shlex.split(f"{COMMON} {words}"), *place]))


def scores(output: Path) -> dict[str, float]:
    """Return the mean reward of a run's rollouts and the share of calls that went to a tool that does not exist."""
    rewards, calls, failed = [], 0, 0
    for trace in read_rollouts(output / "rollouts"):
        rewards.append(trace.provenance["rewards"]["Desk"])
        calls += sum(len(message.tool_calls) for message in trace.messages)
        failed += sum(site.kind == "tool_not_found" for step in trace.steps for site in step.error_sites)
    return {"reward": round(sum(rewards) / len(rewards), 3), "unknown_tool": round(failed / max(calls, 1), 3)}


if __name__ == "__main__":
    main()
