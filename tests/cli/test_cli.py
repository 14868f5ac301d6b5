"""The command line's conventions: lazy help, formats, exit codes, sentences."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from composer_hub.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]


def composer_hub(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "composer_hub", *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, **options)  # type: ignore[call-overload]


def test_help_names_every_command_and_imports_no_stage() -> None:
    code = (
        "import sys; from composer_hub.cli.main import root\n"
        "root.main(['--help'], standalone_mode=False)\n"
        "print(*[name for name in sys.modules if name.startswith('composer_hub.')], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert all(name in run.stdout for name in COMMANDS)
    assert set(run.stderr.split()) == {
        "composer_hub.cli",
        "composer_hub.cli.main",
        "composer_hub.exits",
        "composer_hub.local_hub",
        "composer_hub.local_hub.errors",
        "composer_hub.output",
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_has_help(name: str) -> None:
    run = composer_hub(name, "--help")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Usage: composer-hub")


def test_an_unknown_command_is_a_usage_error() -> None:
    run = composer_hub("no-such-command")
    assert run.returncode == 2
    assert "No such command" in run.stderr


def test_a_bad_repository_name_is_one_sentence_and_exit_2(tmp_path: Path) -> None:
    run = composer_hub("lineage", "no-owner", "--to", str(tmp_path))
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "write it as owner/name" in run.stderr


def test_a_version_that_is_not_there_is_exit_1_and_says_where_it_looked(tmp_path: Path) -> None:
    run = composer_hub("lineage", "me/nothing@v1.0.0", "--to", str(tmp_path))
    assert run.returncode == 1
    assert str(tmp_path) in run.stderr


def test_doctor_prints_json_and_no_secret() -> None:
    import os

    env = os.environ | {"HF_TOKEN": "hf_secretsecretsecret", "HF_ENDPOINT": "http://127.0.0.1:9"}
    run = composer_hub("doctor", "--format", "json", env=env)
    checks = json.loads(run.stdout)
    assert {"composer_hub", "libraries", "endpoint", "token"} <= {check["name"] for check in checks}
    assert "hf_secret" not in run.stdout + run.stderr


def test_a_reader_that_leaves_early_is_no_error() -> None:
    run = subprocess.run(
        f"{sys.executable} -m composer_hub doctor --offline | head -1",
        shell=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert run.returncode == 0
    assert "Traceback" not in run.stderr
