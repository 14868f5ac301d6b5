"""The values that number options may have, so that they can be checked before torch is imported."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

_RANGES = {
    "alpha_sdpo beta_replay replay_nll_weight learning_rate": (0.0, math.inf),
    "hint_divergence": (0.0, 1.0),
    "replay_strength": (1e-6, math.inf),
    "max_hint_sites per_device_train_batch_size gradient_accumulation_steps num_generations": (1, math.inf),
    "measure_every": (0, math.inf),
}


def out_of_range(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each option whose value is too small or too large."""
    for names, (low, high) in _RANGES.items():
        for name in names.split():
            value = values.get(name)
            if value is not None and not low <= value <= high:
                allowed = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
                yield f"{name} is {allowed}, not {value:g}."
