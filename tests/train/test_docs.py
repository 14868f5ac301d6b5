"""The reference's table of options is the one that the config's help strings make."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from trl import GRPOConfig

from composer_hub.train.trainer import ComposerConfig

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "trainer.md"


def option_rows() -> list[str]:
    inherited = {field.name for field in dataclasses.fields(GRPOConfig)}
    return [
        f"| `{field.name}` | {field.default} | {field.metadata['help']} |"
        for field in dataclasses.fields(ComposerConfig)
        if field.name not in inherited
    ]


def test_the_page_lists_every_option_with_its_help() -> None:
    lines = PAGE.read_text().splitlines()
    assert [line for line in lines if line in option_rows()] == option_rows()
