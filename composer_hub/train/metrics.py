"""Metrics under stable names: means over all ranks, and each channel's share of the gradient.

In: the numbers of each rank, and the terms of a loss. Out: entries of the trainer's metrics, the same on every rank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn

from composer_hub.records import Hint
from composer_hub.train.rollouts import Rollout
from composer_hub.train.teacher import causal_lm

METRICS = {
    "channel/policy/loss": "GRPO's term alone.",
    "channel/policy/entropy": "Entropy of the sampled tokens, nats, at the sampling temperature.",
    "channel/policy/length": "Sampled tokens per rollout, without tool results.",
    "channel/policy/grad_share": "Its share of the gradient (see below).",
    "channel/<term>/loss": "A term before its weight: `hint`, `replay`, `hint_traces` or your own.",
    "channel/<term>/weight": "Its weight, after a watchdog may have halved it.",
    "channel/<term>/grad_share": "Its share of the gradient.",
    "channel/hint/divergence": "Mean divergence of the hint tokens.",
    "channel/hint/entropy": "Entropy of the policy on the hint tokens, at temperature 1.",
    "channel/hint/tokens": "Tokens per site.",
    "channel/hint/sites_per_rollout": "Sites per rollout that are learned from.",
    "channel/hint/writer/<writer>": "Share of the sites with a hint of this writer.",
    "channel/hint/uplift": "Mean uplift of the measured sites, nats.",
    "channel/hint/uplift/<writer>": "The same by writer.",
    "channel/hint/lowered": "By how much hints lower the failed action.",
    "channel/hint/raised": "By how much they raise the corrected one.",
    "channel/hint/left_out/<reason>": (
        "Failed turns per rollout that are not learned from: `too_long`, `no_hint`, `refused` (by "
        "the preflight), `no_place` (in the template), `later` (than the first `max_hint_sites`) or"
        " `not_exact`."
    ),
    "channel/replay/accuracy": "Pairs whose margin is positive.",
    "channel/replay/margin": "How much more chosen gained over the reference than rejected.",
    "channel/replay/chosen_drift": "log p(chosen) minus the reference's, in nats per answer.",
    "channel/replay/length": "Tokens of the chosen answers.",
    "channel/replay/entropy": "Entropy of the policy on their tokens, at temperature 1.",
    "rollout/errors": "Error sites per rollout, of any blame.",
    "rollout/malformed_calls": "Turns per rollout whose tool markup did not parse.",
    "rollout/dropped_results": (
        "Results per rollout that did not fit and ended it; TRL counts such a rollout as complete."
    ),
    "rollout/stuck": (
        "Share of rollouts without an error, a success or a difference in reward to their group: "
        "nothing can be learned from them."
    ),
    "rollout/cut_off": "Share of rollouts whose last turn ran out of tokens.",
    "rollout/env_timeouts": "Episodes of a batch that were lost because a call took too long.",
    "rollout/env_lost": "Episodes of a batch that were lost: they have no reward and no hints.",
    "rollout/oracle_share": "Share of rollouts whose task has a hidden oracle.",
    "rollout/visible_gap": "Share of rollouts that pass the visible tests, minus the mean reward.",
    "rollout/hack_share": "Share of rollouts that the monitor found to cheat.",
    "outer/bytes": "Bytes that each rank gave to an exchange, with `sync_every`.",
    "outer/spread": "The largest distance of a rank's weights from their mean at an exchange.",
}
"""Every metric that a run logs beside TRL's own, with its meaning, for the reference."""


def note_means(accelerator: Any, metrics: dict[str, list[float]], values: dict[str, Any]) -> None:
    """Log the mean of each metric over all ranks; every rank must call this with the same names.

    A name without a number on any rank is left out.
    """
    device = accelerator.device
    flat = [torch.as_tensor(value, device=device, dtype=torch.float64) for value in values.values()]
    local = torch.stack([torch.stack([v.sum(), torch.tensor(float(v.numel()), device=device)]) for v in flat])
    totals = accelerator.reduce(local, reduction="sum").tolist()
    for name, (total, count) in zip(values, totals, strict=True):
        if count:
            metrics[name].append(total / count)


def note_writers(metrics: dict[str, list[float]], name: str, hints: Iterable[Hint]) -> None:
    """Log each writer's share of the hints of all ranks; every rank must call this."""
    writers = Counter(gather_object([hint.writer for hint in hints]))
    for writer, count in writers.items():
        metrics[f"{name}/writer/{writer}"].append(count / writers.total())


def rollout_means(rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
    """Return one number per rollout and metric: its errors by rule, and whether its last turn was cut off."""
    errors = [[site for step in rollout.trace.steps for site in step.error_sites] for rollout in rollouts]

    def counted(rule: str) -> list[float]:
        return [float(sum(site.rule.startswith(rule) for site in found)) for found in errors]

    return {
        "rollout/errors": counted(""),
        "rollout/malformed_calls": counted("rollout.malformed_call"),
        "rollout/dropped_results": counted("rollout.dropped_result"),
        "rollout/cut_off": [float(rollout.cut_off) for rollout in rollouts],
    }


def probed_parameter(network: nn.Module) -> nn.Parameter | None:
    """Return the last trained matrix below the head, at which gradient shares are cheap to read."""
    head = causal_lm(network).get_output_embeddings()  # type: ignore[operator]
    trained = [
        value
        for value in network.parameters()
        if value.requires_grad and value.dim() > 1 and (head is None or value is not head.weight)
    ]
    return trained[-1] if trained else None


def gradient_norms(terms: Mapping[str, Tensor], at: Tensor) -> dict[str, float]:
    """Return the norm of each term's gradient at one tensor; the graph is kept and no `.grad` is touched."""
    norms = {}
    for name, term in terms.items():
        (grad,) = torch.autograd.grad(term, at, retain_graph=True, allow_unused=True) if term.requires_grad else (None,)
        norms[name] = 0.0 if grad is None else grad.detach().float().norm().item()
    return norms


def note_shares(accelerator: Any, metrics: dict[str, list[float]], norms: Mapping[str, float]) -> None:
    """Log each channel's share of the sum of the norms over all ranks; every rank must call this."""
    local = torch.tensor(list(norms.values()), device=accelerator.device)
    totals = accelerator.reduce(local, reduction="sum").tolist()
    if sum(totals) > 0:
        for name, total in zip(norms, totals, strict=True):
            metrics[f"channel/{name}/grad_share"].append(total / sum(totals))
