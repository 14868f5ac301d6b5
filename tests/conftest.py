"""What every test may ask for."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

# A container often says so. Then every command under test, and every worker, would compile all modules once more.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = (
    "tests.quick",
    "tests.plugins.sessions",
    "tests.plugins.votes",
    "tests.plugins.hub",
    "tests.plugins.training",
    "tests.plugins.browser",
    "tests.plugins.load",
)

ROOT = Path(__file__).resolve().parents[1]
SHARED = {"hub_server", "where", "home", "shelf"}  # a worker has one of each until its end, and tests write to it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--interleavings", type=int, default=15, help="random orders of simultaneous publications to try (15)"
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    # Quick tests often wait, for a server or a sandbox; slow ones load the machine themselves.
    return (os.cpu_count() or 1) + 2 if "not slow" in config.option.markexpr else None


def pytest_configure() -> None:
    # A shell starts background jobs with SIGINT ignored, and `nohup` ignores SIGHUP. Programs inherit what is ignored,
    # and then the commands under test would never stop. They do not inherit a handler.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)


def pytest_sessionstart() -> None:
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # A worker that takes tests of another may set up a module's fixtures twice. What they publish must not be there.
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        for name, (*_, fixture) in fixtures.items():
            shared = [arg for arg in fixture.argnames if arg in SHARED and fixtures[arg][-1].scope == "session"]
            if shared and fixture.scope in ("module", "package"):
                raise pytest.UsageError(f'{item.nodeid}: {name} writes to {shared[0]}: give it scope="session".')


def pytest_collection_finish() -> None:
    # What is loaded by now stays until the end: a collection, of which each training run asks for one, need not visit
    # a million objects of torch, gradio and 9,000 tests again.
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # extension modules report what is left at the end


@pytest.fixture
def num_interleavings(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--interleavings")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[], Any]], Any]:
    """Return a function that lets one worker make something, and all others read it."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def read(name: str, make: Callable[[], Any]) -> Any:
        path = folder / f"{name}.pickle"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                path.write_bytes(pickle.dumps(make()))
        return pickle.loads(path.read_bytes())

    return read


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of real session files, which is not part of the repository."""
    named = os.environ.get("COMPOSER_SAMPLES")
    beside = [ROOT.parent / "shared/samples/traces", ROOT.parent.parent / "shared/samples/traces"]
    for place in [Path(named)] if named else beside:
        if place.is_dir():
            return place
    pytest.skip("the real session files are not here: set COMPOSER_SAMPLES to their folder")
