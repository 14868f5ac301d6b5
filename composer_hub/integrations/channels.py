"""The two added channels where another trainer owns the forward: from log-probs a token, not from hidden states.

In: log-probs of the sampled tokens by student and teacher, masks, and which rows are the two sides of a pair. Out: one
number a token, never reduced here, so that a trainer that averages over tokens or sequences does it its own way.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor

from composer_hub import exits
from composer_hub.train.losses import Preference, PreferenceTerms, clip_tokens, preference_loss

MAX_LOG_RATIO = 20.0  # beyond it exp() swamps every other token


class ChannelError(exits.UsageError):
    """Weights or columns that the channels cannot work with."""


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each added channel counts beside the trainer's own loss."""

    alpha: float = 0.0  # of the hint channel
    beta: float = 0.0  # of the replay channel

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ChannelError(f"{name} is {getattr(self, name)}: give a weight of 0 (off) or more.")


def add_channels(
    policy: Tensor, weights: Weights, *, hint: Tensor | None = None, replay: Tensor | None = None
) -> Tensor:
    """Return policy + alpha * hint + beta * replay; a channel that is not there or weighs 0 is left out, to the bit."""
    loss = policy
    if weights.alpha and hint is not None:
        loss = loss + weights.alpha * hint
    if weights.beta and replay is not None:
        loss = loss + weights.beta * replay
    return loss


# --------------------------------------------------------------------------------------------------------------- hint


def sampled_divergence(
    student_logps: Tensor,  # (tokens,) of the tokens that the student sampled
    teacher_logps: Tensor,  # (tokens,) of the same tokens, after the hint
    *,
    reverse: bool = False,
) -> Tensor:  # (tokens,)
    """Estimate each token's divergence from the one token that was sampled; never negative.

    Averaged over what the student samples, its gradient is that of KL(teacher || student), and with `reverse` that of
    KL(student || teacher). One token cannot give the gradient of a mixture, so there is no JSD here.
    """
    log_ratio = (teacher_logps.detach() - student_logps).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return 0.5 * log_ratio**2 if reverse else log_ratio.exp() - 1.0 - log_ratio


def hint_tokens(
    student_logps: Tensor,  # (…,)
    teacher_logps: Tensor,  # (…,) of any value outside the mask
    hint_mask: Tensor,  # (…,) bool
    *,
    reverse: bool = False,
    token_clip: float | None = None,
) -> Tensor:  # (…,)
    """Return the divergence of each hint token, and 0 elsewhere."""
    # Rows are picked before the formula: what a trainer pads with may be infinite, and infinity times 0 is no gradient.
    picked = sampled_divergence(student_logps[hint_mask], teacher_logps[hint_mask], reverse=reverse)
    return spread(clip_tokens(picked, token_clip), hint_mask)


def spread(picked: Tensor, mask: Tensor) -> Tensor:
    """Put the values of the picked tokens back at their places, with 0 elsewhere."""
    return picked.new_zeros(mask.shape).masked_scatter(mask, picked)


# ------------------------------------------------------------------------------------------------------------- replay


@dataclass(frozen=True, slots=True)
class Couples:
    """Which rows of a batch are the two sides of a pair."""

    chosen: tuple[int, ...]  # row numbers
    rejected: tuple[int, ...]
    num_alone: int  # rows whose other side is not in this batch


def couples(pair_ids: list[str | int | None], is_chosen: list[bool]) -> Couples:
    """Find both sides of each pair; of a pair that stands there several times the n-th sides belong together."""
    sides: dict[str | int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for row, (pair_id, chosen) in enumerate(zip(pair_ids, is_chosen, strict=True)):
        if pair_id not in (None, "", -1):
            sides[pair_id][0 if chosen else 1].append(row)
    both = [couple for chosen, rejected in sides.values() for couple in zip(chosen, rejected, strict=False)]
    num_rows = sum(len(chosen) + len(rejected) for chosen, rejected in sides.values())
    return Couples(tuple(c for c, _ in both), tuple(r for _, r in both), num_rows - 2 * len(both))


def replay_tokens(
    token_logps: Tensor,  # (rows, time)
    answer_mask: Tensor,  # (rows, time) bool
    ref_logps: Tensor,  # (rows,) log p of the row's whole answer by the reference
    found: Couples,
    how: Preference,
) -> tuple[Tensor, PreferenceTerms]:  # (rows, time)
    """Return the preference loss of a pair on each token of both its answers, 0 elsewhere, and its terms.

    A trainer that averages over tokens or over sequences then averages over pairs.
    """
    chosen, rejected = (
        torch.tensor(rows, dtype=torch.long, device=token_logps.device) for rows in (found.chosen, found.rejected)
    )
    sums, lengths = spread(token_logps[answer_mask], answer_mask).sum(-1), answer_mask.sum(-1)
    refs = ref_logps.to(sums)
    terms = preference_loss(
        sums[chosen], sums[rejected], refs[chosen], refs[rejected], lengths[chosen], lengths[rejected], how
    )
    a_row = sums.new_zeros(len(sums)).index_put((torch.cat([chosen, rejected]),), torch.cat([terms.losses] * 2))
    return a_row[:, None] * answer_mask, terms
