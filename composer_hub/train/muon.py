"""Muon: the matrices inside the layers take orthogonal steps, everything else takes AdamW's.

In: a network. Out: one optimizer with groups of two kinds, so that schedulers, checkpoints and FSDP2 see nothing new.

A step of Muon is the orthogonal matrix nearest to the averaged gradient (Jordan et al. 2024). Scaled by
.2 sqrt(max(rows, columns)), its entries are about as large as those of an AdamW step, so AdamW's learning rate and
weight decay stay as they are (Liu et al. 2025, arXiv 2502.16982).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import AdamW

from composer_hub.train.failure import TrainerError

# Five steps of a polynomial that is steep at 0: singular values end between .7 and 1.2, which is near enough.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_NUM_STEPS = 5


def use_muon(trainer: Any, *, dtype: torch.dtype = torch.bfloat16) -> None:
    """Let a trainer that has not begun make its optimizer with Muon."""
    args = trainer.args
    if trainer.is_deepspeed_enabled:
        raise TrainerError(
            "Muon needs whole matrices, which DeepSpeed flattens. Use FSDP2 or DDP, or set optimizer to optim."
        )
    if getattr(trainer.model, "peft_config", None):
        raise TrainerError(
            "Muon orthogonalizes the step of a whole matrix, but LoRA trains its two factors, whose product would not "
            "be orthogonal. Set use_peft to false, or optimizer to optim."
        )
    options = {
        "lr": args.learning_rate,
        "weight_decay": args.weight_decay,
        "betas": (args.adam_beta1, args.adam_beta2),
        "eps": args.adam_epsilon,
        "dtype": dtype,
    }
    # transformers instantiates a factory and then calls it with the model.
    trainer.optimizer_cls_and_kwargs = (lambda: MuonAdamW, options)


def matrices(network: nn.Module) -> set[str]:
    """Return the names of the trained matrices that Muon takes: all but embeddings and output layers."""
    outside = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    head = getattr(network, "get_output_embeddings", lambda: None)()
    outside |= {id(head.weight)} if head is not None else set()
    return {
        name
        for name, value in network.named_parameters()
        # The experts of a layer are one tensor of matrices.
        if value.requires_grad
        and id(value) not in outside
        and (value.ndim == 2 or (value.ndim == 3 and "experts" in name))
    }


class MuonAdamW(AdamW):
    """AdamW whose groups with `is_matrix` take Muon's steps."""

    def __init__(
        self,
        network: nn.Module,
        *,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        momentum: float = 0.95,
        dtype: torch.dtype = torch.bfloat16,  # that steps are made orthogonal in
    ) -> None:
        inside = matrices(network)
        trained = [(name, value) for name, value in network.named_parameters() if value.requires_grad]
        kinds: tuple[tuple[bool, list[Tensor]], ...] = (
            (True, [value for name, value in trained if name in inside]),
            (False, [value for name, value in trained if name not in inside and value.ndim > 1]),
            (False, [value for _, value in trained if value.ndim < 2]),  # norms and biases do not decay
        )
        groups = [
            {
                "params": values,
                "is_matrix": is_matrix,
                "momentum": momentum,
                "weight_decay": weight_decay if values[0].ndim > 1 else 0.0,
            }
            for is_matrix, values in kinds
            if values
        ]
        super().__init__(groups, lr=lr, betas=betas, eps=eps)
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group["is_matrix"]]
        try:
            loss = super().step(closure)
        finally:
            self.param_groups = groups
        for group in groups:
            if group["is_matrix"]:
                for value in group["params"]:
                    self._turn(value, group)
        return loss

    def _turn(self, value: Tensor, group: dict[str, Any]) -> None:
        if value.grad is None:
            return
        state = self.state[value]
        if not state:
            state["step"] = torch.tensor(0.0)  # AdamW looks for it when a state is loaded
            state["momentum_buffer"] = torch.zeros_like(value.grad)
        state["step"] += 1
        average, momentum = state["momentum_buffer"], group["momentum"]
        average.lerp_(value.grad, 1 - momentum)
        step = value.grad.lerp(average, momentum)  # Nesterov's
        rows, columns = value.shape[-2:]
        size = 0.2 * max(rows, columns) ** 0.5 * group["lr"]
        value.mul_(1 - group["lr"] * group["weight_decay"])
        value.sub_(_sharded_like(value, orthogonal(_whole(step), self.dtype)).to(value.dtype), alpha=size)


def orthogonal(matrix: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the orthogonal matrix nearest to this one, nearly; of a stack, that of each matrix."""
    is_tall = matrix.shape[-2] > matrix.shape[-1]
    x = (matrix.mT if is_tall else matrix).to(dtype)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(_NUM_STEPS):
        square = x @ x.mT
        x = _A * x + (_B * square + _C * square @ square) @ x
    return x.mT if is_tall else x


def _whole(value: Tensor) -> Tensor:
    # Every rank makes the whole matrix orthogonal: no rank waits for another's product.
    return value.full_tensor() if isinstance(value, DTensor) else value


def _sharded_like(value: Tensor, whole: Tensor) -> Tensor:
    if not isinstance(value, DTensor):
        return whole
    return distribute_tensor(whole.contiguous(), value.device_mesh, value.placements, src_data_rank=None)
