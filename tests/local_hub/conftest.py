"""Clients of two people at the test Hub."""

from __future__ import annotations

import pytest
from huggingface_hub import HfApi

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
