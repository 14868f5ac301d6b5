"""The statistics of the report: numbers in, one number out, each small enough to check by hand.

Steps of one trace resemble each other, so every interval comes from drawing whole traces again: a statistic is a
function of one weight a trace, and `interval` draws the weights.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NUM_SAMPLES = 400


def interval(
    statistic: Callable[[Array], float], num_traces: int, *, seed: int, num_samples: int = NUM_SAMPLES
) -> tuple[float | None, float | None]:
    """Return the 95 % bootstrap interval of a statistic over traces; none where there is one trace or no spread."""
    if num_traces < 2:
        return None, None
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(num_traces, np.full(num_traces, 1 / num_traces), size=num_samples)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.array([statistic(draw.astype(np.float64)) for draw in weights])
    found = found[np.isfinite(found)]
    if not len(found):
        return None, None
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)


def ratio(above: Sequence[float] | Array, below: Sequence[float] | Array) -> Callable[[Array], float]:
    """Return the statistic sum(above) / sum(below), both given by trace."""
    top, bottom = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    return lambda weights: float(weights @ top / (weights @ bottom)) if weights @ bottom else math.nan


# ------------------------------------------------------------------------------------------------------- agreement


def fleiss_kappa(items: Sequence[Sequence[Hashable]], traces: Sequence[int] | None = None) -> Callable[[Array], float]:
    """Return Fleiss' kappa of items rated by two or more raters each, as a function of the traces' weights.

    With the same number of raters everywhere it is the textbook's number.
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


def krippendorff_alpha(
    units: Sequence[Sequence[Hashable]], traces: Sequence[int] | None = None
) -> Callable[[Array], float]:
    """Return Krippendorff's nominal alpha of units with any number of ratings, as a function of the traces' weights."""
    paired = [(unit, trace) for unit, trace in zip(units, traces or [0] * len(units), strict=True) if len(unit) > 1]
    counts = _Counts([unit for unit, _ in paired])
    differing = np.array(
        [(len(unit) ** 2 - sum(n * n for n in Counter(unit).values())) / (len(unit) - 1) for unit, _ in paired]
    )
    of = np.array([trace for _, trace in paired], dtype=np.int64)

    def alpha(weights: Array) -> float:
        if not len(of):
            return math.nan
        own = weights[of]
        totals = counts.totals(own)
        n = totals.sum()
        expected = (n * n - (totals**2).sum()) / (n - 1) if n > 1 else math.nan
        return 1.0 if expected == 0 else float(1 - own @ differing / expected)

    return alpha


class _Counts:
    """How often each category was named in each item, kept as the cells that are not zero."""

    def __init__(self, items: Sequence[Sequence[Hashable]]) -> None:
        number: dict[Hashable, int] = {}
        cells = [
            (at, number.setdefault(name, len(number)), count)
            for at, item in enumerate(items)
            for name, count in Counter(item).items()
        ]
        self.item, self.category, self.count = np.array(cells, dtype=np.int64).reshape(-1, 3).T

    def totals(self, weights: Array) -> Array:
        """Return how often each category was named, by the weight of the items."""
        return np.bincount(self.category, weights=weights[self.item] * self.count).astype(np.float64)


# ------------------------------------------------------------------------------------------------------------ bias


def auc(positive: Sequence[float] | Array, negative: Sequence[float] | Array) -> float:
    """Return the chance that a positive lies above a negative, ties counted half."""
    if not len(positive) or not len(negative):
        return math.nan
    ordered = np.sort(np.asarray(negative, dtype=np.float64))
    above = np.searchsorted(ordered, positive, side="left") + np.searchsorted(ordered, positive, side="right")
    return float(above.sum() / (2 * len(positive) * len(negative)))


def kolmogorov_smirnov(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return the largest distance between two distribution functions and its asymptotic p-value."""
    if not len(one) or not len(other):
        return math.nan, math.nan
    a, b = np.sort(np.asarray(one, dtype=np.float64)), np.sort(np.asarray(other, dtype=np.float64))
    points = np.concatenate([a, b])
    distance = np.abs(
        np.searchsorted(a, points, side="right") / len(a) - np.searchsorted(b, points, side="right") / len(b)
    )
    d = float(distance.max())
    return d, _kolmogorov_tail(d * math.sqrt(len(a) * len(b) / (len(a) + len(b))))


def _kolmogorov_tail(x: float) -> float:
    if x < 0.2:
        return 1.0  # The series converges too slowly there, and its value is 1 to twelve digits.
    return min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))))


def mutual_information(table: Mapping[tuple[Hashable, Hashable], float]) -> float:
    """Return, in bits, the KL divergence of joint counts from what shuffling one side would give."""
    total = sum(table.values())
    if not total:
        return math.nan
    left: Counter[Hashable] = Counter()
    right: Counter[Hashable] = Counter()
    for (one, other), count in table.items():
        left[one] += count  # type: ignore[assignment]
        right[other] += count  # type: ignore[assignment]
    return sum(
        count / total * math.log2(count * total / (left[one] * right[other]))
        for (one, other), count in table.items()
        if count
    )


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, linear between neighbours."""
    return float(np.quantile(np.asarray(values, dtype=np.float64), share)) if len(values) else math.nan
