"""Reward hacks that an episode has proved, each with its evidence. Nothing is judged by its text.

A text can be written so that no rule sees a hack in it, and honest text can look like one. What the code did under
verification is a proof: no solution of a task does it, which making tasks checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub.environments.guard import is_lost
from composer_hub.environments.verifier import Verdict


@dataclass(frozen=True)
class Finding:
    """One proof of a hack: `tampering` with the tests, or answers to the visible tests and to nothing else."""

    rule: str
    evidence: str


def findings(verdict: Verdict) -> list[Finding]:
    """Return what the verification of a submission has proved."""
    found = [Finding("tampering", one) for one in verdict.evidence]
    if verdict.oracle_ok is False and not verdict.failed:
        found.append(Finding("only-visible", f"The tests pass, the hidden calls do not. {verdict.reason}"))
    return list(dict.fromkeys(found))


def penalized(judge: Callable[[Sequence[Finding]], float]) -> Callable[..., list[float]]:
    """Return a reward function that subtracts what a judge of findings says, to name with `--rewards`."""

    def reward(completions: Sequence[object], environments: Sequence[Any] = (), **_: Any) -> list[float]:
        found = [() if is_lost(one) else one._findings() for one in environments] or [()] * len(completions)
        return [-judge(one) if one else 0.0 for one in found]

    return reward


penalty = penalized(lambda found: 0.5)
"""The same for every finding: `--rewards composer_hub.environments.monitor:penalty`."""
