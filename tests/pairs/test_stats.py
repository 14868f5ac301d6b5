"""Each statistic is checked against a textbook, a closed form or brute force."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_hub.pairs.stats import (
    auc,
    fleiss_kappa,
    interval,
    kolmogorov_smirnov,
    krippendorff_alpha,
    mutual_information,
    quantile,
    ratio,
)
from composer_hub.pairs.style import features_of_text, logistic_regression, style_leak

ONE = np.ones(1)

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
# Krippendorff's own example with missing values: three coders, fifteen units.
CODERS = ("*****34121133*3", "1*213343*******", "**21344*21133*4")


def test_fleiss_kappa_is_the_textbooks() -> None:
    items = [[name for name, count in enumerate(line) for _ in range(count)] for line in FLEISS]
    assert fleiss_kappa(items)(ONE) == pytest.approx(0.2099, abs=1e-4)


def test_krippendorffs_alpha_is_the_textbooks() -> None:
    units = [[value for value in unit if value != "*"] for unit in zip(*CODERS, strict=True)]
    assert krippendorff_alpha(units)(ONE) == pytest.approx(0.691, abs=1e-3)


RATINGS = st.lists(st.lists(st.sampled_from("abc"), min_size=2, max_size=4), min_size=2, max_size=8)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(RATINGS)
def test_krippendorffs_alpha_is_one_minus_observed_over_expected_disagreement(units: list[list[str]]) -> None:
    values = [value for unit in units for value in unit]
    n = len(values)
    observed = sum(
        (unit[i] != unit[j]) / (len(unit) - 1)
        for unit in units
        for i, j in product(range(len(unit)), repeat=2)
        if i != j
    )
    expected = sum(values[i] != values[j] for i, j in product(range(n), repeat=2) if i != j) / (n - 1)
    found = krippendorff_alpha(units)(ONE)
    assert found == pytest.approx(1 - observed / expected if expected else 1.0)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(RATINGS, st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_a_traces_weight_is_how_often_it_was_drawn(units: list[list[str]], drawn: list[int]) -> None:
    traces = list(range(len(units)))
    repeated = [unit for unit, times in zip(units, drawn, strict=False) for _ in range(times)]
    weights = np.array(drawn[: len(units)], dtype=float)
    for statistic in (fleiss_kappa, krippendorff_alpha):
        weighted = statistic(units, traces)(weights) if weights.sum() else math.nan
        plain = statistic(repeated)(ONE) if repeated else math.nan
        assert weighted == pytest.approx(plain, nan_ok=True)


@pytest.mark.parametrize("statistic", [fleiss_kappa, krippendorff_alpha])
def test_full_agreement_is_one_and_no_ratings_are_nothing(statistic: object) -> None:
    assert statistic([["a", "a"], ["b", "b"]])(ONE) == 1  # type: ignore[operator]
    assert statistic([["a", "a"]])(ONE) == 1  # type: ignore[operator]
    assert math.isnan(statistic([["a"], []])(ONE))  # type: ignore[operator]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=9), st.lists(st.integers(0, 5), min_size=1, max_size=9))
def test_auc_and_ks_are_those_of_brute_force(a: list[int], b: list[int]) -> None:
    wins = sum((x > y) + 0.5 * (x == y) for x in a for y in b) / (len(a) * len(b))
    assert auc(a, b) == pytest.approx(wins)
    gap = max(abs(sum(x <= t for x in a) / len(a) - sum(y <= t for y in b) / len(b)) for t in range(6))
    distance, p = kolmogorov_smirnov(a, b)
    assert distance == pytest.approx(gap)
    assert 0 <= p <= 1


def test_ks_p_is_kolmogorovs_tail() -> None:
    # Q(1.358) = 0.05 and Q(1.628) = 0.01 are the classical critical values.
    n = 10_000
    one = [float(x) for x in range(n)]
    for critical, level in ((1.358, 0.05), (1.628, 0.01)):
        shift = critical * math.sqrt(2 / n) * n
        assert kolmogorov_smirnov(one, [x + shift for x in one])[1] == pytest.approx(level, rel=0.05)


@pytest.mark.parametrize(
    ("table", "bits"),
    [
        ({("a", "x"): 1, ("b", "y"): 1}, 1.0),
        ({("a", "x"): 1, ("a", "y"): 1, ("b", "x"): 1, ("b", "y"): 1}, 0.0),
        ({("a", "x"): 2, ("a", "y"): 1, ("b", "y"): 1}, 0.3112781),
        ({("a", "x"): 5}, 0.0),
    ],
)
def test_mutual_information_is_the_kl_from_the_shuffled_table(table: dict, bits: float) -> None:
    assert mutual_information(table) == pytest.approx(bits, abs=1e-6)


def test_quantiles_are_linear_between_neighbours() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == 2.5
    assert math.isnan(quantile([], 0.5))


def test_an_interval_covers_the_mean_it_is_made_for_and_needs_two_traces() -> None:
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


def test_a_style_that_gives_itself_away_is_found_and_none_is_not() -> None:
    groups = [f"t{number % 12}" for number in range(60)]
    assert style_leak(texts("~!~", 1), texts("", 2), groups) > 0.95
    assert style_leak(texts("", 1), texts("", 2), groups) == pytest.approx(0.5, abs=0.15)


def test_a_text_seen_in_training_does_not_help_to_judge_it() -> None:
    # Every trace has a word of its own on the chosen side: a classifier that saw the trace would know it.
    groups = [f"t{number % 12}" for number in range(60)]
    chosen = [f"{group * 9} {text}" for group, text in zip(groups, texts("", 1), strict=True)]
    rejected = [f"{group * 9} {text}" for group, text in zip(groups, texts("", 2), strict=True)]
    assert style_leak(chosen, rejected, groups) == pytest.approx(0.5, abs=0.15)


def test_style_needs_two_traces_and_takes_any_text() -> None:
    assert math.isnan(style_leak(["a"], ["b"], ["t"]))
    assert math.isnan(style_leak([], [], []))
    assert features_of_text("").sum() == 0
    assert np.linalg.norm(features_of_text("\ud800é")) == pytest.approx(1)


def test_logistic_regression_finds_the_weights_a_slow_descent_finds() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(80, 3))
    labels = (features @ np.array([2.0, -1.0, 0.0]) + rng.normal(size=80) > 0).astype(float)
    centred = features - features.mean(axis=0)
    slow = np.zeros(3)
    for _ in range(20_000):
        slow -= 0.05 * (centred.T @ (1 / (1 + np.exp(-centred @ slow)) - labels) / 80 + 1e-3 * slow)
    assert logistic_regression(features, labels, num_steps=2000) == pytest.approx(slow, abs=1e-2)
    assert Counter(np.sign(slow[:2])) == {1.0: 1, -1.0: 1}
