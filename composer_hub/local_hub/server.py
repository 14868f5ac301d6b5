"""The embedded Hub as a process: bind, lock the folder, announce the address, answer until asked to stop.

`serve` runs in this process. `start_server` runs the real command in a child, for tests and for callers that want
their own Hub. `embedded` finds or starts the one Hub that a user shares between commands.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub.local_hub import children
from composer_hub.local_hub.env import client_env, default_root
from composer_hub.local_hub.errors import LocalHubError

if TYPE_CHECKING:
    from composer_hub.local_hub.accounts import Accounts

STATE, TOKEN, LOCK, START_LOCK, LOG = "server.json", "token", "server.lock", "start.lock", "server.log"
START_SECONDS = 120.0
_END_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_GRACE_SECONDS = 5
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


class ServerError(LocalHubError, RuntimeError):
    """The embedded Hub could not be started or reached."""


@dataclass(frozen=True)
class Settings:
    """How to serve; the folder holds everything that lasts."""

    root: Path
    host: str = field(default="127.0.0.1", metadata={"help": "Address to listen on."})
    port: int = field(default=0, metadata={"help": "Port (0: a free one).", "min": 0, "max": 65535})
    with_xet: bool = field(default=True, metadata={"help": "Offer Xet beside LFS.", "flag": "--xet/--no-xet"})
    allow_local_jobs: bool = field(
        default=False, metadata={"help": "Run jobs as processes of this machine, with your rights."}
    )
    allowed_hosts: tuple[str, ...] = field(
        default=(),
        metadata={"help": "Another Host header to accept; repeatable.", "flag": "--allow-host", "metavar": "NAME"},
    )
    inject: str = field(
        default="", metadata={"help": "Faults for tests: 412,409:2,429,503:0.1,drop,lose.", "metavar": "FAULTS"}
    )
    seed: int = field(default=0, metadata={"help": "Seed of random faults."})


@dataclass(frozen=True)
class RunningHub:
    """A Hub that answers: where, with which token, and whose folder."""

    endpoint: str
    token: str
    pid: int
    root: Path
    with_xet: bool = True

    @property
    def env(self) -> dict[str, str]:
        """Return this process's environment, changed so that clients in a child process use this Hub."""
        return client_env(os.environ, self.endpoint, self.token, home=self.root / "home", with_xet=self.with_xet)


# ---------------------------------------------------------------------------------------------------- in this process


def serve(
    settings: Settings, accounts: Accounts, announce: Callable[[RunningHub], None] = lambda running: None
) -> None:
    """Serve in this process until SIGINT, SIGTERM or SIGHUP; `announce` is called once, when requests are answered."""
    import uvicorn

    from composer_hub.local_hub.app import PATIENCE, App, make_hub, open_store
    from composer_hub.local_hub.direct import direct_protocol
    from composer_hub.local_hub.faults import Faulty, parse_faults

    with_xet = settings.with_xet and importlib.util.find_spec("hf_xet") is not None
    faults = parse_faults(settings.inject)

    class Server(uvicorn.Server):
        """uvicorn, but it announces itself and leaves quietly on a signal."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            write_state(running)
            announce(running)

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            # A handler that raises inside the event loop can lose the end of a job, for which the server then waits.
            heard = [number for number in _END_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
            before = {number: signal.signal(number, self.handle_exit) for number in heard}
            yield
            for number, handler in before.items():
                signal.signal(number, handler)

    _keep_freed_memory()
    with _locked(settings.root), _bound(settings) as listener:
        name = f"[{settings.host}]" if ":" in settings.host else settings.host
        endpoint = f"http://{name}:{listener.getsockname()[1]}"
        (settings.root / STATE).unlink(missing_ok=True)
        keep_token(settings.root, accounts.first_token)
        running = RunningHub(endpoint, accounts.first_token, os.getpid(), settings.root, with_xet)
        store = open_store(settings.root, patience=PATIENCE)
        hub = make_hub(
            store,
            accounts,
            endpoint,
            with_xet=with_xet,
            allow_local_jobs=settings.allow_local_jobs,
            allowed_hosts=frozenset({"127.0.0.1", "localhost", "::1", settings.host, *settings.allowed_hosts}),
        )
        app: Any = Faulty(App(hub), faults, settings.seed) if faults else App(hub)
        config = uvicorn.Config(
            app,
            http=direct_protocol(),
            log_level="critical" if faults else "warning",
            access_log=False,
            ws="none",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            date_header=False,
        )
        try:
            Server(config).run(sockets=[listener])
        finally:
            (settings.root / STATE).unlink(missing_ok=True)
            store.close()


def _keep_freed_memory() -> None:
    """Make glibc reuse upload buffers; returning each one to the system costs more than all the rest."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 4 << 20)
        mallopt(_M_TRIM_THRESHOLD, 8 << 20)


def own_token(root: Path) -> str:
    """Return this folder's token, made at first use and kept readable for the owner only."""
    with contextlib.suppress(FileExistsError):
        keep_token(root, "hf_" + secrets.token_hex(17), os.O_EXCL)
    return (root / TOKEN).read_text().strip()


def keep_token(root: Path, token: str, flags: int = os.O_TRUNC) -> None:
    """Write the token that commands on this machine use."""
    _make_root(root)
    descriptor = os.open(root / TOKEN, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)


def write_state(running: RunningHub) -> None:
    """Write the address at which this folder is served."""
    state = {"endpoint": running.endpoint, "pid": running.pid, "with_xet": running.with_xet}
    beside = running.root / f"{STATE}.{running.pid}"
    beside.write_text(json.dumps(state))
    os.replace(beside, running.root / STATE)


# ------------------------------------------------------------------------------------------------------- from outside


def find_running(root: Path) -> RunningHub | None:
    """Return the Hub that serves this folder, unless its process has ended."""
    from filelock import FileLock, Timeout

    if not (root / STATE).exists():
        return None
    with contextlib.suppress(Timeout), FileLock(root / LOCK, timeout=0):
        return None
    try:
        state = json.loads((root / STATE).read_text())
        token = (root / TOKEN).read_text().strip()
    except (OSError, ValueError):
        return None
    return RunningHub(state["endpoint"], token, state["pid"], root, state["with_xet"])


@dataclass
class ServerProcess:
    """A child process that serves a folder; leaving the block stops it."""

    running: RunningHub
    process: subprocess.Popen[bytes]

    @property
    def endpoint(self) -> str:
        return self.running.endpoint

    @property
    def token(self) -> str:
        return self.running.token

    @property
    def root(self) -> Path:
        return self.running.root

    @property
    def env(self) -> dict[str, str]:
        return self.running.env

    def stop(self) -> None:
        """Ask the server to finish what it does, and wait for it."""
        with children.ending(self.process, 2 * _GRACE_SECONDS + 5):
            pass

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def start_server(root: Path, options: Sequence[str] = (), *, detached: bool = False) -> ServerProcess:
    """Run `composer-hub hub serve` on a folder in a child process and return it when it answers.

    The server ends with this process, unless it is `detached`.
    """
    _make_root(root)
    words = ["-m", "composer_hub", "hub", "serve", "--data", str(root), "--format", "quiet", *options]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(_import_path()), "PYTHONUNBUFFERED": "1"}
    with open(root / LOG, "ab") as log:
        if detached:
            process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=env,
            )
        else:
            process = children.start(words, stdout=log, stderr=log, env=env)
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        running = find_running(root)
        if running is not None and running.pid == process.pid:
            return ServerProcess(running, process)
        if process.poll() is not None:
            break
        time.sleep(0.01)
    process.kill()
    lines = (root / LOG).read_text(errors="replace").strip().splitlines()
    raise ServerError(
        f"The embedded Hub did not start: {lines[-1] if lines else 'it printed nothing'} (log: {root / LOG})"
    )


def embedded(root: Path | None = None, options: Sequence[str] = ()) -> RunningHub:
    """Return the Hub that serves this folder (by default the user's own), and start it if there is none.

    A second caller gets the first one's server; two callers at once start one. It runs until `composer-hub hub stop`.
    """
    from filelock import FileLock

    root = _make_root(root or default_root())
    with FileLock(root / START_LOCK, timeout=2 * START_SECONDS):
        return find_running(root) or start_server(root, options, detached=True).running


def stop_running(root: Path, seconds: float = 15.0) -> bool:
    """Stop the Hub that serves this folder; False if none does."""
    running = find_running(root)
    if running is None:
        return False
    os.kill(running.pid, signal.SIGTERM)
    until = time.monotonic() + seconds
    while find_running(root) is not None:
        if time.monotonic() > until:
            raise ServerError(
                f"The embedded Hub (process {running.pid}) does not stop. End it with `kill {running.pid}`."
            )
        time.sleep(0.02)
    return True


def _import_path() -> list[str]:
    """Return PYTHONPATH with this package's own place first: a checkout need not be installed."""
    return [str(Path(__file__).parents[2]), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def _make_root(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    return root


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the folder: two servers on one store would sweep each other's unfinished files."""
    from filelock import FileLock, Timeout

    lock = FileLock(_make_root(root) / LOCK)
    try:
        # A command that only checks for a server holds the lock for a moment.
        lock.acquire(timeout=1)
    except Timeout as error:
        raise ServerError(
            f"{root} is already served. See `composer-hub hub status`, or give another --data."
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _bound(settings: Settings) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol must be named: asyncio turns Nagle's delay (40 ms an answer) off only for sockets that say TCP.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
        except OSError as error:
            raise ServerError(
                f"{settings.host}:{settings.port} cannot be bound ({error.strerror}). Give another --port."
            ) from error
        yield listener
