"""What every test of replay may ask for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from composer_hub.records import Trace
from composer_hub.replay.cascade import Judge
from composer_hub.replay.teachers import Teacher
from tests.replay import sample


@pytest.fixture
def judge() -> Judge:
    return sample.JUDGE


@pytest.fixture
def make_trace() -> Callable[..., Trace]:
    return sample.trace_of


@pytest.fixture
def teachers() -> Callable[..., list[Teacher]]:
    return sample.teachers_at
