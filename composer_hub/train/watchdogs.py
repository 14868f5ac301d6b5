"""Watch-dogs: a band per metric, and what happens when a run leaves it.

In: the logged metrics of a run. Out: alarms (warn, turn a channel down, stop), and the best checkpoint kept beside the
last. Local channels optimise the absence of errors and not the task, so no metric is watched alone: reward, length,
entropy, hedging, uplift, drift of the chosen answers and the gradient norm each have their band.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

ACTIONS = ("warn", "hint", "replay", "stop")  # hint and replay: turn that channel down
_HEDGES = re.compile(
    r"\b(wait|hmm+|maybe|perhaps|possibly|alternatively|actually|i think|i guess|not sure|double[- ]check)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Band:
    """Where a metric may be. Relative bounds are multiples of the median of its first values."""

    metric: str
    low: float = -math.inf
    high: float = math.inf
    relative: bool = False
    patience: int = 3  # values in a row outside before anything happens
    action: str = "warn"


BANDS = (
    Band("entropy", low=0.1, high=4.0, relative=True),
    Band("completions/mean_length", low=0.3, high=3.0, relative=True),
    Band("rollout/hedge_rate", low=0.25, high=4.0, relative=True),
    Band("reward", low=0.5, relative=True, patience=5, action="stop"),
    Band("grad_norm", high=10.0, relative=True),
    Band("channel/hint/uplift", low=0.0, patience=5, action="hint"),
    Band("channel/replay/chosen_drift", low=-10.0, action="replay"),
)


@dataclass(frozen=True, slots=True)
class Alarm:
    """A metric left its band."""

    step: int
    band: Band
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        what = {"warn": "watch it", "stop": "the run stops"}.get(
            self.band.action, f"the {self.band.action} channel is turned down"
        )
        return (
            f"step {self.step}: {self.band.metric} is {self.value:.4g}, outside {self.low:.4g} to {self.high:.4g} "
            f"for {self.band.patience} logs: {what}."
        )


@dataclass
class Watchdog:
    """Follows one metric. A metric that is missing from a log is not judged."""

    band: Band
    num_first: int = 5  # values that make the baseline of relative bounds
    first: list[float] = field(default_factory=list)
    num_outside: int = 0

    def look(self, step: int, logs: Mapping[str, Any]) -> Alarm | None:
        """Return an alarm when the metric was outside often enough; then it must be outside as often again."""
        value = logs.get(self.band.metric)
        if not isinstance(value, (int, float)):
            return None
        if self.band.relative and len(self.first) < self.num_first and math.isfinite(value):
            self.first.append(float(value))
            return None
        low, high = self._bounds()
        self.num_outside = 0 if low <= value <= high else self.num_outside + 1  # NaN is never inside
        if self.num_outside < self.band.patience:
            return None
        self.num_outside = 0
        return Alarm(step, self.band, float(value), low, high)

    def _bounds(self) -> tuple[float, float]:
        if not self.band.relative:
            return self.band.low, self.band.high
        usual = statistics.median(self.first) if self.first else 0.0
        # Nothing is a multiple of zero or of a negative reward: such a baseline gives no relative bound.
        return (usual * self.band.low, usual * self.band.high) if usual > 0 else (-math.inf, math.inf)


def hedge_rate(text: str) -> float:
    """Return the hedges per hundred words: hinted teachers are said to teach away the model's doubts."""
    words = len(text.split())
    return 100.0 * len(_HEDGES.findall(text)) / words if words else 0.0


class Watchdogs(TrainerCallback):
    """Looks at each log, acts on alarms, and keeps the best checkpoint."""

    def __init__(self, bands: Sequence[Band] = BANDS, *, metric: str = "reward", turn_down: Any = None) -> None:
        unknown = {band.action for band in bands} - set(ACTIONS)
        if unknown:
            raise ValueError(f"A band's action is one of {', '.join(ACTIONS)}, not {', '.join(sorted(unknown))}.")
        self.dogs = [Watchdog(band) for band in bands]
        self.metric, self.turn_down = metric, turn_down
        self.alarms: list[Alarm] = []
        self.since_save: list[float] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        logs = logs or {}
        if isinstance(logs.get(self.metric), (int, float)):
            self.since_save.append(float(logs[self.metric]))
        for alarm in [alarm for dog in self.dogs if (alarm := dog.look(state.global_step, logs))]:
            self.alarms.append(alarm)
            warnings.warn(str(alarm), stacklevel=2)
            if alarm.band.action == "stop":
                control.should_training_stop = control.should_save = True
            elif alarm.band.action != "warn" and self.turn_down is not None:
                self.turn_down(alarm.band.action)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.since_save and state.is_world_process_zero:
            score = statistics.fmean(self.since_save)
            keep_best(Path(args.output_dir), f"checkpoint-{state.global_step}", score, self.metric)
        self.since_save = []


def keep_best(output: Path, name: str, score: float, metric: str) -> bool:
    """Keep a checkpoint as `best` if nothing better is kept; files are linked where the disk can, so it costs little."""
    best = output / "best"
    note = best / "best.json"
    if math.isnan(score) or (note.exists() and json.loads(note.read_text())["score"] >= score):
        return False
    fresh = output / ".best-fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(output / name, fresh, copy_function=_link)
    (fresh / "best.json").write_text(json.dumps({"checkpoint": name, "score": score, "metric": metric}))
    shutil.rmtree(best, ignore_errors=True)
    os.rename(fresh, best)
    return True


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one that has no links
        shutil.copy2(source, target)
