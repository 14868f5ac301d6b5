"""Local SGD and DiLoCo inside one job: each rank trains by itself, and every few steps all take one outer step.

In: a trainer whose ranks hold whole weights. Out: the same trainer, whose gradients stay on their rank. The outer step
is Nesterov's on the mean of start minus end over the ranks (DiLoCo, arXiv 2311.08105). With one inner step of SGD, an
outer rate of 1 and no momentum it is DDP; with a rate of 1 and no momentum it is local SGD.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback

from composer_hub.train.failure import TrainerError
from composer_hub.train.sharded import generates_together


class LocalSGD(TrainerCallback):
    """Keeps the gradients of each rank apart, and brings the weights together after every n-th step and the last."""

    def __init__(self, trainer: Any, *, every: int, lr: float = 0.7, momentum: float = 0.9) -> None:
        _check(trainer)
        self.trainer, self.every, self.lr, self.momentum = trainer, every, lr, momentum
        self.start: dict[str, Tensor] = {}  # the weights after the last exchange
        self.velocity: dict[str, Tensor] = {}
        self._saved: dict[str, Any] | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        wrapped = self.trainer.model_wrapped
        if isinstance(wrapped, DistributedDataParallel):
            wrapped.register_comm_hook(None, _own_gradient)
        own = self._weights()
        if self._saved is not None:
            for name, value in self._saved["weights"].items():
                own[name].copy_(value)
            self.trainer.optimizer.load_state_dict(self._saved["optimizer"])
            self.start, self.velocity = self._saved["start"], self._saved["velocity"]
            self._saved = None
        else:
            self.start = {name: value.clone() for name, value in own.items()}
            self.velocity = {name: torch.zeros_like(value) for name, value in own.items()}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0 or state.global_step >= state.max_steps:
            self.exchange()

    def exchange(self) -> None:
        """Take the outer step, and log the bytes that each rank gave and how far the ranks were apart."""
        spread, num_bytes = torch.zeros((), device=self.trainer.accelerator.device), 0
        for name, value in self._weights().items():
            delta = self.start[name] - value
            mean = delta.clone()
            if dist.is_initialized():
                dist.all_reduce(mean)
                mean /= dist.get_world_size()
            spread = torch.maximum(spread, (delta - mean).abs().max().to(spread))
            num_bytes += delta.nbytes
            self.velocity[name].mul_(self.momentum).add_(mean)
            value.copy_(self.start[name] - self.lr * (mean + self.momentum * self.velocity[name]))
            self.start[name].copy_(value)
        if dist.is_initialized():
            dist.all_reduce(spread, op=dist.ReduceOp.MAX)
        metrics = self.trainer._metrics["train"]
        metrics["outer/bytes"].append(float(num_bytes))
        metrics["outer/spread"].append(spread.item())

    def _weights(self) -> dict[str, Tensor]:
        named = self.trainer.accelerator.unwrap_model(self.trainer.model).named_parameters()
        return {name: value.detach() for name, value in named if value.requires_grad}

    # transformers saves what rank 0 has; between two exchanges every rank has something else.

    def save(self, folder: Path) -> None:
        """Write what this rank alone knows beside a checkpoint."""
        state = {
            "weights": self._weights(),
            "optimizer": self.trainer.optimizer.state_dict(),
            "start": self.start,
            "velocity": self.velocity,
        }
        torch.save(state, folder / self._name())

    def load(self, folder: Path) -> None:
        """Read it again; it takes effect when training begins."""
        path = folder / self._name()
        if not path.is_file():
            raise TrainerError(
                f"{path} is missing, so this checkpoint was made without sync_every or by fewer processes. Resume with "
                "the options that it was made with."
            )
        device = self.trainer.accelerator.device
        self._saved = torch.load(path, map_location="cpu" if device.type == "cpu" else device, weights_only=True)

    def _name(self) -> str:
        return f"composer_apart_{self.trainer.accelerator.process_index}.pt"


def _own_gradient(_, bucket):  # type: ignore[no-untyped-def]
    # DDP compares annotations with its own classes, and here they would be text.
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _check(trainer: Any) -> None:
    if trainer.sharding or trainer.is_deepspeed_enabled:
        raise TrainerError(
            "sync_every needs whole weights and gradients on every rank, but here they are sharded. Launch with DDP, "
            "or leave sync_every out."
        )
    if generates_together(trainer.args, trainer.sharding):
        raise TrainerError(
            "sync_every lets the ranks' weights differ, but they share one vLLM. Set vllm_mode to colocate with "
            "vllm_tensor_parallel_size 1, or leave sync_every out."
        )
