"""The student's uncertainty at each step of recorded traces, and whether it finds the steps that matter.

In: traces and a model. Out: one row per step, {step_id, entropy}, as `replay --entropy` reads them: the mean entropy of
the tokens of the recorded action at temperature 1, from one forward. `judged` compares the order that it gives with
steps that are known to matter: those where the agent erred, and those where teachers agreed against it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from composer_hub.records import Trace
from composer_hub.train.losses import token_logps
from composer_hub.train.teacher import head_of, keeping_hidden
from composer_hub.train.trace_sites import TraceEncoder
from composer_hub.train.uplift import Row, right_padded, row_sums


@dataclass(frozen=True, slots=True)
class StepEntropy:
    """The mean entropy of a step's tokens, in nats."""

    step_id: str
    entropy: float
    erred: bool  # the agent, by an error site that is its own fault


@torch.no_grad()
def mean_entropies(network: Any, rows: Sequence[Row]) -> list[float]:
    """Return the mean entropy of the tokens of each action after its prefix."""
    device = next(network.parameters()).device
    ids, attention, action = (tensor.to(device) for tensor in right_padded(rows))
    with keeping_hidden(network) as kept:
        network(input_ids=ids, attention_mask=attention, use_cache=False, logits_to_keep=1)
    answer = action[:, 1:]
    _, entropy = token_logps(kept[-1][:, :-1][answer], head_of(network), ids[:, 1:][answer])
    return (row_sums(entropy, answer) / answer.sum(1)).tolist()


def step_entropies(
    network: Any, encoder: TraceEncoder, traces: Iterable[Trace], left_out: Counter[str], *, batch_size: int = 8
) -> Iterator[StepEntropy]:
    """Yield each step that the student can read; count the others by reason."""
    network.eval()
    waiting: list[tuple[str, bool, Row]] = []

    def read() -> Iterator[StepEntropy]:
        found = mean_entropies(network, [row for _, _, row in waiting]) if waiting else []
        for (step_id, erred, _), entropy in zip(waiting, found, strict=True):
            yield StepEntropy(step_id, entropy, erred)
        waiting.clear()

    for trace in traces:
        for step in trace.steps:
            tokens = encoder.tokens_of(trace, step)
            if isinstance(tokens, str):
                left_out[tokens] += 1
                continue
            erred = any(site.blame == "model" for site in step.error_sites)
            waiting.append((step.step_id, erred, tokens))
            if len(waiting) == batch_size:
                yield from read()
    yield from read()


@dataclass(frozen=True, slots=True)
class Judgement:
    """How well high entropy finds some steps."""

    steps: str  # what they are
    num_steps: int
    entropy: float | None  # mean of these steps
    others: float | None  # mean of all others
    found_by_top_30: float | None  # share of them among the 30 % of highest entropy; chance is .3
    auc: float | None  # chance that one of them has a higher entropy than another step; .5 says nothing


def judged(entropy: Mapping[str, float], steps: Collection[str], name: str) -> Judgement:
    """Compare the order by entropy with the steps that matter."""
    mine = [value for step, value in entropy.items() if step in steps]
    others = [value for step, value in entropy.items() if step not in steps]
    if not mine or not others:
        return Judgement(name, len(mine), _mean(mine), _mean(others), None, None)
    top = sorted(entropy, key=lambda step: (-entropy[step], step))[: max(1, round(0.3 * len(entropy)))]
    found = sum(step in steps for step in top) / len(mine)
    return Judgement(name, len(mine), _mean(mine), _mean(others), found, _auc(mine, others))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _auc(mine: Sequence[float], others: Sequence[float]) -> float:
    """Return the share of pairs in which the first is higher; a tie counts half."""
    ordered = sorted(others)
    wins = sum(bisect_left(ordered, value) + bisect_right(ordered, value) for value in mine)
    return wins / (2 * len(mine) * len(others))
