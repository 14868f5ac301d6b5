"""Stock clients against a real server process, each in an own process with nothing but the environment changed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_hub.local_hub.server import ServerProcess
from tests.quick import quick

SCRIPT = Path(__file__).with_name("clients.py")
HF = str(Path(sys.executable).with_name("hf"))


def run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-4000:] + done.stdout[-1000:]
    return done.stdout


@pytest.mark.parametrize("way", quick(1, ["xet", "lfs"]))
@pytest.mark.parametrize("flow", ["commits_and_files", "folders", "dataset"])
def test_the_flow_works_unchanged(
    flow: str, way: str, client_env: dict[str, str], hub_repo: Callable[[str], str]
) -> None:
    env = client_env | ({"HF_HUB_DISABLE_XET": "1"} if way == "lfs" else {})
    assert run([sys.executable, str(SCRIPT), flow, hub_repo(flow)], env).endswith("done\n")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs the train extra")
def test_models_and_trainers_push_and_load_unchanged(
    client_env: dict[str, str], hub_repo: Callable[[str], str]
) -> None:
    assert run([sys.executable, str(SCRIPT), "model", hub_repo("model")], client_env).endswith("done\n")


def test_the_hf_command_works_unchanged(
    client_env: dict[str, str], hub_repo: Callable[[str], str], tmp_path: Path
) -> None:
    name = hub_repo("cli")
    (tmp_path / "notes.txt").write_text("hello")
    assert "me" in run([HF, "auth", "whoami"], client_env)
    run([HF, "repos", "create", name, "--private", "--type", "dataset"], client_env)
    run([HF, "upload", name, str(tmp_path / "notes.txt"), "notes.txt", "--type", "dataset"], client_env)
    run([HF, "repos", "tag", "create", name, "v1", "--type", "dataset"], client_env)
    run(
        [HF, "download", name, "--type", "dataset", "--local-dir", str(tmp_path / "down"), "--revision", "v1"],
        client_env,
    )
    assert (tmp_path / "down" / "notes.txt").read_text() == "hello"
    shown = json.loads(run([HF, "datasets", "info", name, "--format", "json"], client_env))
    assert shown["id"] == name
    assert name in run([HF, "datasets", "list", "--author", "me", "--format", "quiet"], client_env)
    mine = {
        repo["id"]: repo
        for repo in json.loads(run([HF, "repos", "list", "--limit", "1000", "--format", "json"], client_env))
    }
    assert (mine[name]["type"], mine[name]["visibility"]) == ("dataset", "private")
    run([HF, "repos", "delete", name, "--type", "dataset", "--yes"], client_env)


def test_a_token_or_a_secret_is_never_logged(hub_server: ServerProcess) -> None:
    log = (hub_server.root / "server.log").read_text()
    assert "hf_test" not in log
