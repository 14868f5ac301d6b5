"""Watchdogs: a band per metric, and an action if a run leaves it.

In: the logged metrics of a run. Out: alarms (warn, halve a term's weight, stop). A resumed run reads its log first, so
its baselines are those of the start. The bands are in `bands`.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback

from composer_hub.train.bands import BANDS, Band


@dataclass(frozen=True, slots=True)
class Alarm:
    """A metric left its band."""

    step: int
    band: Band
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        what = {"warn": "watch it", "stop": "the run stops", "halve": "the weight of its term is halved"}
        return (
            f"step {self.step}: {self.band.metric} is {self.value:.4g}, outside {self.low:.4g} to {self.high:.4g} "
            f"for {self.band.patience} logs: {what[self.band.action]}."
        )


@dataclass
class Watchdog:
    """Follows one metric; logs without it are skipped."""

    band: Band
    recent: list[float] = field(default_factory=list)
    usual: float = math.nan  # the baseline: the median of the first values, or the best median
    noise: float = 0.0  # mean distance between consecutive values
    num_inside: int = 0
    num_outside: int = 0

    def look(self, step: int, logs: Mapping[str, Any]) -> Alarm | None:
        """Return an alarm after enough values in a row outside the band, and start counting again."""
        value = logs.get(self.band.metric)
        if not isinstance(value, (int, float)):
            return None
        low, high = self._bounds()
        if low <= value <= high or (self.band.relative and math.isnan(self.usual)):
            self.num_outside = 0
            self._learn(float(value))
            return None
        self.num_outside += 1  # NaN is never inside
        if self.num_outside < self.band.patience:
            return None
        self.num_outside = 0
        return Alarm(step, self.band, float(value), low, high)

    def _learn(self, value: float) -> None:
        if not math.isfinite(value):
            return
        if self.recent:
            self.num_inside += 1
            self.noise += (abs(value - self.recent[-1]) - self.noise) / self.num_inside
        self.recent = [*self.recent, value][-self.band.window :]
        if len(self.recent) == self.band.window and (self.band.relative == "best" or math.isnan(self.usual)):
            median = statistics.median(self.recent)
            self.usual = median if math.isnan(self.usual) else max(median, self.usual)

    def _bounds(self) -> tuple[float, float]:
        band, size = self.band, abs(self.usual)
        if not band.relative:
            is_armed = band.armed_below == math.inf or self.usual < band.armed_below
            return (band.low, band.high) if is_armed else (-math.inf, math.inf)
        # Relative bounds mean nothing around zero, and sparse rewards are often zero by chance, so values within three
        # times the noise always pass. Without a baseline and a noise estimate, everything passes.
        least = 3 * self.noise if band.relative == "best" else 0.0
        if math.isnan(self.usual) or not (size or least):
            return -math.inf, math.inf
        shares = (1 - band.low, band.high - 1)
        low, high = (math.inf if share == math.inf else max(share * size, least) for share in shares)
        return self.usual - low, self.usual + high


class Watchdogs(TrainerCallback):
    """Looks at each log and acts on alarms."""

    def __init__(
        self,
        bands: Sequence[Band] = BANDS,
        *,
        turn_down: Callable[[str], Any] | None = None,  # takes the name of a term
    ) -> None:
        self.dogs = [Watchdog(band) for band in bands]
        self.turn_down = turn_down
        self.alarms: list[Alarm] = []
        self.stopped_by: Alarm | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # The checkpoint already contains the effect of these alarms.
        for line in state.log_history:
            self.alarms += self._alarms(line.get("step", 0), line)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        # Ranks may log different values, as step times; if one stopped alone, the others would wait for it forever.
        logs = broadcast_object_list([self._watched(logs or {})])[0]
        for alarm in self._alarms(state.global_step, logs):
            self.alarms.append(alarm)
            if state.is_world_process_zero:
                warnings.warn(str(alarm), stacklevel=2)
            if alarm.band.action == "stop":
                self.stopped_by = alarm
                control.should_training_stop = control.should_save = True
            elif alarm.band.action == "halve" and self.turn_down is not None:
                self.turn_down(alarm.band.term)

    def _watched(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        return {dog.band.metric: logs[dog.band.metric] for dog in self.dogs if dog.band.metric in logs}

    def _alarms(self, step: int, logs: Mapping[str, Any]) -> list[Alarm]:
        return [alarm for dog in self.dogs if (alarm := dog.look(step, logs))]
