"""Models whose weights are sharded over the ranks: FSDP2 and ZeRO stage 3.

The added terms read the head's weight outside its module's forward, where no hook of FSDP gathers it, and every
forward is a collective. In: a network, wrapped or not. Out: its whole head, values of this rank's shards, and counts
that the ranks agree on. Without sharding every function here does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

FSDP2, ZERO3 = "FSDP2", "ZeRO stage 3"
SUPPORTED = ("", FSDP2, ZERO3)


def sharding_of(accelerator: Any, network: nn.Module) -> str:
    """Return the name of the method that shards the weights over the ranks, or nothing."""
    deepspeed = getattr(accelerator.state, "deepspeed_plugin", None)
    if deepspeed is not None and deepspeed.zero_stage == 3:
        return ZERO3
    fsdp = getattr(accelerator.state, "fsdp_plugin", None)
    if fsdp is not None:
        return FSDP2 if fsdp.fsdp_version == 2 else "FSDP version 1"
    # A model may come sharded already: by fully_shard, by a tensor-parallel plan, or by transformers while it loads.
    return "a model of sharded weights" if has_shards(network) else ""


def has_shards(network: nn.Module) -> bool:
    """Return whether a parameter is sharded."""
    return any(isinstance(value, DTensor) or hasattr(value, "ds_id") for value in network.parameters())


def is_sharded(network: nn.Module) -> bool:
    """Return whether a forward of the network waits for the other ranks."""
    return isinstance(network, FSDPModule) or has_shards(network)


def generates_together(args: Any, sharding: str) -> bool:
    """Return whether generating needs all ranks: they share the weights, or a vLLM server or its shards."""
    return bool(sharding) or (args.use_vllm and (args.vllm_mode == "server" or args.vllm_tensor_parallel_size > 1))


def agreed(count: int, network: nn.Module) -> int:
    """Return the largest count of any rank, if each of the counted forwards waits for the other ranks."""
    if not is_sharded(network):
        return count
    most = torch.tensor(count, device=next(network.parameters()).device)
    torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
    return int(most)


def gathered(*parameters: Tensor | None) -> contextlib.AbstractContextManager[Any]:
    """Gather what ZeRO-3 has sharded of these parameters."""
    own = {id(one): one for one in parameters if one is not None and hasattr(one, "ds_id")}
    away = [one for one in own.values() if one.ds_status.name != "AVAILABLE"]  # type: ignore[attr-defined]
    if not away:
        return contextlib.nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(away)


# -------------------------------------------------------------------------------------------------- the head of FSDP2


def hold_head(network: nn.Module, head: nn.Module) -> None:
    """Gather the head of an FSDP2 model, until `release_head`.

    A term keeps the gathered weight for its backward, and no hook gathers it again there. With two forwards, the first
    one's backward would free what the second still needs.
    """
    group = _group_of(network, head)
    if group is not None:
        group.set_reshard_after_backward(False, recurse=False)
        group.unshard()


def release_head(network: nn.Module, head: nn.Module) -> None:
    """Shard the head again: after the step its gathered copy would be stale."""
    group = _group_of(network, head)
    if group is not None:
        group.reshard()


def _group_of(network: nn.Module, head: nn.Module) -> FSDPModule | None:
    """Return the FSDP module that holds the head: accelerate puts it into a group with the final norm."""
    return next((one for one in (head, network) if isinstance(one, FSDPModule)), None)


# ----------------------------------------------------------------------------------------- other values for the shards


def own_values(network: nn.Module) -> dict[str, Tensor]:
    """Return this rank's values of the trained parameters: shards, after whatever is gathered was freed."""
    for module in network.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    trained = ((name, value.detach()) for name, value in network.named_parameters() if value.requires_grad)
    return {name: value.to_local() if isinstance(value, DTensor) else value for name, value in trained}


def local_values(network: nn.Module) -> dict[str, Tensor]:
    """Return a copy of `own_values`."""
    return {name: value.clone() for name, value in own_values(network).items()}


@contextlib.contextmanager
def exchanged(network: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Give an FSDP2 network other values for its shards, and its own back afterwards.

    FSDP gathers the shards in each forward and in backward, so nothing that autograd keeps is changed.
    """
    _exchange(network, values)
    try:
        yield
    finally:
        _exchange(network, values)


def _exchange(network: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, shard in own_values(network).items():
        own = shard.clone()
        shard.copy_(values[name])
        values[name].copy_(own)
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()  # FSDP gathers on its own streams
