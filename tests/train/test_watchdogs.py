"""Watchdogs on made-up streams of metrics."""

from __future__ import annotations

import math
import random
import statistics
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("trl")

from transformers import TrainerState

from composer_hub.train.bands import BANDS, Band, BandError, bands_of
from composer_hub.train.run.trainer import BestCheckpoint
from composer_hub.train.watchdogs import Watchdog, Watchdogs


def alarms(band: Band, values: list[Any], **options: Any) -> list[int]:
    dog = Watchdog(band, **options)
    return [step for step, value in enumerate(values) if dog.look(step, {band.metric: value})]


def test_a_metric_inside_its_band_never_alarms() -> None:
    assert alarms(Band("m", 0.0, 1.0), [0.0, 0.5, 1.0] * 5) == []


def test_patience_counts_values_in_a_row() -> None:
    assert alarms(Band("m", 0.0, 1.0, patience=3), [2, 2, 0, 2, 2, 2, 2, 2, 2]) == [5, 8]


def test_relative_bounds_are_multiples_of_the_median_of_the_first_values() -> None:
    band = Band("m", low=0.5, high=2.0, relative="first", patience=1)
    assert alarms(band, [1, 1, 100, 1, 1, 1.9, 2.1, 0.4]) == [6, 7]


def test_a_baseline_of_zero_gives_no_relative_bound() -> None:
    assert alarms(Band("m", low=0.5, high=2.0, relative="first", patience=1), [0.0] * 5 + [9.0, -9.0]) == []


@pytest.mark.parametrize("relative", ["", "first", "best"], ids=["absolute", "to the first", "to the best"])
def test_nan_is_outside_every_band(relative: str) -> None:
    assert alarms(Band("m", 0.0, 9.0, relative=relative, patience=1), [1.0] * 5 + [math.nan]) == [5]


def test_a_metric_that_is_not_logged_is_not_judged() -> None:
    assert alarms(Band("m", 0.0, 1.0, patience=1), [None, "x"]) == []


REWARD = next(band for band in BANDS if band.metric == "reward")


def rewards(rng: random.Random, share: float, num_logs: int) -> list[float]:
    """Return mean rewards of eight rollouts that succeed so often."""
    return [sum(rng.random() < share for _ in range(8)) / 8 for _ in range(num_logs)]


@pytest.mark.parametrize(
    ("before", "fallen", "after"),
    [
        ([0.0] * 10, -1.0, 6),  # the first one says how large the values are
        ([-2.0, -2.1, -1.9, -2.0, -2.0] * 2, -4.0, 5),
        ([0.0] * 6 + [0.5, 0.6, 0.5, 0.6, 0.6] * 2, 0.0, 5),
        ([-0.1, 0.1, 0.0, 0.0, 0.2, 0.0] * 2, -1.0, 5),
    ],
    ids=["always nothing", "always negative", "found late", "around zero"],
)
def test_a_reward_that_was_never_above_zero_or_only_late_still_has_a_band(
    before: list[float], fallen: float, after: int
) -> None:
    assert alarms(REWARD, before + [fallen] * 6) == [len(before) + after - 1]


def test_a_sparse_reward_hardly_ever_stops_a_run_by_bad_luck() -> None:
    rng = random.Random(0)
    stopped = sum(bool(alarms(REWARD, rewards(rng, 0.1, 300))) for _ in range(100))
    assert stopped <= 1


def test_a_collapse_of_the_reward_stops_the_run_and_slow_growth_of_the_gradient_does_not() -> None:
    rng = random.Random(0)
    falls = [rewards(rng, 0.3, 30) + rewards(rng, 0.6, 30) + rewards(rng, 0.0, 30) for _ in range(20)]
    assert statistics.median(alarms(REWARD, fall)[0] for fall in falls) == 64
    assert REWARD.action == "stop"
    bands = {band.metric: band for band in BANDS}
    assert alarms(bands["grad_norm"], [0.07 + 0.01 * step for step in range(40)]) == []


STUCK = next(band for band in BANDS if band.metric == "rollout/stuck")


@pytest.mark.parametrize(
    ("shares", "stops"),
    [
        ([0.0, 0.1, 0.05, 0.1, 0.2, 0.6, 0.9] + [1.0] * 5, [11]),
        ([0.98, 1.0] * 20, []),  # a hard task, and no error in sight
        ([0.9] * 5 + [1.0] * 20, []),
        ([0.0] * 5 + [0.6, 0.9] * 20, []),
    ],
    ids=["collapse", "hard from the start", "nearly hopeless", "partly silent"],
)
def test_no_errors_and_no_reward_stop_a_run_that_did_not_begin_so(shares: list[float], stops: list[int]) -> None:
    assert STUCK.action == "stop"
    assert alarms(STUCK, shares) == stops


def run(logs: list[dict[str, float]], bands: tuple[Band, ...]) -> tuple[Watchdogs, list[str], Any]:
    turned: list[str] = []
    dogs = Watchdogs(bands, turn_down=turned.append)
    control = SimpleNamespace(should_training_stop=False, should_save=False)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for step, log in enumerate(logs):
            dogs.on_log(None, SimpleNamespace(global_step=step, is_world_process_zero=True), control, logs=log)
    assert len(said) == len(dogs.alarms)
    return dogs, turned, control


@pytest.mark.parametrize(
    ("action", "turned", "stops"), [("warn", [], False), ("halve", ["replay"], False), ("stop", [], True)]
)
def test_leaving_a_band_triggers_its_action(action: str, turned: list[str], stops: bool) -> None:
    band = Band("channel/replay/m", 0, 1, patience=1, action=action)
    dogs, found, control = run([{band.metric: 2.0}], (band,))
    assert (found, control.should_training_stop, control.should_save) == (turned, stops, stops)
    assert "channel/replay/m is 2" in str(dogs.alarms[0])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"m": {"action": "panic"}}, "warn, halve, stop"),
        ({"m": {"action": "halve"}}, "metrics of a term"),
        ({"m": {"relative": "worst"}}, "first or best"),
        ({"m": {"low": "much"}}, "are numbers"),
        ({"m": {"low": 2, "high": 1}}, "at most high"),
        ({"m": {"colour": 1}}, "low, high, relative, patience, action, window, armed_below"),
        ({"m": 3}, "or false"),
        ("{reward", "is not JSON"),
        ("[]", "a mapping"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_band_that_says_nothing_is_refused(given: Any, says: str) -> None:
    with pytest.raises(BandError, match=says):
        bands_of(given)


def test_a_config_file_changes_adds_and_drops_bands() -> None:
    changed = bands_of({"reward": {"low": 0.9}, "entropy": False, "kl": {"high": 0.2}})
    bands = {band.metric: band for band in changed}
    assert (bands["reward"].low, bands["reward"].action, bands["reward"].patience) == (0.9, "stop", 5)
    assert bands["kl"] == Band("kl", high=0.2)
    assert "entropy" not in bands
    assert bands_of(None) == BANDS == bands_of("{}")
    assert bands_of(False) == () == bands_of("false")


def test_a_resumed_run_keeps_the_baselines_of_its_start() -> None:
    band = Band("m", low=0.5, high=2.0, relative="first", patience=3)
    log = [{"step": step, "m": value} for step, value in enumerate([1.0] * 5 + [9.0, 9.0])]
    whole, resumed = Watchdogs([band]), Watchdogs([band])
    control = SimpleNamespace()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in log:
            whole.on_log(
                None, SimpleNamespace(global_step=line["step"], is_world_process_zero=True), control, logs=line
            )
        resumed.on_train_begin(None, SimpleNamespace(log_history=log), control)
        assert resumed.alarms == []
        for dogs in (whole, resumed):
            dogs.on_log(None, SimpleNamespace(global_step=7, is_world_process_zero=True), control, logs={"m": 9.0})
    assert [alarm.step for alarm in whole.alarms] == [alarm.step for alarm in resumed.alarms] == [7]


def test_the_best_save_has_the_highest_mean_reward_since_the_one_before_it() -> None:
    best, state = BestCheckpoint(), TrainerState()
    names = []
    for step, rewards in enumerate([[], [0.0], [0.0], [0.2, 0.6], [0.3], [math.nan, 0.9], [0.4], [0.5, 0.5]]):
        for reward in rewards:
            best.on_log(None, state, None, logs={"reward": reward})
        best.on_log(None, state, None, logs={"loss": 9.0})
        state.global_step = step
        best.on_saving(state)
        names.append(state.best_global_step)
    assert names == [None, 1, 1, 3, 3, 3, 3, 7]
