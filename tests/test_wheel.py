"""What an installed package must hold beside its modules."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    pytest.importorskip("hatchling", reason="the wheel is built with hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=ROOT, check=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def names(wheel: zipfile.ZipFile) -> set[str]:
    return set(wheel.namelist())


def test_the_presets_and_the_mark_of_a_typed_package_reach_a_wheel(names: set[str]) -> None:
    presets = {f"composer_hub/configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")}
    assert presets
    assert presets | {"composer_hub/py.typed"} <= names


def test_every_link_of_the_index_page_is_absolute_and_leads_into_the_project(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    links = re.findall(r"\]\(([^)]+)\)", metadata.get_payload())
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL") or ())
    assert {"Repository", "Documentation", "Issues"} <= urls.keys()
    assert len(links) > 10
    raw = urls["Repository"].replace("github.com", "raw.githubusercontent.com")
    bases = (f"{urls['Repository']}/blob/main/", f"{raw}/main/")
    for link in links:
        base = next(base for base in bases if link.startswith(base))
        assert (ROOT / link.removeprefix(base)).exists()


def test_the_card_templates_reach_a_wheel(names: set[str]) -> None:
    templates = {f"composer_hub/dataset_cards/{path.name}" for path in (ROOT / "dataset_cards").glob("*.md")}
    assert templates
    assert templates <= names


def test_the_tiny_models_reach_a_wheel_byte_for_byte(wheel: zipfile.ZipFile) -> None:
    files = [path for path in (ROOT / "composer_hub/train/small").rglob("*") if path.is_file()]
    assert sum(path.name == "model.safetensors" for path in files) == 3
    for path in files:
        assert wheel.read(str(path.relative_to(ROOT))) == path.read_bytes()


def test_the_files_of_the_demo_reach_a_wheel(names: set[str]) -> None:
    assert {
        f"composer_hub/demo/files/{name}" for name in ("training.yaml", "load_pairs.txt", "load_model.txt")
    } <= names
    assert sum(name.startswith("composer_hub/demo/sessions/") and name.endswith(".jsonl") for name in names) == 3


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


def test_the_pytest_plugin_is_found_by_pytest(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    assert "[pytest11]\ncomposer_hub = composer_hub.local_hub.pytest_plugin" in wheel.read(name).decode()
