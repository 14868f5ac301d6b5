"""The added terms of one micro-batch, before each is divided by its own count.

In: a batch of the trainer, the hidden states of its policy forward, the student and a teacher, or a batch of pairs.
Out: one value per token or pair, with its gradient, and numbers for the log under the same names on every rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from composer_hub.train.batch import teacher_rows
from composer_hub.train.config import ComposerConfig
from composer_hub.train.losses import (
    Head,
    Preference,
    clip_tokens,
    divergence_from_hidden,
    preference_loss,
    token_logps,
)
from composer_hub.train.pair_loader import PairBatch
from composer_hub.train.sharded import is_sharded
from composer_hub.train.teacher import HintTeacher, head_of, keeping_hidden, without_dropout
from composer_hub.train.uplift import row_sums

Notes = dict[str, Any]


def hint_values(
    args: ComposerConfig,
    inputs: dict[str, Any],
    hidden: Tensor,  # (batch, time, width), with grad
    network: nn.Module,
    teacher: HintTeacher,
) -> tuple[Tensor, Notes]:
    """Return the divergence of each hint token."""
    notes: Notes = {"channel/hint/divergence": [], "channel/hint/entropy": []}
    rows = teacher_rows(inputs)
    if rows is None:
        if not is_sharded(network):
            return hidden.new_zeros(0), notes
        # Another rank reads its sites, and every forward of sharded weights needs all ranks: one token that weighs 0.
        ids = hidden.new_zeros((1, 1), dtype=torch.long)
        read, teacher_head = teacher.read(ids, torch.ones_like(ids))
        values, _ = token_values(args, hidden[:1, 0], head_of(network), read[:, 0], teacher_head)
        return values * 0.0, notes
    places = hidden.size(1) - 1 - inputs["completion_ids"].size(1) + rows.student[:, 1]
    read, teacher_head = teacher.read(rows.ids, rows.attention)
    student, hinted = hidden[rows.student[:, 0], places], read[:, :-1][rows.teacher]
    values, found = token_values(args, student, head_of(network), hinted, teacher_head)
    notes |= {f"channel/hint/{name}": value for name, value in found.items()}
    return values, notes


def token_values(
    args: ComposerConfig,
    student: Tensor,  # (tokens, width), with grad
    head: Head,
    hinted: Tensor,  # (tokens, width)
    teacher_head: Head,
) -> tuple[Tensor, Notes]:
    """Return the clipped divergence of each token, and the notes by the last part of their name."""
    values, entropies = divergence_from_hidden(student, head, hinted, teacher_head, beta=args.hint_divergence)
    values = clip_tokens(values, args.hint_token_clip)
    return values, {"divergence": values.detach(), "entropy": entropies}


def replay_losses(
    args: ComposerConfig, batch: PairBatch, network: nn.Module, *, through: nn.Module | None = None
) -> tuple[Tensor, Notes]:
    """Return the preference loss of each pair; the forward goes `through` the wrapped network if one is given."""
    read = network if through is None else through
    # As the reference was read; and a channel that weighs nothing must not take random numbers from the policy.
    with without_dropout(network), keeping_hidden(network) as kept:
        read(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False, logits_to_keep=1)
    answer = batch.answer_mask[:, 1:]
    logps, entropies = token_logps(kept[-1][:, :-1][answer], head_of(network), batch.input_ids[:, 1:][answer])
    chosen, rejected = row_sums(logps, answer).chunk(2)
    long_chosen, long_rejected = answer.sum(1).chunk(2)
    how = Preference(
        kind=args.replay_loss,
        beta=args.replay_strength,
        nll_weight=args.replay_nll_weight,
    )
    terms = preference_loss(chosen, rejected, batch.ref_chosen, batch.ref_rejected, long_chosen, long_rejected, how)
    return terms.losses, {
        "channel/replay/loss": terms.losses.detach(),
        "channel/replay/accuracy": terms.correct.float(),
        "channel/replay/margin": terms.margins,
        "channel/replay/chosen_drift": terms.chosen_drift,
        "channel/replay/length": long_chosen.float(),
        "channel/replay/entropy": entropies[: int(long_chosen.sum())],  # rows are in order, chosen ones first
    }
