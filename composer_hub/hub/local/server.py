"""The embedded Hub as a process: bind, lock the folder, announce the address, answer until asked to stop."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from composer_hub.exits import ComposerError

if TYPE_CHECKING:
    import uvicorn

    from composer_hub.hub.local.accounts import Accounts

STATE = "server.json"
TOKEN = "token"
LOCK = "server.lock"


class ServerError(ComposerError, RuntimeError):
    """The embedded Hub could not be started or reached."""


@dataclass(frozen=True)
class Settings:
    """How to serve; the folder holds everything that lasts."""

    root: Path
    host: str = "127.0.0.1"
    port: int = 0
    with_xet: bool = True
    allow_local_jobs: bool = False
    allowed_hosts: tuple[str, ...] = ()
    inject: str = ""


def serve(settings: Settings, accounts: Accounts, token: str, *, ready: object = None) -> None:
    """Serve in this process until a signal asks to stop."""
    import uvicorn

    from composer_hub.hub.local.app import App, make_hub
    from composer_hub.hub.local.store import Store

    with _locked(settings.root), _bound(settings) as listener:
        endpoint = f"http://{settings.host}:{listener.getsockname()[1]}"
        hosts = frozenset({"127.0.0.1", "localhost", "::1", settings.host.lower(), *settings.allowed_hosts})
        store = Store(settings.root)
        hub = make_hub(
            store, accounts, endpoint, allow_local_jobs=settings.allow_local_jobs, allowed_hosts=hosts
        )
        config = uvicorn.Config(App(hub), log_level="warning", access_log=False, lifespan="on", ws="none")
        write_state(settings.root, endpoint, token)
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            (settings.root / STATE).unlink(missing_ok=True)
            store.close()


def own_token(root: Path) -> str:
    """Return this folder's token, made at first use and kept readable for the owner only."""
    path = root / TOKEN
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write("hf_" + secrets.token_hex(17))
    return path.read_text().strip()


def write_state(root: Path, endpoint: str, token: str) -> None:
    """Say where this folder is served; whoever may read the file may use the Hub."""
    beside = root / f"{STATE}.{os.getpid()}"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"endpoint": endpoint, "pid": os.getpid(), "token": token}, file)
    os.replace(beside, root / STATE)


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the folder: two servers on one store would sweep each other's unfinished files."""
    from filelock import FileLock, Timeout

    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with FileLock(root / LOCK, timeout=0):
            yield
    except Timeout as error:
        raise ServerError(f"{root} is already served. See `composer-hub hub status`, or give another --data.") from error


@contextlib.contextmanager
def _bound(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            raise ServerError(
                f"{settings.host}:{settings.port} cannot be bound ({error.strerror}). Give another --port."
            ) from error
        yield listener
