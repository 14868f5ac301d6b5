"""Each statistic is checked against a textbook, a closed form or brute force."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.pairs.stats import Array, auc, fleiss_kappa, interval, quantile, ratio
from composer_hub.pairs.style import features_of_text, logistic_regression, style_leak
from tests.quick import cases

ONE = np.ones(1)


def kappa(items: Sequence[Sequence[Hashable]], traces: Sequence[int] | None = None) -> Callable[[Array], float]:
    """Return Fleiss' kappa of raters who were all asked."""
    return fleiss_kappa([[(name, 1.0) for name in item] for item in items], traces or [0] * len(items))


# Fleiss (1971), as worked through in most textbooks: 10 subjects, 14 raters, 5 categories.
FLEISS = [
    (0, 0, 0, 0, 14),
    (0, 2, 6, 4, 2),
    (0, 0, 3, 5, 6),
    (0, 3, 9, 2, 0),
    (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0),
    (3, 2, 6, 3, 0),
    (2, 5, 3, 2, 2),
    (6, 5, 2, 1, 0),
    (0, 2, 2, 3, 7),
]


def test_fleiss_kappa_is_the_textbooks() -> None:
    items = [[name for name, count in enumerate(line) for _ in range(count)] for line in FLEISS]
    assert kappa(items)(ONE) == pytest.approx(0.2099, abs=1e-4)


def test_kappa_does_not_depend_on_which_ratings_were_asked_for_if_each_is_weighted() -> None:
    # The third rater is asked where the first two differ, and at every fourth of the other items.
    rng = random.Random(4)
    truths = [rng.choice("abc") for _ in range(3000)]
    items = [[truth if rng.random() < 0.8 else rng.choice("abc") for _ in range(3)] for truth in truths]
    in_full = kappa(items)(ONE)
    part, naive = [], []
    for number, (one, other, third) in enumerate(items):
        share = 1.0 if one != other else 0.25
        kept = share == 1.0 or number % 4 == 0
        part.append([(one, 1.0), (other, 1.0), *([(third, share)] if kept else [])])
        naive.append([(name, 1.0) for name, _ in part[-1]])
    traces = [0] * len(items)
    assert fleiss_kappa(part, traces)(ONE) == pytest.approx(in_full, abs=0.03)
    assert fleiss_kappa(naive, traces)(ONE) != pytest.approx(in_full, abs=0.03)


RATINGS = st.lists(st.lists(st.sampled_from("abc"), min_size=2, max_size=4), min_size=2, max_size=8)


@cases(100)
@given(RATINGS, st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_a_traces_weight_is_how_often_it_was_drawn(units: list[list[str]], drawn: list[int]) -> None:
    traces = list(range(len(units)))
    repeated = [unit for unit, times in zip(units, drawn, strict=False) for _ in range(times)]
    weights = np.array(drawn[: len(units)], dtype=float)
    weighted = kappa(units, traces)(weights) if weights.sum() else math.nan
    plain = kappa(repeated)(ONE) if repeated else math.nan
    assert weighted == pytest.approx(plain, nan_ok=True)


def test_full_agreement_is_one_and_kappa_is_unknown_without_ratings() -> None:
    assert kappa([["a", "a"], ["b", "b"]])(ONE) == 1
    assert kappa([["a", "a"]])(ONE) == 1
    assert math.isnan(kappa([["a"], []])(ONE))


@cases(100)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.lists(st.integers(0, 5), min_size=1, max_size=9))
def test_auc_is_that_of_brute_force(a: list[int], b: list[int]) -> None:
    wins = sum((x > y) + 0.5 * (x == y) for x in a for y in b) / (len(a) * len(b))
    assert auc(a, b) == pytest.approx(wins)


def test_quantiles_are_interpolated_linearly() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == 2.5
    assert math.isnan(quantile([], 0.5))


def test_a_95_percent_interval_covers_the_mean_and_needs_two_traces() -> None:
    rng = random.Random(0)
    covered = 0
    for seed in range(60):
        values = [rng.gauss(3, 1) for _ in range(40)]
        low, high = interval(ratio(values, [1] * 40), 40, seed=seed)
        assert low is not None
        assert high is not None
        covered += low <= 3 <= high
    assert covered >= 50
    assert interval(ratio([1], [1]), 1, seed=0) == (None, None)
    assert interval(ratio([0, 0], [0, 0]), 2, seed=0) == (None, None)


def test_the_same_seed_gives_the_same_interval() -> None:
    statistic = ratio([1, 2, 3], [1, 1, 1])
    assert interval(statistic, 3, seed=1) == interval(statistic, 3, seed=1)


def texts(mark: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [mark + "".join(rng.choices("abcdefgh ", k=60)) for _ in range(60)]


def test_a_leaking_style_is_detected_and_equal_styles_are_not() -> None:
    groups = [f"t{number % 12}" for number in range(60)]
    assert style_leak(texts("~!~", 1), texts("", 2), groups) > 0.95
    assert style_leak(texts("", 1), texts("", 2), groups) == pytest.approx(0.5, abs=0.15)


def test_a_text_seen_in_training_does_not_help_to_judge_it() -> None:
    # Every trace has its own word on the chosen side: a classifier that saw the trace would know it.
    groups = [f"t{number % 12}" for number in range(60)]
    chosen = [f"{group * 9} {text}" for group, text in zip(groups, texts("", 1), strict=True)]
    rejected = [f"{group * 9} {text}" for group, text in zip(groups, texts("", 2), strict=True)]
    assert style_leak(chosen, rejected, groups) == pytest.approx(0.5, abs=0.15)


def test_style_leak_needs_two_traces_and_takes_any_text() -> None:
    assert math.isnan(style_leak(["a"], ["b"], ["t"]))
    assert math.isnan(style_leak([], [], []))
    assert features_of_text("").sum() == 0
    assert np.linalg.norm(features_of_text("\ud800é")) == pytest.approx(1)


def test_logistic_regression_finds_the_weights_of_a_slow_descent() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(80, 3))
    labels = (features @ np.array([2.0, -1.0, 0.0]) + rng.normal(size=80) > 0).astype(float)
    centred = features - features.mean(axis=0)
    slow = np.zeros(3)
    for _ in range(20_000):
        slow -= 0.05 * (centred.T @ (1 / (1 + np.exp(-centred @ slow)) - labels) / 80 + 1e-3 * slow)
    assert logistic_regression(features, labels, num_steps=2000) == pytest.approx(slow, abs=1e-2)
    assert Counter(np.sign(slow[:2])) == {1.0: 1, -1.0: 1}
