"""A small virtual environment with pytest, as a task's package has it."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def plain_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment with pytest alone, copied from the running one."""
    folder = tmp_path_factory.mktemp("venv")
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (target,) = folder.glob("lib/python*/site-packages")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        for file in importlib.metadata.files(name) or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and source.suffix != ".pyc" and source.is_file():
                place = target / file
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
    return folder
