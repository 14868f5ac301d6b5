"""The Space as its users meet it: one server per reader, hostile datasets on the test Hub, a real browser."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from composer_hub import hub
from composer_hub.ingest.dataset import trace_tables
from composer_hub.local_hub.server import ServerProcess
from composer_hub.pairs.report import Metric
from composer_hub.pairs.tables import pairs_table, report_table, votes_table
from composer_hub.records import Pair, Task, Trace, Vote, features_of, to_row
from tests.space import hostile

ROOT = Path(__file__).parents[2]
SPACE = ROOT / "space"
sys.path.insert(0, str(SPACE))
NUM_PAIRS = 60

for _name in ("gradio", "duckdb", "rapidfuzz"):
    if importlib.util.find_spec(_name) is None:
        collect_ignore_glob = ["test_*.py"]


@dataclass(frozen=True)
class Published:
    """The names of what the test Hub holds."""

    pairs: str
    traces: str
    rollouts: str
    tasks: str

    @property
    def all(self) -> str:
        return " ".join(f"{repo}@main" for repo in (self.pairs, self.traces, self.rollouts, self.tasks))


def publish_pairs(
    where: hub.HubDestination, repo: str, pairs: list[Pair], votes: list[Vote], parent: hub.Parent
) -> None:
    """Publish a pair set as `pairs build` does."""
    from inspector.view_overview import _TEACHER_COLUMNS

    teacher = hostile.any_payload()
    scopes = ("votes", "votes", "steps_without_pair", hostile.any_payload())
    report = [
        Metric("pairs", value=3.0, n=2),
        *(Metric(name, hostile.any_payload(), 3.0, 1.0, 4.0, 2) for name in scopes),
        *(Metric(name, teacher, 3.0, n=2) for name in _TEACHER_COLUMNS.values()),
    ]
    splits = {pair.trace_id: "train" for pair in pairs}
    tables = [pairs_table(pairs, splits), votes_table(map(to_row, votes)), report_table(report)]
    card = hub.Card("pairs", pretty_name=repo, counts={"pairs": len(pairs)}, holes={"policy": "", "report": ""})
    hub.publish(where, repo, tables, card, lineage=hub.Lineage(parents=(parent,)))


def publish_traces(where: hub.HubDestination, repo: str, traces: list[Trace], sources: dict[str, Any]) -> str:
    """Publish traces as `ingest` does; return the commit."""
    card = hub.Card("traces", pretty_name=repo, holes={"origin": "", "redaction": ""})
    tables = trace_tables(lambda: iter(traces))
    return hub.publish(where, repo, tables, card, lineage=hub.Lineage(sources=sources)).revision


@pytest.fixture(scope="session")
def where(hub_server: ServerProcess) -> hub.HubDestination:
    return hub.embedded_hub(hub_server)


@pytest.fixture(scope="session")
def published(where: hub.HubDestination) -> Published:
    """Publish a hostile set of each kind, twice for pairs, so that versions can be compared."""
    names = Published("team/pairs", "team/traces", "team/rollouts", "team/tasks")
    traces = [hostile.trace(number) for number in range(NUM_PAIRS)]
    commit = publish_traces(where, names.traces, traces, {})
    publish_traces(where, names.rollouts, [hostile.rollout(number) for number in range(3)], {"run_id": "r"})
    made = [hostile.pairs_of(one, number) for number, one in enumerate(traces)]
    votes = [vote for _, cast in made for vote in cast]
    parent = hub.Parent("traces", names.traces, commit)
    publish_pairs(where, names.pairs, [pair for pair, _ in made[:-1]], votes, parent)
    publish_pairs(where, names.pairs, [pair for pair, _ in made[1:]], votes, parent)
    publish_tasks(where, names.tasks)
    return names


def publish_tasks(where: hub.HubDestination, repo: str) -> None:
    """Publish tasks with the manifest that a task set has."""
    rows = [to_row(task) for task in hostile.tasks()]
    path = "data/tasks/train-00000-of-00001.parquet"
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / "rows"
        with hub.RowWriter(local, features_of(Task)) as writer:
            for row in rows:
                writer.add(row)
        tables = {"tasks": {"num_rows": len(rows), "splits": {"train": {"num_rows": len(rows), "files": [path]}}}}
        manifest = {"kind": "tasks", "repo": repo, "version": "1.0.0", "tables": tables, "parents": [], "counts": {}}
        where.prepare(repo, private=True)
        changes = [hub.Add.of(path, local), hub.Add.of(hub.MANIFEST, json.dumps(manifest).encode())]
        where.commit(repo, changes, title="Tasks", body="", parent=where.resolve(repo, "main"))


@contextmanager
def serving(server: ServerProcess, datasets: str, token: str | None, folder: Path, **extra: str) -> Iterator[str]:
    """Serve the Space as a reader's own process; yield its address. `extra` are more variables."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING", "SPACE_"))}
    env |= server.env | {"HF_HOME": str(folder), "SPACE_DATASETS": datasets, "GRADIO_SERVER_PORT": str(port)}
    env |= {"HF_TOKEN": token} if token else {}
    if not token:
        env.pop("HF_TOKEN", None)
    env |= extra
    log = folder / "log"
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = subprocess.Popen([sys.executable, str(SPACE / "app.py")], env=env, stdout=file, stderr=file)
    try:
        address = f"http://127.0.0.1:{port}/"
        until = time.monotonic() + 600
        while not _answers(f"{address}healthz"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(600)
        text = log.read_text()
        # On a Space, Gradio's reloader asks for the package `spaces`, which the Hub's image has.
        assert text.count("Traceback") == text.count("`spaces` package is required"), text
        assert "hf_test" not in text


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return opener.open(url, timeout=2).status == 200
    except OSError:
        return False


@pytest.fixture(scope="session")
def space(hub_server: ServerProcess, published: Published, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The Space of the user `me`."""
    with serving(hub_server, published.all, "hf_test_me", tmp_path_factory.mktemp("space")) as address:
        yield address


@pytest.fixture(scope="session")
def space_of_ada(
    hub_server: ServerProcess, published: Published, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The Space of a second reviewer, who may only read."""
    with serving(hub_server, published.all, "hf_test_ada", tmp_path_factory.mktemp("ada")) as address:
        yield address


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page in a fresh context; at the end nothing may have run, failed or been blocked."""
    contexts, complaints = [], []

    def open_(address: str, **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1300, "height": 850}, **options})
        contexts.append(context)
        context.set_default_timeout(600_000)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: complaints.append(request.url) if "127.0.0.1" not in request.url else None)
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_
    for context in contexts:
        for page in context.pages:
            assert page.evaluate("window.pwned === undefined")
        context.close()
    assert not complaints, complaints
