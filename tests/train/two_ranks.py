"""Run by `test_ranks.py` in two processes: a few steps in which one rank may have nothing to learn from.

Usage: two_ranks.py CACHE FOLDER. Prints one line of JSON a run on rank 0: live rollouts, then recorded rows.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

for name, value in {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}.items():
    os.environ.setdefault(name, value)

import torch  # noqa: E402 (after the settings above)

from composer_hub.train.world import small_model  # noqa: E402
from tests.train.offline_ranks import trained  # noqa: E402
from tests.train.runs import trainer_of  # noqa: E402


def main() -> None:
    cache, folder = map(Path, sys.argv[1:])
    torch.set_num_threads(1)
    for teacher, silent in (("live", 1), ("fixed", 0)):
        run(small_model(cache), folder, teacher, silent)
    for idle in (None, 1):
        totals, row = trained(small_model(cache), folder, batch=2, silent=idle)
        if os.environ["RANK"] == "0":
            print(json.dumps({"sums": totals.tolist(), "left_out": row["channel/hint_traces/left_out"]}), flush=True)


def run(world: Any, folder: Path, teacher: str, silent: int) -> None:
    options: dict[str, Any] = {"alpha_sdpo": 0.5, "beta_replay": 0.2, "per_device_train_batch_size": 4}
    trainer = trainer_of(world, folder, teacher=teacher, ddp_backend="gloo", **options)
    rank = trainer.accelerator.process_index
    if rank == silent:
        trainer.hinter = type("Silent", (), {"sites": lambda self, rollout, sibling=None: []})()
    trainer.train()
    total = torch.stack([value.double().abs().sum() for value in trainer.model.parameters()]).sum()
    sums = trainer.accelerator.gather(total[None]).tolist()
    if rank == 0:
        row = next(row for row in trainer.state.log_history if "grad_norm" in row)
        print(json.dumps({"sums": sums, "sites": row["channel/hint/sites_per_rollout"]}), flush=True)


main()
