"""The package travels as a wheel, whether it runs from a checkout or was installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from composer_hub.jobs.wheels import WheelError, own_wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the wheel is built with hatchling")
    return own_wheel(tmp_path_factory.mktemp("built"))


def test_a_checkout_is_built_the_same_each_time(built: Path, tmp_path: Path) -> None:
    assert built.name.startswith("composer_hub-")
    assert own_wheel(tmp_path).read_bytes() == built.read_bytes()


def test_an_installed_package_is_packed_into_the_wheel_it_came_from(built: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(built).extractall(tmp_path / "site")
    (tmp_path / "site" / "composer_hub" / "__pycache__").mkdir()
    (tmp_path / "site" / "composer_hub" / "__pycache__" / "x.pyc").touch()
    code = (
        "from pathlib import Path; from composer_hub.jobs.wheels import own_wheel; print(own_wheel(Path('again')).name)"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env, check=True
    )
    packed = zipfile.ZipFile(tmp_path / "again" / run.stdout.strip())
    before = zipfile.ZipFile(built)
    assert sorted(packed.namelist()) == sorted(before.namelist())
    assert all(
        packed.read(name) == before.read(name) for name in before.namelist() if not name.endswith(("RECORD", "/"))
    )
    record = next(name for name in before.namelist() if name.endswith("RECORD"))
    assert sorted(packed.read(record).split()) == sorted(before.read(record).split())


def test_what_cannot_be_built_is_told_with_another_way(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "composer_hub").mkdir()
    with pytest.raises(WheelError, match="--package"):
        own_wheel(tmp_path / "out", package=tmp_path / "composer_hub")
