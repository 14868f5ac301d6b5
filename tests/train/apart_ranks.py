"""Run by `test_local_sgd.py` in two processes: what the ranks have learned after some steps, apart or together.

Usage: apart_ranks.py FOLDER. Prints one line of JSON on rank 0.
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
from accelerate.utils import gather_object  # noqa: E402
from peft import LoraConfig  # noqa: E402
from transformers import set_seed  # noqa: E402

from composer_hub.hub import FolderDestination  # noqa: E402
from composer_hub.train.apart.deltas import read_values, values_digest  # noqa: E402
from composer_hub.train.apart.federation import Federation, FederationError, Rules  # noqa: E402
from composer_hub.train.apart.local_sgd import LocalSGD  # noqa: E402
from composer_hub.train.apart.rounds import Rounds  # noqa: E402
from composer_hub.train.run.trainer import RunTrainer  # noqa: E402
from composer_hub.train.tiny import small_model  # noqa: E402
from tests.train.runs import trainer_of  # noqa: E402

# Clipping looks at a rank's own gradient, so DDP's clips otherwise.
SGD = {"optim": "sgd", "learning_rate": 0.05, "max_grad_norm": 0.0, "lr_scheduler_type": "constant"}
SAVED = {"save_strategy": "steps", "save_steps": 3, "learning_rate": 1e-3}


def made(folder: Path, name: str, apart: dict[str, Any] | None, **options: Any) -> Any:
    usual = {"alpha_sdpo": 0.5, "measure_every": 0, "per_device_train_batch_size": 4, "max_steps": 4}
    trainer = trainer_of(small_model(), folder / name, RunTrainer, ddp_backend="gloo", **usual | options)
    if apart is not None:
        trainer.apart = LocalSGD(trainer, **apart)
        trainer.add_callback(trainer.apart)
    return trainer


def weights(trainer: Any) -> list[torch.Tensor]:
    """Return the weights of both ranks."""
    own = torch.cat([value.detach().flatten() for value in trainer.model.parameters()])
    return list(trainer.accelerator.gather(own[None]))


def run(trainer: Any, **options: Any) -> list[torch.Tensor]:
    set_seed(3)
    trainer.train(**options)
    return weights(trainer)


def far(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one - other).abs().max().item()


def federated(folder: Path) -> dict[str, Any]:
    """Let two ranks be one worker of a federation in a folder, and then another worker with other rules."""
    where, said = FolderDestination(folder / "hub"), ""
    adapter = {"peft_config": LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")}
    for name, num_rounds in (("ada", 2), ("bob", 3)):
        set_seed(3)
        trainer = made(folder, name, None, **adapter)
        meeting = Federation(where, "me/apart", name, f"run-{name}", note=lambda _: None)
        trainer.apart = Rounds(trainer, meeting, Rules("base", 1, num_rounds, 2))
        trainer.add_callback(trainer.apart)
        try:
            trainer.train()
            ends = gather_object([values_digest(trainer.apart._values())])
        except FederationError as error:
            said = str(error)
    shared = values_digest(read_values(folder / "hub" / "me" / "apart" / "adapter_model.safetensors")[0])
    return {"ends": ends, "shared": shared, "said": gather_object([said])}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    start = torch.cat([value.detach().flatten() for value in small_model()[0].parameters()])
    ddp = run(made(folder, "ddp", None, **SGD))
    each = run(made(folder, "each", {"every": 1, "lr": 1.0, "momentum": 0.0}, **SGD))
    trainer = made(folder, "diloco", {"every": 2}, **SAVED)
    diloco = run(trainer)
    rows = [row for row in trainer.state.log_history if "outer/spread" in row]
    halfway = folder / "diloco" / "run" / "checkpoint-3"
    between = [torch.load(halfway / f"composer_apart_{rank}.pt")["weights"] for rank in (0, 1)]
    resumed = run(made(folder, "diloco", {"every": 2}, **SAVED), resume_from_checkpoint=str(halfway))
    found = {
        "moved": far(start, ddp[0]),
        "each from ddp": far(ddp[0], each[0]),
        "ranks at the end": far(*diloco),
        "ranks in a round": max(far(value, between[1][name]) for name, value in between[0].items()),
        "resumed": [far(one, other) for one, other in zip(diloco, resumed, strict=True)],
        "steps": [row["step"] for row in rows],
        "spread": [row["outer/spread"] for row in rows],
        "bytes": [row["outer/bytes"] for row in rows],
        "num_bytes": 4 * len(start),
    }
    found |= federated(folder)
    everyone = gather_object([found["steps"]])
    if os.environ["RANK"] == "0":
        print(json.dumps(found | {"everyone": everyone}), flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
