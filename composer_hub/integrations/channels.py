"""The hint and replay channels on log-probs per token, for trainers that own the forward pass.

In: log-probs of the sampled tokens by student and teacher, masks, and which rows are the two sides of a pair. Out: one
value per token, never reduced here, so that each trainer averages over tokens or sequences in its own way. The
preference loss is that of `train.losses`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from composer_hub import exits
from composer_hub.train.losses import Preference, PreferenceTerms, preference_loss
from composer_hub.train.rollouts import Rollout
from composer_hub.train.terms import Rollouts, Term

MAX_LOG_RATIO = 20.0  # beyond it exp() swamps every other token


class ChannelError(exits.UsageError):
    """Weights or columns that the channels cannot use."""


@dataclass(frozen=True, slots=True)
class ChannelWeights:
    """The weight of each channel beside the trainer's own loss."""

    alpha: float = 0.0  # of the hint channel
    beta: float = 0.0  # of the replay channel

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise ChannelError(f"{name} is {getattr(self, name)}. Give a weight of 0 (off) or more.")


def add_channels(
    policy: Tensor, weights: ChannelWeights, *, hint: Tensor | None = None, replay: Tensor | None = None
) -> Tensor:
    """Return policy + alpha * hint + beta * replay; a missing or zero-weight channel changes no bit."""
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
    """Estimate each divergence from the sampled token alone; values are never negative.

    In expectation over the student's samples, the gradient is that of KL(teacher || student), and with `reverse` that
    of KL(student || teacher). One token cannot give the gradient of a mixture, so JSD is not available.
    """
    log_ratio = (teacher_logps.detach() - student_logps).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return 0.5 * log_ratio**2 if reverse else log_ratio.exp() - 1.0 - log_ratio


def hint_tokens(
    student_logps: Tensor,  # (…,)
    teacher_logps: Tensor,  # (…,) arbitrary outside the mask
    hint_mask: Tensor,  # (…,) bool
    *,
    reverse: bool = False,
) -> Tensor:  # (…,)
    """Return the divergence of each hint token, and 0 elsewhere."""
    # Select before computing: padding may be infinite, and infinity times 0 is NaN in the gradient.
    picked = sampled_divergence(student_logps[hint_mask], teacher_logps[hint_mask], reverse=reverse)
    return spread(picked, hint_mask)


def spread(picked: Tensor, mask: Tensor) -> Tensor:
    """Return the values at their places in the mask, and 0 elsewhere."""
    return picked.new_zeros(mask.shape).masked_scatter(mask, picked)


# ---------------------------------------------------------------------------------------------------- terms of a user's


class SampledModel:
    """The student where another trainer owns the forward: of `TermModel` it has only `logps`."""

    def __init__(self, logps: Tensor) -> None:  # (…, time)
        self._logps = logps

    def logps(self, mask: Tensor) -> Tensor:
        """Return log p of the sampled tokens under a mask."""
        return self._logps[mask]


def term_columns(terms: Sequence[Term], rollout: Rollout, *, padding: int = 0) -> dict[str, list[int]]:
    """Return the mask of each term on a rollout's completion, as columns `<name>_mask` for a loss elsewhere."""
    alone = Rollouts([rollout], [{}], [0.0], torch.ones(1, len(rollout.completion_ids), dtype=torch.long), padding)
    columns: dict[str, list[int]] = {}
    for term in terms:
        tensors = term.tensors(alone)
        if set(tensors) != {f"{term.name}_mask"}:
            raise ChannelError(
                f"The term {term.name} makes {', '.join(sorted(tensors))}, but only {term.name}_mask travels to another"
                " trainer. Train with ComposerTrainer, or leave the term out."
            )
        columns[f"{term.name}_mask"] = tensors[f"{term.name}_mask"][0].int().tolist()
    return columns


def term_tokens(term: Term, logps: Tensor, mask: Tensor) -> tuple[Tensor, dict[str, Any]]:  # (rows, time) twice
    """Return a term's values at the tokens of its mask, and 0 elsewhere, and its notes."""
    model: Any = SampledModel(logps)
    values, notes = term.values(model, {f"{term.name}_mask": mask}, None)
    return spread(values, mask), notes


# ------------------------------------------------------------------------------------------------------------- replay


@dataclass(frozen=True, slots=True)
class PairRows:
    """The rows of a batch that are the two sides of a pair."""

    chosen: tuple[int, ...]  # row numbers
    rejected: tuple[int, ...]
    num_alone: int  # rows without their other side in this batch


def pair_rows(pair_ids: list[str | int | None], is_chosen: list[bool]) -> PairRows:
    """Find both sides of each pair; of repeated pairs, the n-th chosen belongs to the n-th rejected."""
    sides: dict[str | int, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for row, (pair_id, chosen) in enumerate(zip(pair_ids, is_chosen, strict=True)):
        if pair_id not in (None, "", -1):
            sides[pair_id][0 if chosen else 1].append(row)
    both = [pair for chosen, rejected in sides.values() for pair in zip(chosen, rejected, strict=False)]
    num_rows = sum(len(chosen) + len(rejected) for chosen, rejected in sides.values())
    return PairRows(tuple(c for c, _ in both), tuple(r for _, r in both), num_rows - 2 * len(both))


def replay_tokens(
    token_logps: Tensor,  # (rows, time)
    answer_mask: Tensor,  # (rows, time) bool
    ref_logps: Tensor,  # (rows,) reference log p of the row's whole answer
    rows: PairRows,
    how: Preference,
) -> tuple[Tensor, PreferenceTerms]:  # (rows, time)
    """Return the preference loss of a pair on every token of its two answers, 0 elsewhere, and its terms.

    A mean over tokens or over sequences is then a mean over pairs.
    """
    chosen, rejected = (
        torch.tensor(side, dtype=torch.long, device=token_logps.device) for side in (rows.chosen, rows.rejected)
    )
    sums, lengths = spread(token_logps[answer_mask], answer_mask).sum(-1), answer_mask.sum(-1)
    refs = ref_logps.to(sums)
    terms = preference_loss(sums[chosen], sums[rejected], refs[chosen], refs[rejected], lengths[chosen], how)
    row_losses = sums.new_zeros(len(sums)).index_put((torch.cat([chosen, rejected]),), torch.cat([terms.losses] * 2))
    return row_losses[:, None] * answer_mask, terms
