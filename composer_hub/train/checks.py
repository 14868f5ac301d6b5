"""Checks before the first step; each failure is one sentence.

In: the options, the facts about the other arguments, and the model. Out: nothing, or a `TrainerError`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from composer_hub import exits
from composer_hub.train.config import ComposerConfig
from composer_hub.train.ranges import out_of_range
from composer_hub.train.sharded import SUPPORTED, ZERO3, has_shards
from composer_hub.train.teacher import head_of, keeping_hidden, without_dropout


class TrainerError(exits.ComposerError, ValueError):
    """A run that cannot be done with these options."""


HINT_SOURCES = ("rollouts", "traces", "both")


def check_options(
    args: ComposerConfig, *, has_pairs: bool, has_tools: bool, has_traces: bool, has_terms: bool, sharding: str
) -> None:
    """Refuse options that do not fit together or do not fit the other arguments."""
    if found := list(out_of_range(vars(args))):
        raise TrainerError(" ".join(found))
    if args.hint_source not in HINT_SOURCES:
        raise TrainerError(f"hint_source is one of {', '.join(HINT_SOURCES)}, not {args.hint_source!r}.")
    if args.beta_replay and not has_pairs:
        raise TrainerError("beta_replay is set but there are no pairs: pass pairs=, or set beta_replay to 0.")
    if args.alpha_sdpo and args.hint_source != "rollouts" and not has_traces:
        raise TrainerError(
            f"hint_source is {args.hint_source} but there are no traces: pass traces=, or set it to rollouts."
        )
    if args.alpha_sdpo and args.hint_source != "traces" and not has_tools:
        raise TrainerError(
            "alpha_sdpo is set but nothing can go wrong: pass tools= or environment_factory=, or set it to 0."
        )
    if has_terms and sharding:
        _check_sharding(args, sharding)


def _check_sharding(args: ComposerConfig, sharding: str) -> None:
    if sharding not in SUPPORTED:
        raise TrainerError(
            f"The added terms read weights outside the wrapped forward, which {sharding} does not allow. Use FSDP "
            "version 2, ZeRO or DDP, or set the weights of the terms to 0."
        )
    checkpointing: Any = args.gradient_checkpointing_kwargs or {}
    if args.gradient_checkpointing and checkpointing.get("use_reentrant"):
        raise TrainerError(
            f"Reentrant checkpointing does not work with the added terms and {sharding}. Set "
            'gradient_checkpointing_kwargs to {"use_reentrant": false}; TRL makes it reentrant for LoRA with ZeRO '
            "stage 3, so use FSDP2 there, or set gradient_checkpointing to false."
        )
    if sharding == ZERO3 and args.measure_every:
        raise TrainerError(
            "Uplift and gradient shares cannot be measured with ZeRO stage 3. Set measure_every to 0, or use FSDP2."
        )


def check_shards(network: nn.Module, *, is_fsdp: bool, num_processes: int) -> None:
    """Refuse a run that asked for FSDP2 and whose parameters are whole; accelerate ignores FSDP on a CPU in silence."""
    asked = is_fsdp or os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if asked and num_processes > 1 and not has_shards(network):
        raise TrainerError(
            "FSDP is on, but the parameters are not sharded: accelerate ignores FSDP on a CPU. Use GPUs, or launch "
            "with --multi_gpu."
        )


@torch.no_grad()
def check_head(network: nn.Module, ids: Sequence[int]) -> None:
    """Refuse a model whose logits are not its output layer times the backbone's hidden states."""
    row = torch.tensor([ids], device=next(network.parameters()).device)
    with without_dropout(network), keeping_hidden(network) as kept:
        logits = network(input_ids=row, use_cache=False).logits
    ours = head_of(network).logits(kept[-1])
    if not torch.allclose(logits.float(), ours.float(), rtol=1e-2, atol=1e-2):
        raise TrainerError(
            f"The logits of {type(network).__name__} are not its output layer times the hidden states, so the "
            "added terms would learn from other numbers. Set their weights to 0 for this model."
        )
