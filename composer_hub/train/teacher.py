"""The reader of the hint: the model that the run started from, a slow average of the student, or the student.

A teacher is the student's own module with other values for the parameters that are trained, so its forward runs on the
bare module: no collective, hence no rank waits for another that has no hint sites, and for LoRA the copy is as small as
the adapter. A LoRA run's fixed teacher is the adapter it started with, which is the base model for a fresh adapter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import TrainerCallback

from composer_hub import exits
from composer_hub.train.losses import Head

KINDS = ("fixed", "ema", "live")
_FILE = "composer_teacher.safetensors"


class HintTeacherError(exits.ComposerError, ValueError):
    """A teacher that cannot be made."""


class HintTeacher:
    """Reads hinted rows and returns their hidden states and the head that belongs to them."""

    def __init__(self, kind: str, student: nn.Module, *, rate: float = 0.01) -> None:
        if kind not in KINDS:
            raise HintTeacherError(f"teacher is one of {', '.join(KINDS)}, not {kind!r}.")
        if not 0.0 <= rate <= 1.0:
            raise HintTeacherError(f"teacher_ema_rate is a share between 0 and 1, not {rate}.")
        self.kind, self.student, self.rate = kind, student, rate
        self.values: dict[str, Tensor] = {}
        if kind != "live":
            self.values = {name: value.detach().clone() for name, value in _trained(student)}

    @torch.no_grad()
    def read(self, ids: Tensor, attention: Tensor) -> tuple[Tensor, Head]:  # (rows, time), (rows, time)
        """Return the hidden states (rows, time, hidden) of the rows, and the head."""
        # The copy is on the device where the student was built; training may have moved the student since.
        self.values = {name: value.to(ids.device) for name, value in self.values.items()}
        inputs = {"input_ids": ids, "attention_mask": attention, "use_cache": False, "logits_to_keep": 1}
        with without_dropout(self.student), keeping_hidden(self.student) as kept:
            functional_call(self.student, self.values, kwargs=inputs, strict=False)
        return kept[-1], head_of(self.student, self.values)

    @torch.no_grad()
    def follow(self) -> None:
        """Move the ema average a little towards the student."""
        if self.kind == "ema":
            for name, value in _trained(self.student):
                old = self.values[name]
                old.lerp_(value.detach().to(old), self.rate)

    def save(self, folder: Path) -> None:
        """Save the ema average beside a checkpoint, because it cannot be recomputed."""
        if self.kind == "ema":
            from safetensors.torch import save_file

            save_file({name: value.contiguous().cpu() for name, value in self.values.items()}, folder / _FILE)

    def load(self, folder: Path) -> None:
        """Load the ema average of a checkpoint."""
        if self.kind != "ema":
            return
        from safetensors.torch import load_file

        path = folder / _FILE
        if not path.exists():
            raise HintTeacherError(
                f"{path} is missing, so the ema teacher cannot continue. Start a new run, or set teacher=fixed."
            )
        saved = load_file(path)
        if set(saved) != set(self.values):
            raise HintTeacherError(
                f"{path} holds other parameters than this run trains. Resume with the same adapters."
            )
        self.values = {name: value.to(self.values[name]) for name, value in saved.items()}


class FollowStudent(TrainerCallback):
    """Moves the ema teacher a little towards the student after each step."""

    def __init__(self, teacher: HintTeacher) -> None:
        self.teacher = teacher

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.teacher.follow()


def causal_lm(network: nn.Module) -> nn.Module:
    """Return the language model below adapters."""
    inner = getattr(network, "get_base_model", None)
    return inner() if inner is not None else network


@contextlib.contextmanager
def keeping_hidden(network: nn.Module) -> Iterator[list[Tensor]]:
    """Keep the hidden states of each forward through the backbone, with their graph."""
    kept: list[Tensor] = []
    handle = causal_lm(network).base_model.register_forward_hook(  # type: ignore[union-attr]
        lambda _module, _inputs, output: kept.append(output.last_hidden_state)
    )
    try:
        yield kept
    finally:
        handle.remove()


def head_of(network: nn.Module, values: dict[str, Tensor] | None = None) -> Head:
    """Return the language-model head, with the teacher's values of trained parameters."""
    model = causal_lm(network)
    output = model.get_output_embeddings()  # type: ignore[operator]
    names = {id(value): name for name, value in network.named_parameters()} if values else {}
    own = values or {}
    weight = own.get(names.get(id(output.weight), ""), output.weight)
    bias = getattr(output, "bias", None)
    bias = own.get(names.get(id(bias), ""), bias)
    text = model.config.get_text_config()  # type: ignore[union-attr, operator]
    return Head(weight, bias, scale=_logit_scale(text), softcap=getattr(text, "final_logit_softcapping", None))


def _logit_scale(config: object) -> float:
    scaling = getattr(config, "logits_scaling", None)  # Granite divides
    return 1.0 / scaling if scaling else getattr(config, "logit_scale", None) or 1.0


def _trained(network: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, value) for name, value in network.named_parameters() if value.requires_grad)


@contextlib.contextmanager
def without_dropout(network: nn.Module) -> Iterator[None]:
    """Run the forwards inside as in evaluation."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
