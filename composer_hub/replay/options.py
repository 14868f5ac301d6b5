"""The options of a replay: in which order teachers are asked, and for which policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from composer_hub import exits
from composer_hub.options import option
from composer_hub.pairs.policy import Policy
from composer_hub.replay.teachers import Teacher

ORDERS = ("cascade", "sequential", "all")
PILOT_STEPS = 20
AUTO = "auto"  # one teacher after the other, as long as a further pair is worth its price


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The order of asking, and the policy to answer."""

    order: str = option("cascade", "Order of asking (auto: while a pair is worth it).", choices=(AUTO, *ORDERS))
    agreement: Policy = field(default_factory=Policy)  # the policy by which pairs will be made
    audit: float = option(0.03, "Share of steps asked in full although the order would stop.", min=0, max=1)
    repeat: float = option(0.02, "Share of steps on which the first teacher is asked twice.", min=0, max=1)
    own_endpoint: bool = option(False, "Send unredacted traces; loopback URLs only.", flag="--i-own-this-endpoint")
    patience_s: float = 0.0  # how long a server that cannot be reached is waited for
    max_usd_per_pair: float | None = option(
        None, "Price at which auto leaves a pair (5 times the median so far).", min=0, min_open=True
    )
    judge: Teacher | None = None  # is asked whether the two actions of a would-be pair have the same effect

    def __post_init__(self) -> None:
        if self.order not in (*ORDERS, AUTO):
            raise exits.UsageError(f"{self.order!r} is not an order. Choose one of {', '.join((AUTO, *ORDERS))}.")
