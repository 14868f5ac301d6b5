"""Signs of reward hacks that verification itself has seen, each with its evidence. Nothing is judged by its text.

A text can be written so that no rule sees a hack in it, and honest text can look like one. What the code did beside the
tests cannot be argued with: no solution of a task does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from composer_hub.environments.guard import is_lost
from composer_hub.environments.verifier import Verdict

TAMPERING, ONLY_VISIBLE = "tampering", "only-visible"


@dataclass(frozen=True)
class HackSign:
    """A sign of a hack: tampering with the tests, or wrong answers to the oracle despite visible success."""

    rule: str
    evidence: str


def findings(verdict: Verdict) -> list[HackSign]:
    """Return the findings of a submission's verification."""
    found = [HackSign(TAMPERING, one) for one in verdict.evidence]
    if verdict.oracle_ok is False and not verdict.failed:
        found.append(HackSign(ONLY_VISIBLE, f"The tests pass, the hidden calls do not. {verdict.reason}"))
    return list(dict.fromkeys(found))


def penalized(judge: Callable[[Sequence[HackSign]], float]) -> Callable[..., list[float]]:
    """Return a reward function that subtracts a tampering judge's score, to name with `--rewards`."""

    def reward(completions: Sequence[object], environments: Sequence[Any] = (), **_: Any) -> list[float]:
        found = [() if is_lost(one) else one._findings() for one in environments] or [()] * len(completions)
        # An honest mistake that no test shows is also `only-visible`; its reward is 0, and that is enough.
        proven = [[finding for finding in one if finding.rule == TAMPERING] for one in found]
        return [-judge(one) if one else 0.0 for one in proven]

    return reward


penalty = penalized(lambda found: 0.5)
"""The same for every submission that tampers: `--rewards composer_hub.environments.monitor:penalty`."""
