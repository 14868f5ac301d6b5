"""The conftest of huggingface_hub's test suite here: its source distribution has the tests, and not their fixtures.

The suite is written for `https://hub-ci.huggingface.co`. Requests to it go to `COMPOSER_CONFORMANCE_ENDPOINT`, and all
others are refused, so that a result never depends on the network. With an empty endpoint every request is refused.
"""

from __future__ import annotations

import os
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import HfApi, RepoUrl, constants
from huggingface_hub.utils import _auth, _detect_agent, _http, httpx

from . import testing_constants
from .testing_utils import repo_name

STAGING = httpx.URL(testing_constants.ENDPOINT_STAGING)
ENDPOINT = os.environ["COMPOSER_CONFORMANCE_ENDPOINT"]
# Test modules import this name when they are collected, after this module.
testing_constants.ENDPOINT_STAGING = constants.ENDPOINT

if not ENDPOINT:
    # Waiting between attempts would not bring a server.
    _http.time = types.SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})

RepoFactory = Callable[..., RepoUrl]


def _lead(request: httpx.Request) -> None:
    """Send what is meant for the Hub of the suite to the embedded Hub, and refuse the rest."""
    if not ENDPOINT:
        raise httpx.ConnectError("this run has no server", request=request)
    if request.url.host == STAGING.host:
        endpoint = httpx.URL(ENDPOINT)
        request.url = request.url.copy_with(scheme=endpoint.scheme, host=endpoint.host, port=endpoint.port)
        request.headers["Host"] = f"{endpoint.host}:{endpoint.port}"
    elif request.url.host not in ("127.0.0.1", "localhost"):
        raise RuntimeError(f"this run has no internet: {request.url.host}")


def _client() -> httpx.Client:
    client = _http.default_client_factory()
    client.event_hooks = {**client.event_hooks, "request": [*client.event_hooks["request"], _lead]}
    return client


async def _lead_async(request: httpx.Request) -> None:
    _lead(request)


def _async_client() -> httpx.AsyncClient:
    client = _http.default_async_client_factory()
    client.event_hooks = {**client.event_hooks, "request": [*client.event_hooks["request"], _lead_async]}
    return client


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Expect the warnings that a test marked `deprecated` announces; the suite turns all others into errors."""
    marker = item.get_closest_marker("deprecated")
    if marker is None:
        return (yield)
    with pytest.warns(FutureWarning):
        return (yield)


@pytest.fixture(autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test its own caches and token files, no known agent, and the client that finds the Hub."""
    home = tmp_path_factory.mktemp("home")
    for name, place in {
        "HF_TOKEN_PATH": "token",
        "HF_STORED_TOKENS_PATH": "stored_tokens",
        "HF_HUB_CACHE": "hub",
        "HUGGINGFACE_HUB_CACHE": "hub",
        "HF_ASSETS_CACHE": "assets",
        "HUGGINGFACE_ASSETS_CACHE": "assets",
        "HF_XET_CACHE": "xet",
    }.items():
        if hasattr(constants, name):
            monkeypatch.setattr(constants, name, str(home / place))
    monkeypatch.setattr(_auth, "_OAUTH_REFRESH_CACHE", None)
    monkeypatch.setattr(_detect_agent, "_registry", {"standardEnvVars": [], "harnesses": {}})
    huggingface_hub.set_client_factory(_client)
    huggingface_hub.set_async_client_factory(_async_client)


@pytest.fixture(scope="session")
def api() -> HfApi:
    """The suite's main user."""
    return HfApi(endpoint=constants.ENDPOINT, token=testing_constants.TOKEN)


@pytest.fixture(scope="session")
def api_prod() -> HfApi:
    return HfApi(endpoint=testing_constants.ENDPOINT_PRODUCTION, token=False)


@pytest.fixture
def repo_factory(api: HfApi) -> Iterator[RepoFactory]:
    """Create repositories, which are deleted after the test."""
    made: list[tuple[RepoUrl, Any]] = []

    def create(repo_type: str = "model", *, repo_id: str | None = None, token: Any = None, **options: Any) -> RepoUrl:
        token = token or testing_constants.TOKEN
        url = api.create_repo(repo_id or repo_name(), repo_type=repo_type, token=token, **options)
        made.append((url, token))
        return url

    yield create
    for url, token in made:
        api.delete_repo(url.repo_id, repo_type=url.repo_type, token=token, missing_ok=True)


@pytest.fixture
def new_repo_id(api: HfApi) -> Iterator[str]:
    """Name a repository that does not exist yet and is deleted if the test made it."""
    repo_id = f"{testing_constants.USER}/{repo_name()}"
    yield repo_id
    api.delete_repo(repo_id, missing_ok=True)


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"
