"""Clients of the test Hub: plain requests, and the stock client of two people."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.utils import httpx

from composer_hub.local_hub.server import ServerProcess


@pytest.fixture
def server(hub_server: ServerProcess) -> ServerProcess:
    return hub_server


@pytest.fixture
def ada(server: ServerProcess) -> HfApi:
    return HfApi(endpoint=server.endpoint, token="hf_test_ada")


@pytest.fixture
def bob(server: ServerProcess) -> HfApi:
    return HfApi(endpoint=server.endpoint, token="hf_test_bob")


@pytest.fixture(scope="session")
def http(hub_server: ServerProcess) -> Iterator[Any]:
    with httpx.Client(base_url=hub_server.endpoint, trust_env=False, timeout=600) as client:
        yield client


@pytest.fixture
def hf(server: ServerProcess) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the `hf` command as ada."""

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "huggingface_hub.cli.hf", *words]
        env = os.environ | server.env | {"HF_TOKEN": "hf_test_ada"}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)

    return call
