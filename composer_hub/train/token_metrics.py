"""The hint channel's effect on each token of a few rollouts, for inspection only.

In: rollouts with their sites and advantages, a student and a teacher. Out: one number or None per token of each
completion: divergence and uplift at its sites, advantage on sampled tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from composer_hub.train.batch import HintSite
from composer_hub.train.losses import Head, divergence_from_hidden, token_logps
from composer_hub.train.rollouts import Rollout
from composer_hub.train.teacher import HintTeacher

NUM_ROLLOUTS = 2  # per measured batch and rank
Values = list[float | None]


@dataclass(frozen=True, slots=True)
class TokenDiagnostics:
    """The numbers of one rollout; each list is as long as its completion, or empty if it was not measured."""

    divergence: Values = field(default_factory=list)  # between student and hinted teacher
    uplift: Values = field(default_factory=list)  # log p of the token: the teacher's with the hint minus the student's
    advantage: Values = field(default_factory=list)


def sample(sites: Sequence[Sequence[HintSite]], count: int = NUM_ROLLOUTS) -> list[int]:
    """Return the rollouts to measure; those with sites come first."""
    return sorted(range(len(sites)), key=lambda row: (not sites[row], row))[:count]


@torch.no_grad()
def token_diagnostics(
    rollout: Rollout,
    sites: Sequence[HintSite],
    advantage: float,
    student: HintTeacher,
    teacher: HintTeacher,
    *,
    beta: float = 0.5,
) -> TokenDiagnostics:
    """Return the numbers of one rollout."""
    length = len(rollout.completion_ids)
    divergence: Values = [None] * length
    uplift: Values = [None] * length
    for site in sites:
        plain, plain_head = _action_hidden(student, site.prefix_ids, site)
        hinted, hinted_head = _action_hidden(teacher, site.hinted_ids, site)
        action = torch.tensor(list(site.action_ids), device=plain.device)
        values, _ = divergence_from_hidden(plain, plain_head, hinted, hinted_head, beta=beta)
        without, _ = token_logps(plain, plain_head, action)
        with_hint, _ = token_logps(hinted, hinted_head, action)
        span = slice(*site.span)
        divergence[span] = _rounded(values)
        uplift[span] = _rounded(with_hint - without)
    return TokenDiagnostics(
        divergence, uplift, [round(advantage, 5) if sampled else None for sampled in rollout.tool_mask]
    )


def _action_hidden(reader: HintTeacher, before: Sequence[int], site: HintSite) -> tuple[torch.Tensor, Head]:
    device = next(reader.student.parameters()).device
    ids = torch.tensor([[*before, *site.action_ids]], device=device)
    hidden, head = reader.read(ids, torch.ones_like(ids))
    return hidden[0, -1 - site.num_tokens : -1], head


def _rounded(values: torch.Tensor) -> Values:
    return [round(value, 5) for value in values.float().tolist()]
