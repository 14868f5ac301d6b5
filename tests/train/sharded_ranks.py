"""Steps whose weights are sharded over two processes, and the same steps in one process with whole weights.

Run by `test_sharded.py` for a few cases and by `benchmarks.sharded` for all: `sharded_ranks.py FOLDER CASE…` in
two processes compares each case with the parameters that `reference` left in FOLDER, and prints one line of JSON.
Rollouts are scripted, so that both sides learn from the same ones; the case `generated` generates as well.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a test that imports this module shares its environment with the whole suite
    for name, value in {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}.items():
        os.environ.setdefault(name, value)

import torch
from peft import LoraConfig
from torch.distributed.tensor import DTensor
from transformers import set_seed
from trl import GRPOTrainer

from composer_hub.train.failure import TrainerError
from composer_hub.train.muon import use_muon
from composer_hub.train.sharded import own_values
from composer_hub.train.tiny import small_model
from composer_hub.train.trainer import ComposerTrainer
from tests.train.runs import ANSWER, CALL, Scripted, own_terms, pairs_of, trainer_of

FSDP2 = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
}
# Made for a CPU by DeepSpeed itself; every parameter is sharded, also small ones.
ZERO3 = {"DS_ACCELERATOR": "cpu", "ACCELERATE_USE_DEEPSPEED": "true"}
ZERO3_CONFIG: dict[str, Any] = {
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "gradient_clipping": "auto",
}
CHANNELS: dict[str, Any] = {"alpha_sdpo": 0.5, "beta_replay": 0.2}
CHECKPOINTING = {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}
PARTS: dict[str, dict[str, Any]] = {
    "grpo": {"alpha_sdpo": 0.0, "beta_replay": 0.0},
    "hint": {"beta_replay": 0.0},
    "replay": {"alpha_sdpo": 0.0},
    "fixed": {"teacher": "fixed"},
    "live": {"teacher": "live"},
    "accumulated": {"gradient_accumulation_steps": 2},
    "checkpointed": CHECKPOINTING,
    "plain": {"gradient_checkpointing": False},
    "measured": {"measure_every": 1},
    "own": {},  # terms of a user's own beside the others
    "kl": {"beta": 0.04},
    "full": {},
    "lora": {},
    "tied": {},
    "untied": {},
    "muon": {"learning_rate": 0.01, "adam_epsilon": 0.01},
    # Adam, because a state of nothing cannot be loaded; its epsilon keeps rounding from growing.
    "resumed": {
        "save_strategy": "steps",
        "save_steps": 1,
        "optim": "adamw_torch",
        "adam_epsilon": 0.01,
        "learning_rate": 0.01,
    },
}
IS_ZERO3 = os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true" and "WORLD_SIZE" in os.environ
TUNINGS = [f"{tuning} {head}" for tuning in ("full", "lora") for head in ("tied", "untied")]
# A case is some of these parts.
MATRIX = (
    *(f"{tuning} {teacher}" for tuning in TUNINGS for teacher in ("fixed", "live")),
    *(f"{tuning} fixed accumulated checkpointed" for tuning in TUNINGS),
    *(f"{tuning} fixed plain" for tuning in TUNINGS),
    *(f"{tuning} fixed resumed" for tuning in TUNINGS),
    *(f"full {head} {channel}" for head in ("tied", "untied") for channel in ("grpo", "hint", "replay")),
    *("full untied fixed measured", "lora tied fixed measured", "full tied fixed kl"),
    *("full tied fixed muon resumed", "full tied fixed measured own"),
)
ZERO3_MATRIX = (
    *(f"full {head} {teacher}" for head in ("tied", "untied") for teacher in ("fixed", "live")),
    *(f"full {head} fixed accumulated checkpointed" for head in ("tied", "untied")),
    *(f"lora {head} fixed plain" for head in ("tied", "untied")),
    "full tied grpo", "full tied fixed kl", "full untied replay",
)  # fmt: skip


class Uneven(Scripted):
    """Rollouts that err at some tasks only, however many processes make them."""

    def _written(self: Any, text: str, place: int) -> str:
        a, b = map(int, re.findall(r"user\n(\d)\+(\d)", text)[-1])
        is_first, errs = "<tool_response>" not in text, a % 2 == 0
        if is_first and place % 4 != 3:
            return CALL % ("plus" if errs and place % 4 < 2 else "add", a, b)
        if not is_first and text.rstrip().count("not found") and b % 2:
            return CALL % ("add", a, b)
        return ANSWER % (a + b)


class ScriptedComposer(Uneven, ComposerTrainer):
    """The trainer with scripted rollouts."""


class ScriptedGRPO(Uneven, GRPOTrainer):
    """TRL's own with the same rollouts."""


class OneRankCalls(ScriptedComposer):
    """Generates with the other rank, and then calls tools on the first rank only."""

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        ComposerTrainer._generate_single_turn(self, *args, **kwargs)
        return super()._generate_single_turn(*args, **kwargs)

    def _written(self, text: str, place: int) -> str:
        return ANSWER % 0 if self.accelerator.process_index else Scripted._written(self, text, place)


def options_of(case: str) -> dict[str, Any]:
    """Return the options of a case for one of this many processes."""
    parts = case.split()
    options = dict(CHANNELS)
    for part in parts:
        options |= PARTS[part]
    num_pieces = int(os.environ.get("WORLD_SIZE", 1)) * options.get("gradient_accumulation_steps", 1)
    usual = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "max_steps": 2, "measure_every": 0}
    options = usual | options | {"per_device_train_batch_size": 8 // num_pieces}
    if "lora" in parts:
        options["peft_config"] = LoraConfig(r=4, target_modules=["q_proj", "v_proj", "up_proj"], task_type="CAUSAL_LM")
    if "WORLD_SIZE" in os.environ:
        options["ddp_backend"] = "gloo"
    if IS_ZERO3:
        batch = {
            "train_batch_size": 8,
            "train_micro_batch_size_per_gpu": options["per_device_train_batch_size"],
            "gradient_accumulation_steps": options.get("gradient_accumulation_steps", 1),
        }
        options |= {"deepspeed": ZERO3_CONFIG | batch, "use_cpu": False}
    return options


_UNTIED: dict[Path, Any] = {}


def world_of(world: Any, case: str, folder: Path) -> Any:
    """Return the tiny model with its head tied to the embedding, or not."""
    model, tokenizer = world
    if "untied" not in case.split():
        return world
    home = folder / "untied"
    if not home.is_dir():
        from transformers import Qwen3Config, Qwen3ForCausalLM

        set_seed(0)
        other = Qwen3ForCausalLM(Qwen3Config(**model.config.to_dict() | {"tie_word_embeddings": False}))
        other.load_state_dict(model.state_dict())
        other.lm_head.weight.data += 0.01 * torch.randn(other.lm_head.weight.shape)
        other.save_pretrained(home)
    if home not in _UNTIED:
        _UNTIED[home] = type(model).from_pretrained(home)
    return _UNTIED[home], tokenizer


def made(world: Any, case: str, folder: Path, kind: Any = ScriptedComposer, **options: Any) -> Any:
    """Return the trainer of a case."""
    options = options_of(case) | options
    if options.get("beta_replay"):
        options["pairs"] = pairs_of(world[1], batch_size=4 // int(os.environ.get("WORLD_SIZE", 1)))
    if "own" in case.split():
        options["terms"] = own_terms(world[1], batch_size=4 // int(os.environ.get("WORLD_SIZE", 1)))
    trainer = trainer_of(world_of(world, case, folder), folder / case.replace(" ", "-"), kind, **options)
    if "muon" in case.split():
        use_muon(trainer, dtype=torch.float32)
    return trainer


def weights_of(trainer: Any) -> dict[str, torch.Tensor]:
    """Return the whole trained parameters; every rank must call this."""
    network = trainer.accelerator.unwrap_model(trainer.model)
    if IS_ZERO3:
        return {name: _gathered(value) for name, value in network.named_parameters() if value.requires_grad}
    own_values(network)  # which frees what is gathered
    trained = {name: value.detach() for name, value in network.named_parameters() if value.requires_grad}
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value.clone() for name, value in trained.items()
    }


def _gathered(value: torch.Tensor) -> torch.Tensor:
    import deepspeed

    with deepspeed.zero.GatheredParameters([value]):
        return value.detach().clone()


def reference(world: Any, case: str, folder: Path) -> None:
    """Train a case in this one process and leave what it learned in a folder."""
    trainer = made(world, case, folder)
    start = weights_of(trainer)
    set_seed(3)
    trainer.train()
    found = weights_of(trainer)
    moved = max((found[name] - start[name]).abs().max().item() for name in found)
    torch.save({"weights": found, "moved": moved}, folder / f"{case.replace(' ', '-')}.pt")


def compared(world: Any, case: str, folder: Path) -> dict[str, Any]:
    """Train a case on these ranks, and return how far its parameters are from the reference."""
    saved = torch.load(folder / f"{case.replace(' ', '-')}.pt", weights_only=True)
    trainer = made(world, case, folder)
    set_seed(3)
    trainer.train()
    if "resumed" in case.split():
        checkpoint = folder / case.replace(" ", "-") / "run" / "checkpoint-1"
        trainer = made(world, case, folder)
        trainer.train(resume_from_checkpoint=str(checkpoint))
    row = next(row for row in reversed(trainer.state.log_history) if "grad_norm" in row)
    return {"case": case, "worst": _worst(weights_of(trainer), saved["weights"]), "moved": saved["moved"]} | facts(
        trainer, row
    )


def facts(trainer: Any, row: Mapping[str, float]) -> dict[str, Any]:
    """Return what shows that the weights were sharded and the channels on."""
    parameters = list(trainer.model.parameters())
    return {
        "num_sharded": sum(hasattr(value, "placements") or hasattr(value, "ds_id") for value in parameters),
        "num_parameters": len(parameters),
        "sites": row.get("channel/hint/sites_per_rollout", 0.0),
        "replay": row.get("channel/replay/loss"),
    }


def _worst(found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> float:
    assert found.keys() == wanted.keys()
    return max((found[name] - wanted[name]).abs().max().item() for name in wanted)


def without_channels(world: Any, folder: Path) -> dict[str, Any]:
    """Compare the trainer without channels with TRL's own, bit for bit."""
    weights = []
    for kind in (ScriptedComposer, ScriptedGRPO):
        options = {} if kind is ScriptedComposer else {"measure_every": None}
        trainer = made(world, "full tied grpo", folder, kind, **options)
        set_seed(3)
        trainer.train()
        weights.append(weights_of(trainer))
    return {"case": "bits", "worst": _worst(*weights)}


def uneven_rounds(world: Any, folder: Path) -> dict[str, Any]:
    """Make rollouts where one rank calls no tool, so that its tool loop ends before the other's."""
    trainer = made(world, "full tied fixed", folder, OneRankCalls, max_steps=1, measure_every=1)
    trainer.train()
    rounds = torch.tensor(
        [max(sum(m["role"] == "tool" for m in rollout.messages) for rollout in trainer.last_rollouts)]
    )
    return {
        "case": "generated",
        "rounds": trainer.accelerator.gather(rounds).tolist(),
        "step": trainer.state.global_step,
    }


def _gloo(*_: Any, **__: Any) -> tuple[str, Any]:
    from accelerate.utils import DistributedType

    return "gloo", DistributedType.MULTI_CPU


def allow_on_cpu() -> None:
    """Let accelerate shard on a CPU: it leaves its kind of processes out, without a word."""
    from accelerate import state
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    if IS_ZERO3:  # DeepSpeed gets no backend there
        state.PartialState._prepare_backend = _gloo  # type: ignore[method-assign]
        return
    stock = state.AcceleratorState.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        if self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.FSDP
            self.fsdp_plugin = kwargs.get("fsdp_plugin") or FullyShardedDataParallelPlugin()

    state.AcceleratorState.__init__ = init  # type: ignore[method-assign]


def ignored(world: Any, folder: Path) -> dict[str, Any]:
    """Return what is said if FSDP was asked for and the parameters stay whole."""
    try:
        made(world, "full tied fixed", folder).train()
    except TrainerError as error:
        return {"case": "ignored", "said": str(error)}
    return {"case": "ignored", "said": ""}


def main() -> None:
    folder, cases = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    world = small_model()
    if any("untied" in case for case in cases):
        world_of(world, "untied", folder)  # before DeepSpeed shards whatever is loaded: such a model cannot be copied
    special = {"bits": without_channels, "generated": uneven_rounds, "ignored": ignored}
    if "ignored" not in cases:
        allow_on_cpu()
    for case in cases:
        run = special.get(case)
        found = run(world, folder) if run else compared(world, case, folder)
        if os.environ["RANK"] == "0":
            print(json.dumps(found), flush=True)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
