"""Style leak: chosen and rejected texts -> how well a small classifier separates them by their spelling alone.

0.5 means that it cannot. Near 1, a model trained on the pairs may learn the teachers' style instead of their choice.
The classifier is a logistic regression on hashed character n-grams, judged on traces it has not seen.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from composer_hub.pairs.stats import Array, auc

NUM_FEATURES = 2048
MAX_PAIRS = 1000
MAX_CHARS = 2000
NUM_FOLDS = 5


def style_leak(chosen: Sequence[str], rejected: Sequence[str], groups: Sequence[str], *, seed: int = 0) -> float:
    """Return the cross-validated AUC of separating chosen from rejected; NaN with fewer than two groups of pairs.

    Both texts of a pair, and all pairs of a group (a trace), are judged by a classifier that saw none of them.
    """
    names = sorted(set(groups))
    if len(names) < 2:
        return math.nan
    rng = np.random.default_rng(seed)
    kept = rng.permutation(len(chosen))[:MAX_PAIRS]
    fold_of = dict(zip(names, rng.permutation(len(names)) % min(NUM_FOLDS, len(names)), strict=True))
    folds = np.array([fold_of[groups[at]] for at in kept] * 2)
    features = np.stack([features_of_text(side[at]) for side in (chosen, rejected) for at in kept], dtype=np.float32)
    labels = np.repeat([1.0, 0.0], len(kept))
    scores = np.zeros(len(labels))
    for fold in np.unique(folds):
        unseen = folds == fold
        if unseen.all():
            return math.nan
        weights = logistic_regression(features[~unseen], labels[~unseen])
        # The scores of two folds come from two classifiers and have different scales: compare ranks.
        scores[unseen] = _ranks(features[unseen] @ weights)
    return auc(scores[labels == 1], scores[labels == 0])


def features_of_text(text: str) -> Array:
    """Return the hashed counts of a text's character 1-, 2- and 3-grams, damped and scaled to length one."""
    text = text[:MAX_CHARS]
    grams = Counter(text[at : at + size] for size in (1, 2, 3) for at in range(len(text) - size + 1))
    features = np.zeros(NUM_FEATURES)
    for gram, count in grams.items():
        features[zlib.crc32(gram.encode("utf-8", "surrogatepass")) % NUM_FEATURES] += count
    features = np.log1p(features)
    norm = np.linalg.norm(features)
    return features / norm if norm else features


def logistic_regression(features: Array, labels: Array, *, penalty: float = 1e-3, num_steps: int = 100) -> Array:
    """Return the weights of an L2-penalized logistic regression, found by accelerated gradient descent."""
    centered = features - features.mean(axis=0)
    step = 1 / (0.25 * float(np.einsum("ij,ij->i", centered, centered).mean()) + penalty)
    # One type throughout: a mixed product would copy the features at every step.
    labels = labels.astype(features.dtype)
    weights = momentum = np.zeros(features.shape[1], dtype=features.dtype)
    for number in range(num_steps):
        scores = np.clip(centered @ momentum, -30, 30)
        gradient = centered.T @ (1 / (1 + np.exp(-scores)) - labels) / len(labels) + penalty * momentum
        previous, weights = weights, momentum - step * gradient
        momentum = weights + number / (number + 3) * (weights - previous)
    return weights


def _ranks(scores: Array) -> Array:
    return (np.searchsorted(np.sort(scores), scores, "left") + np.searchsorted(np.sort(scores), scores, "right")) / (
        2 * len(scores)
    )
