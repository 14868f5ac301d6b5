"""The statistics of the report: numbers in, one number out, each small enough to check by hand.

Steps of one trace resemble each other, so every interval comes from drawing whole traces: a statistic is a function of
one weight per trace, and `interval` draws the weights.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NUM_SAMPLES = 400
Z = 1.959964  # 95 %


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


def wilson(rate: float, count: float, z: float = Z) -> tuple[float, float]:
    """Return Wilson's interval of a share."""
    middle = (rate + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
    return max(0.0, middle - half), min(1.0, middle + half)


# ------------------------------------------------------------------------------------------------------- agreement


Rating = tuple[Hashable, float]
"""A rater's category, and the probability that this rater was asked."""


def fleiss_kappa(items: Sequence[Sequence[Rating]], traces: Sequence[int]) -> Callable[[Array], float]:
    """Return Fleiss' kappa as a function of the traces' weights.

    Ratings and pairs of ratings are weighted by the inverse of their probability, which undoes the choice of an order
    that asks some raters only about some items. If every rater rates every item, it is the textbook's number.
    """
    number: dict[Hashable, int] = {}
    ratings: list[tuple[int, int, float]] = []
    agreed, compared, of = list[float](), list[float](), list[int]()
    for item, trace in zip(items, traces, strict=True):
        both = [(one[0] == other[0], 1 / min(one[1], other[1])) for one, other in itertools.combinations(item, 2)]
        if both:
            ratings += [(len(of), number.setdefault(name, len(number)), 1 / share) for name, share in item]
            agreed.append(sum(weight for same, weight in both if same))
            compared.append(sum(weight for _, weight in both))
            of.append(trace)
    at, category, weight = (np.array(column) for column in (zip(*ratings, strict=True) if ratings else ((), (), ())))
    place, observed = np.array(of, dtype=np.int64), ratio(agreed, compared)

    def kappa(weights: Array) -> float:
        if not of:
            return math.nan
        own = weights[place]
        shares = np.bincount(category, weights=own[at] * weight)
        if not shares.sum():
            return math.nan
        expected = float(((shares / shares.sum()) ** 2).sum())
        return 1.0 if expected == 1 else (observed(own) - expected) / (1 - expected)

    return kappa


# ------------------------------------------------------------------------------------------------------------ bias


def auc(positive: Sequence[float] | Array, negative: Sequence[float] | Array) -> float:
    """Return the probability that a positive is above a negative, with ties counted as half."""
    if not len(positive) or not len(negative):
        return math.nan
    ordered = np.sort(np.asarray(negative, dtype=np.float64))
    above = np.searchsorted(ordered, positive, side="left") + np.searchsorted(ordered, positive, side="right")
    return float(above.sum() / (2 * len(positive) * len(negative)))


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, interpolated linearly; NaN without values."""
    return float(np.quantile(np.asarray(values, dtype=np.float64), share)) if len(values) else math.nan
