"""What a job installs, and that the wheel of this checkout brings a job all that an installed package needs."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.jobs import JobOptions, Launcher, launch
from composer_hub.jobs.package import EXTRAS, build_wheel, find_package
from composer_hub.local_hub.server import start_server
from tests.hub.clients import hub_at
from tests.jobs.answers import answering

ROOT = Path(__file__).parents[2]
# It runs inside the job, on the Python that has installed the wheel.
INSIDE = """
import composer_hub, importlib.util, pathlib
from composer_hub.hub.spaces import app_folder
from composer_hub.train.presets import presets

here = pathlib.Path(composer_hub.__file__).parent
assert "site-packages" in here.parts and (app_folder() / "app.py").is_relative_to(here), here
print("INSTALLED", len(presets()), len(list((here / "dataset_cards").glob("*.md"))), len(list(app_folder().rglob("*"))))
"""


def test_a_job_installs_a_wheel_or_a_requirement(tmp_path: Path) -> None:
    wheel = tmp_path / "composer_hub-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    with answering({}) as (where, _):
        name, files = find_package(where, str(wheel))
        assert name == f"/composer/{next(iter(files))}{EXTRAS}"
        assert list(files.values()) == [b"wheel"]
        for requirement in ("composer-hub[train]==1.0", "git+https://host/hub"):
            assert find_package(where, requirement) == (requirement, {})
        with pytest.raises(exits.UsageError, match="pip wheel"):
            find_package(where, "no-such.whl")


def test_what_cannot_be_built_names_the_command_and_its_reason(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n[build-system]\nrequires = []\n")
    with pytest.raises(exits.UsageError, match=r"could not be built \(.+\)\. Build it with `pip wheel"):
        build_wheel(tmp_path, tmp_path / "wheel")


def test_a_checkout_is_sent_as_a_wheel_with_everything_that_is_installed() -> None:
    pytest.importorskip("hatch_fancy_pypi_readme", reason="the wheel is built without a network")
    with answering({}) as (where, _):
        argument, files = find_package(where, "", "")
    ((path, content),) = files.items()
    assert argument == f"/composer/{path}"
    names = set(zipfile.ZipFile(io.BytesIO(content)).namelist())
    for folder, inside in (("configs", "configs"), ("dataset_cards", "dataset_cards"), ("space", "space_app")):
        sources = [one for one in (ROOT / folder).rglob("*") if one.is_file() and "__pycache__" not in one.parts]
        assert sources
        assert {f"composer_hub/{inside}/{one.relative_to(ROOT / folder).as_posix()}" for one in sources} <= names


def machine(folder: Path) -> Path:
    """Make an environment with all libraries of this one, but without this package; return its programs' folder."""
    venv.create(folder, with_pip=False)
    python = "python{}.{}".format(*sys.version_info)
    libraries = folder / "libraries"
    libraries.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "composer_hub" not in entry.name:
            (libraries / entry.name).symlink_to(entry)
    (folder / "lib" / python / "site-packages" / "libraries.pth").write_text(f"{libraries}\n")
    return folder / "bin"


@pytest.mark.slow
def test_a_job_runs_the_wheel_of_this_checkout(tmp_path: Path) -> None:
    pytest.importorskip("hatch_fancy_pypi_readme", reason="the wheel is built without a network")
    pytest.importorskip("trl", reason="the job installs the extra [train]")
    pytest.importorskip("matplotlib", reason="the job installs the extra [report]")
    lines: list[str] = []
    with start_server(tmp_path / "hub", ["--allow-local-jobs"]) as server:
        where = dataclasses.replace(hub_at(server), name="hub")  # jobs of the embedded Hub install nothing
        run_inside = Launcher(where, "me", lambda spec: ["python", "-c", INSIDE], show=lines.append, poll_s=0.2)
        # A job's image has a Python of its own; here, the job finds it on its PATH.
        secrets = {"HF_TOKEN": server.token, "PATH": f"{machine(tmp_path / 'machine')}{os.pathsep}{os.environ['PATH']}"}
        words = ["--repo", "me/wheel", "--model_name_or_path", "small"]
        run = launch(run_inside, JobOptions(words, secrets, flavor="local", timeout="10m", max_usd=0.0))
    assert run.last is not None
    assert run.last.exit_code == 0, lines
    numbers = next(line for line in lines if line.startswith("INSTALLED")).split()[1:]
    assert all(int(number) > 3 for number in numbers), numbers
