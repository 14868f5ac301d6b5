"""The public names of the rooms that publish, load and run jobs."""

from __future__ import annotations

from types import ModuleType

import pytest

from composer_hub import hub, jobs


@pytest.mark.parametrize("room", [hub, jobs], ids=lambda room: room.__name__)
def test_a_room_lists_exactly_its_public_names(room: ModuleType) -> None:
    names = {name for name in vars(room) if not name.startswith("_")}
    assert {name for name in names if not isinstance(getattr(room, name), ModuleType)} == set(room.__all__)
