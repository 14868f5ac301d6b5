"""What `make test` leaves to `make test-all`: slow values of parameters, and most cases of generated tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

# `make test-all` loads the profile `full`. A number of cases is a share of a profile's own: 20 of 100, or all.
settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=100, deadline=None, derandomize=True)
settings.load_profile("quick")


def quick(num: int, values: Iterable[Any]) -> list[Any]:
    """Return the values of a parameter, or tuples for several: the first as they are, the others marked slow."""
    sets = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*one, marks=() if at < num else pytest.mark.slow) for at, one in enumerate(sets)]


def cases(num: int, **options: Any) -> settings:
    """Return the settings of a generated test that tries `num` cases in `make test-all`, and a fifth in `make test`."""
    return settings(max_examples=max(1, num * settings.default.max_examples // 100), **options)
