"""What a row of the list says of a pair."""

from __future__ import annotations

import pytest
from inspector.view_pairs import vote_matrix, without_shared_beginning

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


def test_only_a_pair_on_which_teachers_agree_names_a_level() -> None:
    assert "the same at level L2" in str(vote_matrix([], {"level": "L2"}))
    assert "level" not in str(vote_matrix([], {"level": ""})), "a reviewer chose it, or it is an own repair"
