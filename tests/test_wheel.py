"""What an installed package must hold beside its modules."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    pytest.importorskip("hatchling", reason="the wheel is built with hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_card_templates_reach_a_wheel(names: set[str]) -> None:
    templates = {f"composer_hub/dataset_cards/{path.name}" for path in (ROOT / "dataset_cards").glob("*.md")}
    assert templates
    assert templates <= names


def test_the_files_of_the_demo_reach_a_wheel(names: set[str]) -> None:
    assert {
        f"composer_hub/demo_files/{name}" for name in ("training.yaml", "load_pairs.txt", "load_model.txt")
    } <= names
    assert sum(name.startswith("composer_hub/demo_sessions/") and name.endswith(".jsonl") for name in names) == 3


def test_the_data_of_the_redaction_rules_reaches_a_wheel(names: set[str]) -> None:
    data = {f"composer_hub/redact/data/{path.name}" for path in (ROOT / "composer_hub/redact/data").iterdir()}
    assert data
    assert data <= names


def test_neither_tests_nor_benchmarks_reach_a_wheel(names: set[str]) -> None:
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"composer_hub"}


def test_the_space_reaches_a_wheel(names: set[str]) -> None:
    files = {path.relative_to(ROOT / "space") for path in (ROOT / "space").rglob("*") if path.is_file()}
    wanted = {f"composer_hub/space_app/{path.as_posix()}" for path in files if "__pycache__" not in path.parts}
    assert "composer_hub/space_app/app.py" in wanted
    assert {name for name in names if name.startswith("composer_hub/space_app/")} == wanted
