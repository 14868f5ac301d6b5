"""The Space from the command line: opened here, and written to the Hub."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from composer_hub import exits
from composer_hub.hub.spaces import app_files, app_folder
from tests.cli.conftest import Command

TRACES = "me/space-traces"
ROOT = Path(__file__).parents[2]
PINNED = ["me/pairs@" + "0" * 40]


@pytest.fixture
def traces(composer_hub: Command, sessions: Path) -> str:
    run = composer_hub("ingest", sessions, "--repo", TRACES)
    assert run.returncode in (exits.DONE, exits.NOTHING_TO_DO), run.stderr
    return f"{TRACES}@v1.0.0"


def test_a_deployed_space_pins_its_datasets_and_is_private(composer_hub: Command, traces: str) -> None:
    plan = composer_hub("space", "deploy", traces, "--dry-run", "--format", "json")
    assert {row["file"] for row in json.loads(plan.stdout)} >= {"app.py", "README.md", "requirements.txt", "space.json"}
    run = composer_hub("space", "deploy", traces, "--org", "team", "--format", "json")
    assert run.returncode == exits.DONE, run.stderr
    made = json.loads(run.stdout)
    assert made["space"] == f"{TRACES}-space"
    assert re.fullmatch(rf"{TRACES}@[0-9a-f]{{40}}", made["datasets"][0])


def test_the_files_of_a_deployed_space_name_its_datasets_in_their_front_matter() -> None:
    files = app_files(PINNED, org="team")
    readme = files["README.md"].decode()
    assert readme.startswith("---\ndatasets:\n  - me/pairs\nhf_oauth_authorized_org: team\n")
    assert json.loads(files["space.json"]) == {"datasets": PINNED}
    assert not any("__pycache__" in path for path in files)
    pinned = re.search(r"gradio\[oauth\]==(\S+)", files["requirements.txt"].decode())
    assert pinned
    assert f"sdk_version: {pinned.group(1)}" in readme
    assert (app_folder() / "app.py").is_file()


def build() -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a deployed Space, and everything that its build installs."""
    files = app_files(PINNED)
    settings = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    lines = files["requirements.txt"].decode().splitlines()
    # Logs of builds show that Spaces add these to the requirements of an app.
    added = [f"gradio[oauth,mcp]=={settings['sdk_version']}", "uvicorn>=0.14.0", "websockets>=10.4", "spaces"]
    return settings, [*lines, *added]


def test_a_deployed_space_names_a_python_that_its_pinned_requirements_run_on() -> None:
    settings, lines = build()
    python = settings["python_version"]
    # Spaces read a text; without quotation marks 3.10 would be the number 3.1.
    assert re.fullmatch(r"3\.\d+", python)
    assert SpecifierSet(">=3.11").contains(python)
    tested = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").split()
    for requirement in map(Requirement, lines):
        if str(requirement.specifier).startswith("=="):
            assert f"{requirement.name}{requirement.specifier}".lower() in tested, "another version is tested here"
            installed = metadata.metadata(requirement.name)
            if requirement.specifier.contains(installed["Version"]):
                assert SpecifierSet(installed["Requires-Python"] or "").contains(f"{python}.0"), requirement


def test_the_requirements_of_a_deployed_space_resolve_on_its_python(tmp_path: Path) -> None:
    uv = pytest.importorskip("uv", reason="the requirements are resolved with uv")
    settings, lines = build()
    command = [uv.find_uv_bin(), "pip", "compile", "-", "--quiet", "--only-binary", ":all:"]
    command += ["--python-version", settings["python_version"], "--python-platform", "x86_64-manylinux_2_28"]
    run = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, cwd=tmp_path, timeout=600)
    if "Failed to fetch" in run.stderr:
        pytest.skip("the package index cannot be reached")
    assert run.returncode == 0, run.stderr


def test_a_deployed_space_has_the_package_s_own_rule_of_who_decided() -> None:
    assert app_files(PINNED)["inspector/reviews.py"] == (ROOT / "composer_hub/hub/reviews.py").read_bytes()


def test_an_unknown_dataset_is_named_before_anything_starts(composer_hub: Command) -> None:
    run = composer_hub("space", "open", "me/nothing@v1.0.0")
    assert run.returncode == exits.FAILURE
    assert "There is no me/nothing@v1.0.0" in run.stderr


@pytest.mark.slow
def test_open_serves_the_space_until_interrupted(home: dict[str, str], traces: str) -> None:
    pytest.importorskip("gradio", reason="the Space needs gradio")
    pytest.importorskip("duckdb", reason="the Space needs duckdb")
    command = [sys.executable, "-m", "composer_hub", "space", "open", traces, "--no-browser", "--format", "quiet"]
    process = subprocess.Popen(command, env=home, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        assert "<title>me/space-traces v1.0.0 · Hints</title>" in opener.open(url, timeout=600).read().decode()
    finally:
        os.killpg(process.pid, signal.SIGINT)
    assert process.wait(600) == exits.INTERRUPTED
