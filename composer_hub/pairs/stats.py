"""The statistics of the report: numbers in, one number out, each small enough to check by hand.

Steps of one trace resemble each other, so every interval comes from drawing whole traces: a statistic is a function of
one weight per trace, and `interval` draws the weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NUM_SAMPLES = 400


def interval(
    statistic: Callable[[Array], float], num_traces: int, *, seed: int, num_samples: int = NUM_SAMPLES
) -> tuple[float | None, float | None]:
    """Return the 95 % bootstrap interval of a statistic over traces; none for a single trace."""
    if num_traces < 2:
        return None, None
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(num_traces, np.full(num_traces, 1 / num_traces), size=num_samples)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.array([statistic(draw.astype(np.float64)) for draw in weights])
    values = values[np.isfinite(values)]
    if not len(values):
        return None, None
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def ratio(above: Sequence[float] | Array, below: Sequence[float] | Array) -> Callable[[Array], float]:
    """Return the statistic sum(above) / sum(below), both given by trace."""
    top, bottom = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    return lambda weights: float(weights @ top / (weights @ bottom)) if weights @ bottom else math.nan


# ------------------------------------------------------------------------------------------------------- agreement


def fleiss_kappa(items: Sequence[Sequence[Hashable]], traces: Sequence[int] | None = None) -> Callable[[Array], float]:
    """Return Fleiss' kappa of items rated by two or more raters each, as a function of the traces' weights.

    With the same number of raters per item it is the textbook's number.
    """
    rated = [(item, trace) for item, trace in zip(items, traces or [0] * len(items), strict=True) if len(item) > 1]
    counts = _Counts([item for item, _ in rated])
    observed = np.array(
        [(sum(n * n for n in Counter(item).values()) - len(item)) / (len(item) * (len(item) - 1)) for item, _ in rated]
    )
    of = np.array([trace for _, trace in rated], dtype=np.int64)

    def kappa(weights: Array) -> float:
        if not len(of):
            return math.nan
        own = weights[of]
        shares = counts.totals(own)
        expected = float(((shares / shares.sum()) ** 2).sum()) if shares.sum() else math.nan
        agreed = float(own @ observed / own.sum()) if own.sum() else math.nan
        return 1.0 if expected == 1 else (agreed - expected) / (1 - expected)

    return kappa


class _Counts:
    """The number of raters who named each category for each item, without the zeros."""

    def __init__(self, items: Sequence[Sequence[Hashable]]) -> None:
        number: dict[Hashable, int] = {}
        cells = [
            (at, number.setdefault(name, len(number)), count)
            for at, item in enumerate(items)
            for name, count in Counter(item).items()
        ]
        self.item, self.category, self.count = np.array(cells, dtype=np.int64).reshape(-1, 3).T

    def totals(self, weights: Array) -> Array:
        """Return the weighted number of times that each category was named."""
        return np.bincount(self.category, weights=weights[self.item] * self.count).astype(np.float64)


# ------------------------------------------------------------------------------------------------------------ bias


def auc(positive: Sequence[float] | Array, negative: Sequence[float] | Array) -> float:
    """Return the probability that a positive lies above a negative, with ties counted as half."""
    if not len(positive) or not len(negative):
        return math.nan
    ordered = np.sort(np.asarray(negative, dtype=np.float64))
    above = np.searchsorted(ordered, positive, side="left") + np.searchsorted(ordered, positive, side="right")
    return float(above.sum() / (2 * len(positive) * len(negative)))


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, interpolated linearly; NaN without values."""
    return float(np.quantile(np.asarray(values, dtype=np.float64), share)) if len(values) else math.nan
