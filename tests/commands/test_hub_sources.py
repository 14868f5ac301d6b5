"""Datasets of sessions as a source: what their card says."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub.commands.hub_sources import card_license


@pytest.mark.parametrize(
    ("card", "license"),
    [
        ("---\nlicense: cc-by-4.0\n---\n# Chats", "cc-by-4.0"),
        ("---\nlicense: other\nlicense_name: house-rules\n---\n", "house-rules"),
        ("---\nlicense: other\n---\n", "other"),
        ("---\nlicense: [mit, apache-2.0]\n---\n", "mit, apache-2.0"),
        ("---\ntags: [x]\n---\n", ""),
        ("---\nlicense: [}\n---\n", ""),
        ("---\n- a list\n---\n", ""),
        ("# No card", ""),
    ],
)
def test_the_licence_of_a_card_is_read_or_is_none(card: str, license: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(card)
    assert card_license(tmp_path / "README.md") == license


def test_a_dataset_without_a_card_has_no_licence() -> None:
    assert card_license(None) == ""
