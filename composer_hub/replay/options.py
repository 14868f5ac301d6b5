"""The options of a replay: in which order teachers are asked, for which policy, and which steps are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from composer_hub import exits
from composer_hub.named_files import text_of
from composer_hub.pairs.policy import Policy

ORDERS = ("cascade", "sequential", "all")
AUTO = "auto"  # one teacher after the other, as long as a further pair is worth its price


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The order of asking, the policy to answer, and the steps to leave out."""

    order: str = "cascade"  # one of ORDERS, or AUTO
    agreement: Policy = field(default_factory=Policy)  # the policy by which pairs will be made
    audit: float = 0.03  # share of the steps that are asked in full although the order would stop
    repeat: float = 0.02  # share of the steps on which the first teacher is asked twice
    entropy: Mapping[str, float] = field(default_factory=dict)  # of the student, by step id
    min_entropy: float | None = None  # steps below are left out, except for the audit
    own_endpoint: bool = False  # send unredacted traces, to loopback addresses only
    patience_s: float = 0.0  # how long a server that cannot be reached is waited for
    max_usd_per_pair: float | None = None  # of `auto`; None: five times the median of the pairs so far

    def __post_init__(self) -> None:
        if self.order not in (*ORDERS, AUTO):
            raise exits.UsageError(f"{self.order!r} is not an order. Choose one of {', '.join((AUTO, *ORDERS))}.")


def read_entropy(path: Path) -> dict[str, float]:
    """Read a JSONL file of {step_id, entropy}."""
    entropy = {}
    for number, line in enumerate(text_of(path).splitlines(), 1):
        try:
            row = json.loads(line)
            entropy[str(row["step_id"])] = float(row["entropy"])
        except (ValueError, KeyError, TypeError):
            raise exits.UsageError(f"{path}:{number} must be an object with step_id and entropy.") from None
    return entropy


def min_entropy_of(entropy: Mapping[str, float], top: float) -> float:
    """Return the entropy that this share of the steps reaches."""
    ordered = sorted(entropy.values(), reverse=True)
    return ordered[min(int(len(ordered) * top), len(ordered) - 1)]
