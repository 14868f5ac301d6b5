"""The benchmark of a whole step compares what can be compared."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.step import KINDS, cost_of


@pytest.mark.slow
def test_every_kind_of_step_samples_the_same_rollouts_and_hints(world: Any) -> None:
    costs = {name: cost_of(world, options, 1) for name, options in KINDS.items()}
    assert len({cost.tokens for cost in costs.values()}) == 1
    assert costs["hint"].sites == costs["all three"].sites > 0
    assert all(0 < cost.generation < cost.whole for cost in costs.values())
