"""The reader of the hint: the model that the run started from, or the student.

A teacher is the student's own module with other values for the parameters that are trained, so for LoRA the copy is as
small as the adapter. A LoRA run's fixed teacher is the adapter it started with, which is the base model for a fresh
adapter. The place of the weights decides how the values get into the module: through `functional_call`, whose
forward on the bare module is not a collective, so no rank waits for another; or, with FSDP2, by exchanging
this rank's shards. A second module that has the starting values anyway (TRL's reference model, ZeRO-3's copy)
saves the values. Without ZeRO-3 all of them are those at the beginning of training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers.modeling_layers import GradientCheckpointingLayer

from composer_hub import exits
from composer_hub.train import sharded
from composer_hub.train.losses import Head

KINDS = ("fixed", "live")


class HintTeacherError(exits.ComposerError, ValueError):
    """A teacher that cannot be made."""


class HintTeacher:
    """Reads hinted rows and returns their hidden states and the head that belongs to them."""

    def __init__(
        self,
        kind: str,
        student: nn.Module,
        *,
        other: nn.Module | None = None,  # a module, wrapped or not, with the starting values
        sharding: str = "",
        wrapped: Callable[[], Any] | None = None,  # returns what a forward of the student must go through, if anything
    ) -> None:
        if kind not in KINDS:
            raise HintTeacherError(f"teacher is one of {', '.join(KINDS)}, not {kind!r}.")
        self.kind, self.student = kind, student
        self.other = other if kind == "fixed" else None
        self.wrapped, self.adapters_off = wrapped, False
        self.has_start = kind == "live" or sharding == sharded.ZERO3  # whose copy is read from files
        self.values: dict[str, Tensor] = {}
        if kind != "live" and sharding == sharded.ZERO3 and self.other is None:
            self.adapters_off = starts_as_base(student)
            if not self.adapters_off:
                raise HintTeacherError(
                    "With ZeRO stage 3 a fixed teacher needs a run that starts from a whole model or a fresh LoRA "
                    "adapter. Use FSDP2, or set teacher to live."
                )

    @torch.no_grad()
    def remember(self) -> None:
        """Keep the starting values, once: those at the first call of `train`, or at the first reading before it.

        This is the same moment for every kind of weights, because those that FSDP2 shards do not exist earlier.
        """
        if self.has_start:
            return
        self.has_start = True
        if self.other is not None and not _same_values(self.student, getattr(self.other, "module", self.other)):
            self.other = None  # TRL read the files, and the student was changed since
        if self.other is None:
            self.values = sharded.local_values(self.student)

    @torch.no_grad()
    def read(self, ids: Tensor, attention: Tensor) -> tuple[Tensor, Head]:  # (rows, time), (rows, time)
        """Return the hidden states (rows, time, hidden) of the rows, and the head."""
        inputs = {"input_ids": ids, "attention_mask": attention, "use_cache": False, "logits_to_keep": 1}
        self.remember()
        if self.other is not None:
            network = getattr(self.other, "module", self.other)
            with without_dropout(network), keeping_hidden(network) as kept:
                self.other(**inputs)
            return kept[-1], head_of(network)
        with without_dropout(self.student), keeping_hidden(self.student) as kept:
            if self.values and sharded.is_sharded(self.student):
                with sharded.exchanged(self.student, self.values):
                    self.student(**inputs)
                    return kept[-1], _copied(head_of(self.student))
            if self.values:
                # The copy is on the student's first device; training may have moved the student since.
                self.values = {name: value.to(ids.device) for name, value in self.values.items()}
                functional_call(self.student, self.values, kwargs=inputs, strict=False)
            else:
                with self.student.disable_adapter() if self.adapters_off else contextlib.nullcontext():  # type: ignore[operator]
                    (self.wrapped() if self.wrapped else self.student)(**inputs)
        return kept[-1], head_of(self.student, self.values)


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
    """Return the language-model head, with the teacher's values of trained parameters.

    A head that FSDP2 shards is gathered, until `release_head`.
    """
    model = causal_lm(network)
    output = model.get_output_embeddings()  # type: ignore[operator]
    sharded.hold_head(network, output)
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


def release_head(network: nn.Module) -> None:
    """Shard the head again that `head_of` gathered."""
    sharded.release_head(network, causal_lm(network).get_output_embeddings())  # type: ignore[operator]


def _copied(head: Head) -> Head:
    """Copy a trained head that holds other values only for now."""
    copies = {
        name: value.clone()
        for name, value in (("weight", head.weight), ("bias", head.bias))
        if value is not None and value.requires_grad
    }
    return replace(head, **copies)  # type: ignore[arg-type]


def starts_as_base(network: nn.Module) -> bool:
    """Return whether the network is its base model: it has fresh LoRA adapters, whose second matrix is zero."""
    lora = [value for name, value in network.named_parameters() if "lora_B" in name]
    with sharded.gathered(*lora):
        return bool(lora) and not any(value.any() for value in lora)


def second_module(trainer: Any, sharding: str) -> nn.Module | None:
    """Return a module beside the student that may have the student's starting values, or None.

    TRL's reference model has those of the files that the student came from. ZeRO-3 gets a new copy of them.
    """
    student, other = trainer.model, trainer.ref_model
    if sharding == sharded.FSDP2 or getattr(student, "peft_config", None):
        return None
    if other is None or trainer.args.sync_ref_model:
        if sharding != sharded.ZERO3:
            return None
        from trl.models import prepare_deepspeed

        source = type(student).from_pretrained(student.config._name_or_path, dtype=student.dtype)
        other = prepare_deepspeed(source.requires_grad_(False), trainer.accelerator)
    if sharding == sharded.ZERO3 and not _same_values(student, getattr(other, "module", other)):
        raise HintTeacherError(
            f"The model does not have the values of {student.config._name_or_path}, which the fixed teacher of ZeRO "
            "stage 3 is read from. Save the model there first, or set teacher to live."
        )
    return other


def _same_values(one: nn.Module, other: nn.Module) -> bool:
    theirs = dict(other.named_parameters())
    for name, value in one.named_parameters():
        their = theirs.get(name)
        with sharded.gathered(value, their):
            if their is None or value.dtype != their.dtype or not torch.equal(value.to(their.device), their):
                return False
    return True


@contextlib.contextmanager
def without_dropout(network: nn.Module) -> Iterator[None]:
    """Run the forwards inside as in evaluation; if layers are checkpointed, also when backward runs them again."""
    checkpoints = [
        (module, name, vars(module)[name], module.training)
        for module in (network.modules() if torch.is_grad_enabled() else ())
        for name in ("_gradient_checkpointing_func", "checkpoint_fn")  # transformers and torch
        if name in vars(module)
    ]
    with _evaluating(network):
        try:
            for module, name, checkpoint, mode in checkpoints:
                setattr(module, name, partial(_checkpointed, checkpoint, module))
                # Only a layer in training is checkpointed.
                module.training = mode and isinstance(module, GradientCheckpointingLayer)
            yield
        finally:
            for module, name, checkpoint, _ in checkpoints:
                setattr(module, name, checkpoint)


def _checkpointed(
    checkpoint: Callable[..., Any], layer: nn.Module, function: Callable[..., Any], *inputs: Any, **options: Any
) -> Any:
    def calm(*args: Any, **kwargs: Any) -> Any:
        with _evaluating(layer):
            return function(*args, **kwargs)

    return checkpoint(calm, *inputs, **options)


@contextlib.contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
