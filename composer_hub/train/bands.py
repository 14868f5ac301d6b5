"""The bands that watchdogs keep a run in, and their changes by a config file.

Local channels optimize the absence of errors and not the task, so no metric is watched alone: reward, length, entropy,
drift of the chosen answers, the gradient norm and the share of rollouts from which nothing can be
learned each have a band. Imports no torch, so that a wrong band is refused at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from composer_hub import exits

ACTIONS = ("warn", "halve", "stop")  # halve: the weight of the term that the metric belongs to


class BandError(exits.UsageError):
    """A band that cannot be watched."""


@dataclass(frozen=True, slots=True)
class Band:
    """The range of a metric. Relative bounds are multiples of the first baseline, or of the best one so far."""

    metric: str
    low: float = -math.inf
    high: float = math.inf
    relative: str = ""  # first or best; empty: the bounds are values of the metric itself
    patience: int = 3  # values in a row outside before the action
    action: str = "warn"
    window: int = 5  # values whose median is the baseline
    armed_below: float = math.inf  # the band counts only if its first baseline is below this

    @property
    def term(self) -> str:
        """The name of the term that the metric belongs to, or nothing."""
        first, _, rest = self.metric.partition("/")
        return rest.partition("/")[0] if first == "channel" else ""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise BandError(f"The band of {self.metric}: action is one of {', '.join(ACTIONS)}, not {self.action!r}.")
        if self.action == "halve" and not self.term:
            raise BandError(f"The band of {self.metric}: halve is for metrics of a term, `channel/<term>/…`.")
        if self.relative not in ("", "first", "best"):
            raise BandError(f"The band of {self.metric}: relative is first or best, not {self.relative!r}.")
        numbers = (self.low, self.high, self.patience, self.window, self.armed_below)
        if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in numbers):
            raise BandError(
                f"The band of {self.metric}: low, high, patience, window and armed_below are numbers, not {numbers}."
            )
        if self.low > self.high or min(self.patience, self.window) < 1:
            raise BandError(f"The band of {self.metric}: low is at most high; patience and window are at least 1.")


BANDS = (
    Band("entropy", low=0.1, high=4.0, relative="first"),
    Band("completions/mean_length", low=0.3, high=3.0, relative="first"),
    # In 400 simulated runs of 300 logs of 8 rollouts each, bad luck alone stops 19 % if 2 of 100 rollouts succeed,
    # 1.5 % at 5 and 0.5 % at 10 of 100; a fall from 60 to 2 of 100 is seen after 5 logs, in 1 of 20 after more than 18.
    Band("reward", low=0.5, relative="best", patience=5, action="stop", window=10),
    # The visible tests are solved and the hidden ones are not: the policy learns to please the tests.
    Band("rollout/visible_gap", high=0.2, action="stop"),
    # No errors and no reward: a live teacher can end there, and neither channel learns anything from then on. A task
    # that begins so is only hard, and its band is not armed.
    Band("rollout/stuck", high=0.95, patience=5, action="stop", armed_below=0.8),
    Band("grad_norm", high=10.0, relative="first"),
    Band("channel/replay/chosen_drift", low=-10.0, action="halve"),
)


def bands_of(given: Mapping[str, Any] | str | bool | None) -> tuple[Band, ...]:
    """Return the default bands with the changes of a config file: metric -> changed fields, or false for no band."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise BandError(f'--bands {given!r} is not JSON: write it as \'{{"reward": {{"low": 0.7}}}}\'.') from error
    if given is False:
        return ()
    if not isinstance(given, Mapping | None):
        raise BandError(f"bands is a mapping from a metric to its band, not {given!r}.")
    bands = {band.metric: band for band in BANDS}
    known = [field.name for field in fields(Band) if field.name != "metric"]
    for metric, changes in (given or {}).items():
        if changes is None or changes is False:
            bands.pop(metric, None)
            continue
        if not isinstance(changes, Mapping) or not set(changes) <= set(known):
            raise BandError(f"The band of {metric} is {changes!r}: give it some of {', '.join(known)}, or false.")
        bands[metric] = replace(bands.get(metric, Band(metric)), **changes)
    return tuple(bands.values())
