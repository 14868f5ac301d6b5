"""Stop a run whose numbers have blown up, before anything of that step is saved or published.

In: the loss, the gradient's norm and the weights of each step. Out: nothing, or `NotFinite` (exit code 4) on all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather
from torch import Tensor, nn
from transformers import TrainerCallback

from composer_hub import exits

MAX_GROWTH = 100.0  # times the norm that the trained weights began with; training that works stays under 2


class NotFinite(exits.Refused, ValueError):
    """Numbers that nothing can be learned from."""


class FiniteGuard(TrainerCallback):
    """Looks at the loss and gradient before each update, and at the weights after it."""

    def __init__(self, network: nn.Module, *, is_scaled: bool = False) -> None:
        self.network = network
        self.is_scaled = is_scaled  # fp16: its scaler skips the steps whose gradient overflows
        self.loss = 0.0
        self.start = math.nan

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.start = weight_norm(self.network)

    def note_loss(self, loss: Tensor) -> None:
        """Keep the loss of a micro-batch; a step has the worst of its micro-batches."""
        value = loss.detach().float().item()
        self.loss = value if math.isfinite(self.loss) else self.loss

    def check_gradient(self, norm: Any, step: int, learning_rate: float) -> None:
        """Refuse the update of a step whose loss or gradient is not finite."""
        loss, self.loss = self.loss, 0.0
        numbers = {"loss": loss, "norm of the gradient": 0.0 if norm is None else float(norm)}
        bad = [f"the {name} is {value}" for name, value in numbers.items() if not math.isfinite(value)]
        self._stop_if("" if self.is_scaled else " and ".join(bad), step, learning_rate)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.check_weights(state.global_step + 1, args.learning_rate)

    def check_weights(self, step: int, learning_rate: float) -> None:
        """Refuse weights that are not finite, or that have grown as no training makes them grow."""
        norm = weight_norm(self.network)
        bad = "" if math.isfinite(norm) else "the weights are not finite"
        if not bad and norm > MAX_GROWTH * self.start:
            bad = f"the norm of the weights has grown from {self.start:.3g} to {norm:.3g}"
        self._stop_if(bad, step, learning_rate)

    def _stop_if(self, bad: str, step: int, learning_rate: float) -> None:
        # A rank that stopped alone would leave the others waiting.
        flag = torch.tensor([float(bool(bad))], device=PartialState().device)
        if not gather(flag).max().item():
            return
        raise NotFinite(
            f"Step {step:,} was not saved or published: {bad or 'the numbers of another rank are not finite'}. Look at "
            f"the rewards and the data of this step. Start again in another output_dir with a learning_rate below "
            f"{learning_rate:g} or a smaller max_grad_norm; complete checkpoints of earlier steps are kept."
        )


def weight_norm(network: nn.Module) -> float:
    """Return the norm of this rank's trained weights, in 32 bits, so that absurd weights overflow."""
    norms = [part.norm(dtype=torch.float32) for part in _local(network.parameters())]
    return torch.stack(norms).norm().item() if norms else 0.0


def _local(weights: Iterable[nn.Parameter]) -> Iterable[Tensor]:
    for weight in weights:
        if weight.requires_grad and weight.numel():
            value = weight.detach()
            yield getattr(value, "to_local", lambda value=value: value)()
