"""A real embedded Hub for the tests of everything that talks to one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from composer_hub.local_hub.server import ServerProcess, start_server

USERS = """
users:
  - {name: me, token: hf_test_me, read_token: hf_test_reader, email: me@example.org, orgs: {team: admin, vault: admin}}
  - {name: ada, token: hf_test_ada, orgs: {team: read}}
  - {name: bob, token: hf_test_bob, orgs: {team: contributor}}
  - {name: eve, token: hf_test_eve}
orgs:
  - {name: team, fullname: The Team}
  - {name: vault, private_by_default: true}
"""


@pytest.fixture(scope="session")
def users_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.yaml"
    path.write_text(USERS)
    return path


@pytest.fixture(scope="session")
def hub_server(tmp_path_factory: pytest.TempPathFactory, users_file: Path) -> Iterator[ServerProcess]:
    """One embedded Hub a test process, LFS and Xet: user `me` owns the token, ada, bob and eve are others."""
    options = ["--users-file", str(users_file), "--allow-local-jobs"]
    with start_server(tmp_path_factory.mktemp("hub"), options) as server:
        yield server


@pytest.fixture
def hub_repo() -> Callable[[str], str]:
    """Return unique repository names: `hub_repo("data")` is `me/data-…`."""
    return lambda word="repo", namespace="me": f"{namespace}/{word}-{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def client_env(hub_server: ServerProcess) -> dict[str, str]:
    """The environment of a child process whose clients use the test Hub."""
    return hub_server.env | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYTHONPATH": os.getcwd()}
