"""The options of a replay: in which order teachers are asked, and for which policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from composer_hub import exits
from composer_hub.pairs.policy import Policy
from composer_hub.replay.teachers import Teacher

ORDERS = ("cascade", "sequential", "all")
AUTO = "auto"  # one teacher after the other, as long as a further pair is worth its price


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The order of asking, and the policy to answer."""

    order: str = "cascade"  # one of ORDERS, or AUTO
    agreement: Policy = field(default_factory=Policy)  # the policy by which pairs will be made
    audit: float = 0.03  # share of the steps that are asked in full although the order would stop
    repeat: float = 0.02  # share of the steps on which the first teacher is asked twice
    own_endpoint: bool = False  # send unredacted traces, to loopback addresses only
    patience_s: float = 0.0  # how long a server that cannot be reached is waited for
    max_usd_per_pair: float | None = None  # of `auto`; None: five times the median of the pairs so far
    judge: Teacher | None = None  # is asked whether the two actions of a would-be pair have the same effect

    def __post_init__(self) -> None:
        if self.order not in (*ORDERS, AUTO):
            raise exits.UsageError(f"{self.order!r} is not an order. Choose one of {', '.join((AUTO, *ORDERS))}.")
