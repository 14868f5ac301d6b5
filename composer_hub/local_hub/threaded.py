"""The embedded Hub in a thread of this process: for tests, which add users and faults while it runs."""

from __future__ import annotations

import importlib.util
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from composer_hub.local_hub.accounts import Accounts, Organization, User
from composer_hub.local_hub.app import PATIENCE, App, make_hub, open_store
from composer_hub.local_hub.direct import direct_protocol
from composer_hub.local_hub.env import client_env, env_changes
from composer_hub.local_hub.faults import Faulty, parse_faults
from composer_hub.local_hub.server import START_SECONDS, ServerError

HOST = "127.0.0.1"


@dataclass(frozen=True)
class HubThread:
    """A running Hub, its accounts and its faults."""

    endpoint: str
    root: Path
    accounts: Accounts
    faulty: Faulty
    with_xet: bool

    def add_user(self, name: str, orgs: Mapping[str, str]) -> str:
        """Add a user with roles in organizations, which are made if necessary; return the token."""
        for org in orgs:
            self.accounts.organizations.setdefault(org, Organization(org, org))
        token = "hf_" + secrets.token_hex(17)
        self.accounts.add(User(name, fullname=name, roles=dict(orgs)), token)
        return token

    @contextmanager
    def faults(self, words: str, seed: int = 0) -> Iterator[None]:
        """Let writes fail inside the block."""
        before = self.faulty.faults
        self.faulty.faults, self.faulty.random = parse_faults(words), random.Random(seed)
        try:
            yield
        finally:
            self.faulty.faults = before

    def env(self, token: str) -> dict[str, str]:
        """Return this process's environment, changed so that clients in a child process use this Hub."""
        return client_env(os.environ, self.endpoint, token, home=self.root / "home", with_xet=self.with_xet)

    def changes(self) -> dict[str, str | None]:
        """Return the variables under which clients of this process use this Hub, without a token."""
        return env_changes(os.environ, self.endpoint, home=self.root / "home", with_xet=self.with_xet)


@contextmanager
def hub_thread(root: Path, *, patience: float = PATIENCE) -> Iterator[HubThread]:
    """Serve a new folder until the block ends."""
    with_xet = importlib.util.find_spec("hf_xet") is not None
    # The protocol must be named: asyncio turns Nagle's delay off only for sockets that say TCP.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind((HOST, 0))
        endpoint = f"http://{HOST}:{listener.getsockname()[1]}"
        accounts, store = Accounts(), open_store(root / "hub", patience=patience)
        hub = make_hub(store, accounts, endpoint, with_xet=with_xet, allowed_hosts=frozenset({HOST, "localhost"}))
        faulty = Faulty(App(hub), ())
        config = uvicorn.Config(
            faulty, http=direct_protocol(), log_level="critical", access_log=False, ws="none", date_header=False
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="embedded-hub", daemon=True)
        thread.start()
        try:
            until = time.monotonic() + START_SECONDS
            while not server.started:
                if not thread.is_alive() or time.monotonic() > until:
                    raise ServerError(f"The embedded Hub did not start in this process at {endpoint}.")
                time.sleep(0.005)
            yield HubThread(endpoint, root, accounts, faulty, with_xet)
        finally:
            server.should_exit = True
            thread.join(START_SECONDS)
            store.close()
