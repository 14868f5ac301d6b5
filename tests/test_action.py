"""The GitHub Action and the image: their own lines run here, with what a runner and a build would give them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from composer_hub.local_hub.server import ServerProcess

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
IMAGE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SESSIONS = ROOT / "tests" / "fixtures" / "harnesses" / "claude_code"
Publish = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def publish(tmp_path: Path, hub_server: ServerProcess) -> Publish:
    """Run the last step as a runner does; `composer-hub` lies where the step before it installs it."""
    program = tmp_path / "composer-hub" / "bin" / "composer-hub"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m composer_hub "$@"\n')
    program.chmod(0o755)
    machine = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    machine |= {"RUNNER_TEMP": str(tmp_path), "HF_ENDPOINT": hub_server.env["HF_ENDPOINT"]}

    def run(**inputs: str) -> subprocess.CompletedProcess[str]:
        values = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
        values |= {"token": hub_server.env["HF_TOKEN"]} | inputs
        env = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: values[m[1]], text)
            for name, text in STEPS[-1]["env"].items()
        }
        script = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[-1]["run"]]
        return subprocess.run(script, env=machine | env, cwd=tmp_path, capture_output=True, text=True, timeout=600)

    return run


@pytest.mark.slow
def test_the_action_publishes_new_sessions_and_a_run_without_any_succeeds(publish: Publish, tmp_path: Path) -> None:
    sessions = tmp_path / "sessions; touch broken $(touch broken)"
    sessions.mkdir()
    shutil.copy(SESSIONS / "parallel.jsonl", sessions)
    inputs = {"sessions": f"{sessions}\n\n", "repo": "me/from-an-action", "options": "--license\nmit\n"}
    first = publish(**inputs)
    assert first.returncode == 0, first.stderr
    assert "v1.0.0" in first.stdout + first.stderr
    again = publish(**inputs)
    assert again.returncode == 0, again.stderr
    assert "::notice::No session has changed" in again.stdout
    assert not (tmp_path / "broken").exists()


def test_the_action_fails_with_the_commands_own_code_and_sentence(publish: Publish) -> None:
    failed = publish(sessions="nowhere", repo="me/from-an-action")
    assert failed.returncode == 1
    assert "nowhere cannot be read" in failed.stderr


def test_no_text_of_an_input_is_read_by_a_shell() -> None:
    assert not [step for step in STEPS if "${{" in step.get("run", "")]


def test_the_image_installs_extras_that_exist_and_copies_no_build_or_environment() -> None:
    extras = set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    )
    installed = re.search(r'"\.\[([\w,]+)\]"', IMAGE)
    assert installed is not None
    assert {"train", "report", "space"} <= set(installed[1].split(",")) <= extras
    for path in re.findall(r"/opt/composer_hub/([\w./]+)", IMAGE):
        assert (ROOT / path).exists()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert set((ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()) | {".git/"} <= set(ignored)
