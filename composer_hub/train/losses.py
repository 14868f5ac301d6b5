"""The two added terms as pure functions of tensors: hint divergence and preference loss.

In: hidden states of the selected rows and the language-model head (or logits), published reference log-probs. Out: one
number per token or pair. Nothing is reduced here except by `mean_over`, which divides by the global count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from composer_hub.train.sharded import gathered

ROWS_A_TILE = 32  # of TRL's kernel on a CPU, if the head is frozen
ROWS_A_CHUNK = 8  # a chunk holds about a dozen arrays of this many rows of logits
VOCAB_A_CHUNK = 32_768


@dataclass(frozen=True, slots=True)
class Head:
    """The output layer of a language model: weight (vocab, hidden), bias, scale and soft cap."""

    weight: Tensor  # (vocab, hidden)
    bias: Tensor | None = None  # (vocab,)
    scale: float = 1.0
    softcap: float | None = None

    def logits(self, hidden: Tensor) -> Tensor:  # (rows, hidden) -> (rows, vocab)
        """Return the logits of some rows."""
        logits = F.linear(
            hidden, self.weight.to(hidden.dtype), None if self.bias is None else self.bias.to(hidden.dtype)
        )
        logits = logits * self.scale
        return logits if self.softcap is None else self.softcap * torch.tanh(logits / self.softcap)


# ----------------------------------------------------------------------------------------------------- hint divergence


def divergence_from_logits(
    student_logits: Tensor,  # (…, vocab)
    teacher_logits: Tensor,  # (…, vocab)
    *,
    beta: float = 0.5,
) -> Tensor:  # (…,)
    """Return each token's divergence: KL(teacher || student) at beta 0, KL(student || teacher) at 1, JSD in between.

    The mixture of the JSD is (1 - beta) * student + beta * teacher.
    """
    log_s = F.log_softmax(student_logits, dim=-1)
    log_t = F.log_softmax(teacher_logits.detach(), dim=-1)
    if beta == 0.0:
        return _kl(log_t, log_s)
    if beta == 1.0:
        return _kl(log_s, log_t)
    log_m = torch.logaddexp(log_s + math.log1p(-beta), log_t + math.log(beta))
    return beta * _kl(log_t, log_m) + (1.0 - beta) * _kl(log_s, log_m)


def divergence_from_hidden(
    student_hidden: Tensor,  # (rows, hidden), with grad
    student_head: Head,
    teacher_hidden: Tensor,  # (rows, hidden)
    teacher_head: Head,
    *,
    beta: float = 0.5,
    kernel: bool | None = None,
) -> tuple[Tensor, Tensor]:  # (rows,), (rows,)
    """Return each row's divergence, and the student's entropy, without holding the logits of all rows in memory.

    `kernel` chooses TRL's fused kernel (True) or the chunked fallback (False). None takes the kernel if there is one.
    """
    if student_hidden.shape[0] == 0:
        # An empty selection stays connected to the graph, so that every rank runs the same backward pass.
        return student_hidden.sum(-1), student_hidden.sum(-1).detach()
    fused = _trl_divergence() if kernel is not False else None
    if kernel and fused is None:
        raise ValueError("This version of TRL has no divergence kernel. Leave `kernel` out to use the chunked path.")
    if fused is not None and student_hidden.dtype != torch.float64:
        # Written in torch, as on a CPU, the kernel holds a dozen copies of a tile of logits. A frozen head has no
        # gradient to sum up, so its rows are read in pieces: a third of the memory in the same time.
        is_frozen = student_hidden.device.type == "cpu" and not student_head.weight.requires_grad
        size = ROWS_A_TILE if is_frozen else len(student_hidden)
        # It gives no gradient to the teacher. ZeRO-3 needs the parameters themselves, because it gathers them by id.
        found = [
            fused.apply(
                student,
                student_head.weight,
                student_head.bias,
                teacher,
                teacher_head.weight,
                teacher_head.bias,
                beta,
                1.0,  # temperature
                student_head.scale,
                student_head.softcap,
                teacher_head.scale,
                teacher_head.softcap,
            )
            for student, teacher in zip(student_hidden.split(size), teacher_hidden.detach().split(size), strict=True)
        ]
        divergences, entropies = zip(*found, strict=True)
        return torch.cat(divergences), torch.cat(entropies)

    def chunk(student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            teacher_logits = teacher_head.logits(teacher)
        logits = student_head.logits(student)
        return divergence_from_logits(logits, teacher_logits, beta=beta), _entropy(logits)

    return _in_chunks(chunk, student_hidden, teacher_hidden.detach())


def hint_loss(
    student_logits: Tensor,  # (…, time, vocab), with grad: of the action's tokens after the plain prompt
    teacher_logits: Tensor,  # (…, time, vocab): of the same tokens after the hinted prompt
    mask: Tensor | None = None,  # (…, time) bool: which tokens count; None counts all
    *,
    beta: float = 0.5,
    num_items: Tensor | float | None = None,
) -> Tensor:
    """Return the mean divergence between a student and its hinted teacher, for use in another trainer's loss.

    Both models read the same sampled tokens; only the teacher has read the hint. `num_items` divides the sum by a count
    over several micro-batches or ranks instead of this batch's own.
    """
    values = divergence_from_logits(student_logits, teacher_logits, beta=beta)
    counted = torch.ones_like(values, dtype=torch.bool) if mask is None else mask
    return mean_over(values, counted.sum() if num_items is None else num_items, mask=counted)


def mean_over(
    values: Tensor, count: Tensor | float, *, mask: Tensor | None = None, weight: Tensor | None = None
) -> Tensor:
    """Divide the sum of the counted values by a count that may cover more than this batch; 0 if nothing counts."""
    kept = values if mask is None else values * mask
    kept = kept if weight is None else kept * weight
    return kept.sum() / torch.as_tensor(count, device=values.device, dtype=values.dtype).clamp(min=1)


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)


def _trl_divergence() -> type[torch.autograd.Function] | None:
    try:
        from trl.kernels.chunked_divergence import ChunkedDivergenceFunction
    except ImportError:
        return None
    return ChunkedDivergenceFunction


# ---------------------------------------------------------------------------------------------------------- log-probs


def token_logps(
    hidden: Tensor,  # (rows, hidden)
    head: Head,
    targets: Tensor,  # (rows,)
    *,
    kernel: bool | None = None,
) -> tuple[Tensor, Tensor]:  # (rows,), (rows,)
    """Return log p(target) of each row at temperature 1, and the entropy without a gradient, in chunks of logits.

    Reference log-probs are published at temperature 1, so the policy's must not go through a head that divides by the
    sampling temperature. `kernel` is that of `divergence_from_hidden`.
    """
    if hidden.shape[0] == 0:
        return hidden.sum(-1), hidden.sum(-1).detach()
    fused = _trl_logps() if kernel is not False else None
    if fused is not None and hidden.dtype != torch.float64:
        # Its backward gathers a head that ZeRO-3 has sharded, its forward does not.
        with gathered(head.weight, head.bias):
            logps, entropy, *_ = fused.apply(
                hidden, head.weight, head.bias, targets, 1.0, VOCAB_A_CHUNK, head.softcap, head.scale, ("entropy",)
            )
        return logps, entropy.detach()

    def chunk(rows: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        logits = head.logits(rows).float() if rows.dtype != torch.float64 else head.logits(rows)
        return logits.gather(-1, wanted[:, None])[:, 0] - logits.logsumexp(-1), _entropy(logits)

    return _in_chunks(chunk, hidden, targets)


def _in_chunks(chunk: Callable[..., tuple[Tensor, Tensor]], *rows: Tensor) -> tuple[Tensor, Tensor]:
    """Run a function of some rows in chunks, whose logits backward computes again."""
    pieces = zip(*(one.split(ROWS_A_CHUNK) for one in rows), strict=True)
    values, entropies = zip(*(checkpoint(chunk, *piece, use_reentrant=False) for piece in pieces), strict=True)
    return torch.cat(values), torch.cat(entropies)


@torch.no_grad()
def _entropy(logits: Tensor) -> Tensor:  # (rows, vocab) -> (rows,)
    log_p = F.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(-1)


def _trl_logps() -> type[torch.autograd.Function] | None:
    try:
        from trl.kernels import ChunkedLogProbFunction
    except ImportError:
        return None
    return ChunkedLogProbFunction


# ---------------------------------------------------------------------------------------------------- preference loss


@dataclass(frozen=True, slots=True)
class Preference:
    """The form of the preference loss."""

    beta: float = 0.1  # strength of the pull to the reference
    nll_weight: float = 0.0  # weight of -log p(chosen) per token, so that both log-probs do not fall together


@dataclass(frozen=True, slots=True)
class PreferenceTerms:
    """One value per pair; only `losses` has a gradient."""

    losses: Tensor  # (pairs,)
    margins: Tensor  # (pairs,) beta * (how much more chosen gained over the reference than rejected)
    correct: Tensor  # (pairs,) bool: the margin is positive
    chosen_drift: Tensor  # (pairs,) log p(chosen) now minus reference


def preference_loss(
    chosen_logps: Tensor,  # (pairs,) sums over the answer's tokens
    rejected_logps: Tensor,  # (pairs,)
    ref_chosen_logps: Tensor,  # (pairs,)
    ref_rejected_logps: Tensor,  # (pairs,)
    chosen_lengths: Tensor,  # (pairs,)
    how: Preference,
) -> PreferenceTerms:
    """Return DPO's sigmoid loss of each pair against published reference log-probs."""
    chosen_drift = chosen_logps - ref_chosen_logps
    logits = how.beta * (chosen_drift - (rejected_logps - ref_rejected_logps))
    losses = -F.logsigmoid(logits)
    if how.nll_weight:
        losses = losses - how.nll_weight * chosen_logps / chosen_lengths.clamp(min=1)
    return PreferenceTerms(losses, logits.detach(), logits > 0, chosen_drift.detach())
