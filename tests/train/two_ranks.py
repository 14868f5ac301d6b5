"""Run by `test_ranks.py` in two processes: steps in which one rank may have no error turn, groups that span both ranks,
offline steps on recorded rows, and a model whose weights are sharded over them.

Usage: two_ranks.py FOLDER. Prints one line of JSON a part on rank 0.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

for name, value in {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}.items():
    os.environ.setdefault(name, value)

import torch  # noqa: E402 (after the settings above)
from accelerate.utils import gather_object  # noqa: E402

from composer_hub.train.bands import Band  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.tiny import small_model  # noqa: E402
from composer_hub.train.watchdogs import Watchdogs  # noqa: E402
from tests.train.offline_ranks import trained  # noqa: E402
from tests.train.runs import trainer_of  # noqa: E402

EVERYTHING: dict[str, Any] = {
    "alpha_sdpo": 0.5,
    "beta_replay": 0.2,
    "measure_every": 1,
    "per_device_train_batch_size": 4,
    "ddp_backend": "gloo",
}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    for teacher, silent in (("live", 1), ("fixed", 0)):
        a_rank_without_sites(small_model(), folder, teacher, silent)
    a_rank_without_sites(small_model(), folder, "fixed", 0, part="quiet", measure_every=0)
    groups_that_span_ranks(small_model(), folder)
    recorded_rows(small_model(), folder)
    a_metric_of_its_own()
    sharded_weights(small_model(), folder)
    # A rank that exits while its group still has threads can abort.
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def a_rank_without_sites(
    world: Any, folder: Path, teacher: str, silent: int, *, part: str = "", **options: Any
) -> None:
    trainer = trainer_of(world, folder, teacher=teacher, **EVERYTHING | options)
    if trainer.accelerator.process_index == silent:
        trainer.hinter = type("Silent", (), {"sites": lambda self, rollout, **_: []})()
    trainer.train()
    total = torch.stack([value.double().abs().sum() for value in trainer.model.parameters()]).sum()
    sums = trainer.accelerator.gather(total[None]).tolist()
    row = next(row for row in trainer.state.log_history if "grad_norm" in row)
    names = gather_object([sorted(row)])
    say(
        {
            "part": part or teacher,
            "sums": sums,
            "sites": row["channel/hint/sites_per_rollout"],
            "same_names": names[0] == names[1],
            "metrics": names[0],
        },
        trainer,
    )


def groups_that_span_ranks(world: Any, folder: Path) -> None:
    trainer = trainer_of(world, folder, num_generations=8, max_steps=1, **EVERYTHING)
    trainer.train()
    trainer.model.train()
    trainer._rewards = torch.tensor([0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 9.0, 0.0])  # the best is on rank 1
    everyone = gather_object(trainer.last_rollouts)
    found = gather_object([one.completion_ids if one else None for one in trainer.siblings()])
    best = everyone[6].completion_ids
    if trainer.accelerator.process_index == 0:
        trainer.last_rollouts = []  # and a rank with nothing to give stops nobody
    trainer.siblings()
    say({"part": "groups", "right": found == [best] * 6 + [None, best]}, trainer)


def recorded_rows(world: Any, folder: Path) -> None:
    for part, idle in (("offline", None), ("idle", 1)):
        totals, row = trained(world, folder, batch=2, silent=idle)
        if os.environ["RANK"] == "0":
            left_out = row["channel/hint_traces/left_out"]
            print(json.dumps({"part": part, "sums": totals.tolist(), "left_out": left_out}), flush=True)


def a_metric_of_its_own() -> None:
    control = SimpleNamespace(should_training_stop=False, should_save=False)
    dogs, rank = Watchdogs([Band("step_time", high=1.0, patience=1, action="stop")]), int(os.environ["RANK"])
    state = SimpleNamespace(global_step=1, is_world_process_zero=rank == 0)
    dogs.on_log(None, state, control, logs={"step_time": 0.5 if rank else 2.0})
    stops = gather_object([control.should_training_stop])
    if rank == 0:
        print(json.dumps({"part": "dogs", "stops": stops}), flush=True)


def sharded_weights(world: Any, folder: Path) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, tokenizer = world
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    said = []
    for options in ({"alpha_sdpo": 0.5}, {"beta_replay": 0.5}):
        try:
            trainer_of((Sharded(model), tokenizer), folder, ddp_backend="gloo", **options)
        except TrainerError as error:
            said.append(str(error))
    everyone = gather_object([said])
    if int(os.environ["RANK"]) == 0:
        print(json.dumps({"part": "sharded", "said": everyone}), flush=True)


class Sharded:
    """A model that is passed on as it is: what is sharded cannot be copied."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __deepcopy__(self, memo: Any) -> Any:
        return self.model


def say(found: dict[str, Any], trainer: Any) -> None:
    if trainer.accelerator.process_index == 0:
        print(json.dumps(found), flush=True)


main()
