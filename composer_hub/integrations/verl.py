"""The hint and replay channels as distillation losses of verl.

In: `register(...)`, called in a module that `VERL_USE_EXTERNAL_MODULES` names, so that driver and workers have the
losses. Out: two loss modes for `distillation.distillation_loss.loss_mode`: `composer_topk` (the teacher's likeliest
tokens) and `composer_sampled` (the sampled token alone). verl is imported only when `register` is called.

A batch needs these columns, one entry per row (an agent loop puts them into `extra_fields`):

- `hint_mask`: 1 on response tokens whose teacher has read a hint, for the hint channel;
- `pair_id` ("" or -1 on rollouts), `pair_is_chosen`, `pair_ref_logp`: for the replay channel;
- `<name>_mask` for each custom term (`channels.term_columns` makes it).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from composer_hub.integrations.channels import (
    ChannelError,
    ChannelWeights,
    add_channels,
    hint_tokens,
    pair_rows,
    replay_tokens,
    spread,
    term_tokens,
)
from composer_hub.train.losses import Preference
from composer_hub.train.terms import Term

TOPK, SAMPLED = "composer_topk", "composer_sampled"
Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """The channels that are added to verl's policy loss, before `distillation_loss_coef`."""

    weights: ChannelWeights = field(default_factory=lambda: ChannelWeights(alpha=1.0))
    reverse: bool = False  # of the sampled token's divergence
    preference: Preference = field(default_factory=Preference)
    terms: Sequence[Term] = ()


# The terms that `register` was called with: verl calls it in each process, and an agent loop writes their columns.
own_terms: list[Term] = []


def register(
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    reverse: bool = False,
    preference: Preference | None = None,
    terms: Sequence[Term] = (),
) -> tuple[str, str]:
    """Register both loss modes with verl and return their names; verl refuses a second call."""
    from verl.trainer.distillation.losses import DistillationLossSettings, register_distillation_loss

    channels = ChannelOptions(ChannelWeights(alpha, beta), reverse, preference or Preference(), terms)
    own_terms[:] = terms

    def topk(config: Any, distillation_config: Any, model_output: Any, data: Any) -> tuple[Tensor, Metrics]:
        return loss_matrix(channels, distillation_config, model_output, data, use_topk=True)

    def sampled(config: Any, distillation_config: Any, model_output: Any, data: Any) -> tuple[Tensor, Metrics]:
        return loss_matrix(channels, distillation_config, model_output, data, use_topk=False)

    register_distillation_loss(DistillationLossSettings(names=[TOPK], use_topk=True))(topk)
    register_distillation_loss(DistillationLossSettings(names=[SAMPLED], use_estimator=True))(sampled)
    return TOPK, SAMPLED


def loss_matrix(
    channels: ChannelOptions, distillation_config: Any, model_output: Any, data: Any, *, use_topk: bool
) -> tuple[Tensor, Metrics]:  # (rows, response)
    """Return alpha * hint + beta * replay per token, which verl aggregates like its policy loss, and metrics."""
    from verl.workers.utils.padding import no_padding_2_padding

    _check(distillation_config.distillation_loss)
    logps = no_padding_2_padding(model_output["log_probs"], data)
    response_mask = _padded(data["response_mask"]).bool()
    hint = replay = None
    metrics: Metrics = {}
    if channels.weights.alpha:
        hint_mask = _as_mask(_column(data, "hint_mask", "hint"), logps) & response_mask
        if use_topk:
            # verl has computed KL(teacher || student) over the teacher's likeliest tokens. Some of the mass is missing,
            # so single values may be below 0.
            values = no_padding_2_padding(model_output["distillation_losses"], data)[hint_mask].clamp(min=0)
            hint = spread(values, hint_mask)
        else:
            teacher = no_padding_2_padding(data["teacher_logprobs"], data).squeeze(-1)
            hint = hint_tokens(logps, teacher, hint_mask, reverse=channels.reverse)
        metrics |= _hint_metrics(hint, hint_mask)
    if channels.weights.beta:
        rows = pair_rows(
            _column(data, "pair_id", "replay"), [bool(side) for side in _column(data, "pair_is_chosen", "replay")]
        )
        refs = torch.tensor([float(value or 0.0) for value in _column(data, "pair_ref_logp", "replay")])
        replay, terms = replay_tokens(logps, response_mask, refs, rows, channels.preference)
        metrics |= {"channel/replay/pairs": float(len(rows.chosen)), "channel/replay/alone": float(rows.num_alone)}
        if rows.chosen:
            metrics |= {
                "channel/replay/loss": terms.losses.mean().item(),
                "channel/replay/accuracy": terms.correct.float().mean().item(),
                "channel/replay/margin": terms.margins.mean().item(),
            }
    loss = add_channels(torch.zeros_like(logps), channels.weights, hint=hint, replay=replay)
    for term in channels.terms:
        mask = _as_mask(_column(data, f"{term.name}_mask", term.name), logps) & response_mask
        values, _ = term_tokens(term, logps, mask)
        loss = loss + term.weight * values
        if mask.any():
            metrics[f"channel/{term.name}/loss"] = values.sum().item() / int(mask.sum())
    return loss, metrics


def _hint_metrics(hint: Tensor, hint_mask: Tensor) -> Metrics:
    tokens = int(hint_mask.sum())
    metrics = {"channel/hint/tokens": float(tokens)}
    # verl averages a metric over the micro-batches that log it; one without hints must not pull the mean to 0.
    return metrics | ({"channel/hint/divergence": hint.sum().item() / tokens} if tokens else {})


def _check(loss_config: Any) -> None:
    if loss_config.use_policy_gradient:
        raise ChannelError(
            "distillation.distillation_loss.use_policy_gradient is true, which turns the channels into a "
            "reward. Set it to false."
        )


# ------------------------------------------------------------------------------------------------- hints for a rollout


@dataclass(frozen=True, slots=True)
class HintedTurn:
    """A turn before which the teacher reads a hint: its hinted prefix, and its span in the response."""

    prefix_ids: Sequence[int]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class TeacherColumns:
    """The teacher's columns of one rollout, and the mask of the tokens they hold for."""

    ids: Tensor  # (prompt + response, k)
    logprobs: Tensor  # (prompt + response, k); entry p is about token p + 1
    hint_mask: list[int]  # (response,)


async def hinted_teacher(
    ask: Callable[[list[int]], Awaitable[tuple[Tensor, Tensor]]],
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    turns: Sequence[HintedTurn],
    *,
    k: int,
) -> TeacherColumns:
    """Ask the teacher about the sampled tokens of each hinted turn and put its answers at the turn's place.

    `ask` is the server manager's `compute_teacher_logprobs_single`.
    """
    num_tokens = len(prompt_ids) + len(response_ids)
    ids = torch.zeros(num_tokens, k, dtype=torch.int32)
    logprobs, mask = torch.zeros(num_tokens, k), [0] * len(response_ids)
    for turn in turns:
        if not (turn.prefix_ids and 0 <= turn.start < turn.stop <= len(response_ids)):
            raise ChannelError(
                f"A hinted turn spans {turn.start} to {turn.stop} of {len(response_ids)} response tokens after a "
                f"prefix of {len(turn.prefix_ids)}. It must be inside the response, and its prefix must not be empty."
            )
        length = turn.stop - turn.start
        answer_ids, answer = await ask([*turn.prefix_ids, *response_ids[turn.start : turn.stop]])
        # One place earlier, because an entry is about the token that follows it.
        there, here = len(turn.prefix_ids) - 1, len(prompt_ids) + turn.start - 1
        ids[here : here + length] = answer_ids[there : there + length].to(ids)
        logprobs[here : here + length] = answer[there : there + length].to(logprobs)
        mask[turn.start : turn.stop] = [1] * length
    return TeacherColumns(ids, logprobs, mask)


# ------------------------------------------------------------------------------------------------------------ columns


def _column(data: Any, name: str, channel: str) -> Any:
    if name in data:
        column = data[name]
        return column if isinstance(column, Tensor) else list(column)
    # verl's newer loop keeps the additions of agent loops in one column.
    rows = list(data["extra_fields"]) if "extra_fields" in data else []
    if not any(name in row for row in rows):
        raise ChannelError(
            f"The batch has no column {name!r}, which the {channel} channel needs. Let the agent loop put it into "
            "extra_fields of every rollout, or turn the channel off."
        )
    return [row.get(name) for row in rows]


def _as_mask(column: Any, like: Tensor) -> Tensor:  # (rows, response) bool
    """Return a mask from a nested or padded tensor, or from one list per row that may be shorter or None."""
    mask = torch.zeros(like.shape, dtype=torch.bool, device=like.device)
    rows = _padded(column).tolist() if isinstance(column, Tensor) else column
    for number, row in enumerate(rows):
        given = torch.tensor(list(row or ()), dtype=torch.bool)[: like.shape[1]]
        mask[number, : len(given)] = given.to(like.device)
    return mask


def _padded(tensor: Tensor) -> Tensor:
    return tensor.to_padded_tensor(0) if tensor.is_nested else tensor
