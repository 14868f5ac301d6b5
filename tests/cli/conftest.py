"""The command line as a user meets it, and an embedded Hub for its commands."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from composer_hub.cli.main import main
from composer_hub.hub import HubDestination, embedded_hub
from composer_hub.local_hub.server import find_running, start_server

ROOT = Path(__file__).parents[2]
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The variables under which commands use the tests' own Hub and state; nothing of the caller's token."""
    root = tmp_path_factory.mktemp("commands")
    with start_server(root / "hub") as server:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        yield kept | {
            "COMPOSER_HUB_HOME": str(server.root),
            "COMPOSER_HUB_STATE": str(root / "state"),
            "HF_HOME": str(root / "home"),
            "PYTHONPATH": str(ROOT),
        }


@pytest.fixture
def composer_hub(home: dict[str, str], tmp_path: Path) -> Command:
    """Run a command in a folder of its own; no run may ever print a traceback."""

    def call(*words: object, timeout_s: float = 600, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "composer_hub", *map(str, words)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=home | env, timeout=timeout_s)
        assert "Traceback" not in run.stderr, run.stderr
        return run

    return call


@pytest.fixture
def in_process(home: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command as `composer_hub` does, without the second that a process needs to start.

    Client libraries read most of the environment when they are imported, so tests of the environment need a process.
    """

    def call(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
        command, code = [*map(str, words)], 0
        with environment(home | env, tmp_path):
            capsys.readouterr()
            try:
                main(command)
            except SystemExit as end:
                code = int(end.code or 0)
        captured = capsys.readouterr()
        assert "This is a bug" not in captured.err, captured.err
        return subprocess.CompletedProcess(command, code, captured.out, captured.err)

    return call


@pytest.fixture
def where(home: dict[str, str]) -> HubDestination:
    """The embedded Hub of the commands."""
    running = find_running(Path(home["COMPOSER_HUB_HOME"]))
    assert running is not None
    return embedded_hub(running)


@contextmanager
def environment(variables: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Replace the environment and the working folder, and put the old ones back."""
    kept, back = dict(os.environ), Path.cwd()
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        yield
    finally:
        os.chdir(back)
        os.environ.clear()
        os.environ.update(kept)


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """A copy of the bundled sessions, to be changed at will."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    for path in sorted((ROOT / "composer_hub" / "demo" / "sessions").rglob("*.jsonl")):
        (folder / path.name).write_bytes(path.read_bytes())
    return folder
