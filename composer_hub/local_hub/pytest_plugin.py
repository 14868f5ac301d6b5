"""A pytest plugin for every project that tests Hub code: `embedded_hub`, a real Hub in a thread of the test process.

    def test_my_push(embedded_hub):
        api = embedded_hub.api()                        # a user and a namespace of this test alone
        api.create_repo(embedded_hub.repo("data"), repo_type="dataset")
        with embedded_hub.faults("412,503:0.5"):        # what does my code do about them?
            my_push(api, embedded_hub.repo("data"))

With `embedded_hub = true` in pytest's configuration, HF_ENDPOINT and HF_TOKEN lead there in the whole run, so that code
which makes its own clients needs no change. Nothing is imported or started where no test asks for it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from huggingface_hub import HfApi

    from composer_hub.local_hub.threaded import HubThread

_OPTION = "embedded_hub"
_RUNNING = pytest.StashKey[ExitStack]()
_HUB = pytest.StashKey[Any]()


@dataclass(frozen=True)
class EmbeddedHub:
    """The embedded Hub as one test sees it: its own user, who is also its namespace."""

    thread: HubThread = field(repr=False)
    namespace: str
    token: str = field(repr=False)

    @property
    def endpoint(self) -> str:
        return self.thread.endpoint

    @property
    def env(self) -> dict[str, str]:
        """Return an environment in which the clients of a child process use this Hub as this user."""
        return self.thread.env(self.token)

    def api(self, token: str | bool | None = None, **options: Any) -> HfApi:
        """Return a stock client of this user, of another token, or (False) without a token."""
        from huggingface_hub import HfApi

        return HfApi(endpoint=self.endpoint, token=self.token if token is None else token, **options)

    def repo(self, name: str = "repo") -> str:
        """Return a full repository name in the namespace of this test."""
        return f"{self.namespace}/{name}"

    def add_user(self, orgs: Mapping[str, str] | None = None) -> EmbeddedHub:
        """Add another user; `orgs` maps organizations, which are made if necessary, to their roles there."""
        return _new_user(self.thread, dict(orgs or {}))

    @contextmanager
    def faults(self, words: str, seed: int = 0) -> Iterator[None]:
        """Let writes fail inside the block, as `hub serve --inject` does: `412,409:2,429,503:0.1,drop,lose`."""
        with self.thread.faults(words, seed):
            yield


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `embedded_hub` of pytest's configuration, which is off by default."""
    help = "Start an embedded Hub before the tests are collected, and point HF_ENDPOINT and HF_TOKEN at it."
    parser.addini(_OPTION, help, type="bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set the environment before anything imports the client libraries, which read it then."""
    if not early_config.getini(_OPTION):
        return
    if "huggingface_hub.constants" in sys.modules:
        raise pytest.UsageError(
            "embedded_hub = true: huggingface_hub is imported before the tests, by another plugin, and has read "
            "HF_ENDPOINT. Set `embedded_hub = false` and give the fixture's endpoint to your clients."
        )
    hub = _start(early_config)
    for name, value in hub.changes().items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the Hub of this test process, if one was started."""
    if _RUNNING in config.stash:
        config.stash[_RUNNING].close()


def _start(config: pytest.Config) -> HubThread:
    """Return the Hub of this test process, started at first use."""
    if _HUB not in config.stash:
        from composer_hub.local_hub.threaded import hub_thread

        running = config.stash[_RUNNING] = ExitStack()
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="embedded-hub-"))
        config.stash[_HUB] = running.enter_context(hub_thread(Path(folder)))
    return config.stash[_HUB]


def _new_user(thread: HubThread, orgs: Mapping[str, str]) -> EmbeddedHub:
    name = f"test-{uuid.uuid4().hex[:12]}"
    return EmbeddedHub(thread, name, thread.add_user(name, orgs))


@pytest.fixture
def embedded_hub(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EmbeddedHub:
    """A real Hub on loopback with a user and a namespace of this test; the server is shared by the test process."""
    hub = _new_user(_start(request.config), {})
    if request.config.getini(_OPTION):
        monkeypatch.setenv("HF_TOKEN", hub.token)
    return hub
