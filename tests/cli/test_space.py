"""The Space from the command line: opened here, and written to the Hub."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.spaces import app_files, app_folder
from tests.cli.conftest import Command

TRACES = "me/space-traces"


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
    files = app_files(["me/pairs@" + "0" * 40], org="team")
    readme = files["README.md"].decode()
    assert readme.startswith("---\ndatasets:\n  - me/pairs\nhf_oauth_authorized_org: team\n")
    assert json.loads(files["space.json"]) == {"datasets": ["me/pairs@" + "0" * 40]}
    assert not any("__pycache__" in path for path in files)
    pinned = re.search(r"gradio\[oauth\]==(\S+)", files["requirements.txt"].decode())
    assert pinned
    assert f"sdk_version: {pinned.group(1)}" in readme
    assert (app_folder() / "app.py").is_file()


def test_an_unknown_dataset_is_named_before_anything_starts(composer_hub: Command) -> None:
    run = composer_hub("space", "open", "me/nothing@v1.0.0")
    assert run.returncode == exits.FAILURE
    assert "There is no me/nothing@v1.0.0" in run.stderr


def test_open_serves_the_space_until_interrupted(home: dict[str, str], traces: str) -> None:
    pytest.importorskip("gradio", reason="the Space needs gradio")
    pytest.importorskip("duckdb", reason="the Space needs duckdb")
    command = [sys.executable, "-m", "composer_hub", "space", "open", traces, "--no-browser", "--format", "quiet"]
    process = subprocess.Popen(command, env=home, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        assert "<title>me/space-traces v1.0.0 · Hints</title>" in opener.open(url, timeout=120).read().decode()
    finally:
        os.killpg(process.pid, signal.SIGINT)
    assert process.wait(120) == exits.INTERRUPTED
