"""What a row of the list says of a pair."""

from __future__ import annotations

import pytest
from inspector.view_pairs import without_shared_beginning

ROOT = "cd /home/ada/work/project/packages/app && "


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (
            f"{ROOT}pytest tests/a.py",
            f"{ROOT}ruff check",
            ("cd /home/ada/w…app && pytest tests/a.py", "cd /home/ada/w…app && ruff check"),
        ),
        (f"{ROOT}pytest", f"{ROOT}pytest -x", ("cd /home/ada/w…pytest", "cd /home/ada/w…pytest -x")),
        (f"{ROOT}pytest", f"{ROOT}pytest", (f"{ROOT}pytest", f"{ROOT}pytest")),
        ("pytest -q", "pytest -x", ("pytest -q", "pytest -x")),
        (f"{ROOT}pytest", "", (f"{ROOT}pytest", "")),
        ("x" * 90 + "a", "x" * 90 + "b", ("x" * 90 + "a", "x" * 90 + "b")),
    ],
)
def test_previews_begin_shortly_before_they_part(one: str, other: str, shown: tuple[str, str]) -> None:
    assert without_shared_beginning(one, other) == shown
    assert without_shared_beginning(other, one) == shown[::-1]
