"""Every stage with worker processes gives the same from every kind of program, and no line of the program runs twice.

The programs have no `if __name__ == "__main__"`, because nobody writes one in a notebook.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import composer_hub
from composer_hub.cli.sharding import EXECUTORS
from composer_hub.replay import fake
from tests.shards.sessions import write_sessions

ROOT = Path(__file__).parents[2]
SETUP = """
import dataclasses, json, os
from pathlib import Path
from composer_hub import hub, ingest, pairs, replay, report, shards, tasks
from composer_hub.shards import engines
place, url = Path(os.environ["TEST_PLACE"]), os.environ["TEST_URL"]
sessions, number, results = place / "sessions", 2, {}
print("begun", file=open(place / "runs", "a"))
plain = ingest.IngestOptions(workers=1, redact=False, scan=False)
spread = lambda name, executor: (place / name).mkdir() or shards.Sharding(place / name, executor, 2)
"""
RESULTS = {
    "ingest.IngestOptions.workers":
        "[trace.trace_id for trace in ingest.ingest([sessions], dataclasses.replace(plain, workers=number)).traces()]",
    "report.ReportOptions.workers":
        "report.report([sessions], report.ReportOptions(workers=number)).summary()",
    "ingest.ingest.sharding":
        "[trace.trace_id for trace in ingest.ingest([sessions], plain, sharding=spread('a', processes)).traces()]",
    "pairs.make.sharding":
        "pairs.make(version, pairs.RecordedVotes(place / 'run'), sharding=spread('c', processes)).drops",
    "tasks.make.sharding":
        "tasks.make([str(place / 'no-package')], sharding=spread('d', processes)).numbers()",
    "datatrove":
        "[trace.trace_id for trace in ingest.ingest([sessions], plain, sharding=spread('e', datatrove)).traces()]",
}  # fmt: skip
BETWEEN = {
    "pairs.make.sharding": """
where = hub.destination(str(place / "hub"))
redacted = ingest.ingest([sessions], dataclasses.replace(plain, redact=True), destination=where, repo="me/traces")
version = redacted.publish(hub.PublishOptions()) and hub.load(where, "me/traces")
traces = list(redacted.traces())
teachers = replay.find_teachers([url + "#small", url + "#large"], max_tokens=300)
replay.run(traces, teachers, place / "run", replay.ReplayOptions(order="all", audit=0, repeat=0), max_usd=5)
""",
}  # what a stage needs before it
ELSEWHERE = {
    "environments.execute_pairs.workers": "threads; the processes that they start are sandboxes",
    "tasks.TaskOptions.workers": "threads; the processes that they start are sandboxes",
    "shards.in_processes.workers": "the executor of every stage on shards here",
    "shards.carry_out.sharding": "part of every stage on shards",
    "ingest.Ingested.sharding": "what ingest.ingest calls",
}
KERNEL = """
import asyncio, sys, types
user = sys.modules["__main__"] = types.ModuleType("__main__")
async def cells():
    exec(compile(sys.stdin.read(), "<cell>", "exec"), vars(user))
asyncio.run(cells())
"""
"""Runs cells like a notebook's kernel: in a main module without a file, while an event loop runs."""


def program(names: list[str], out: str) -> str:
    lines = [SETUP, "processes, datatrove = shards.in_processes(number), engines.on_datatrove(number)"]
    for name in names:
        lines += [BETWEEN.get(name, ""), f"results[{name!r}] = {RESULTS[name]}"]
    return "\n".join([*lines, f"_ = (place / {out!r}).write_text(json.dumps(results))", ""])


NAMES = [name for name in RESULTS if name != "datatrove" or importlib.util.find_spec("datatrove")]


@dataclasses.dataclass(frozen=True)
class Caller:
    """A way to run a program."""

    command: Callable[[Path], list[str]]
    is_read_from_stdin: bool = True


CALLERS = {
    "script": Caller(lambda file: [str(file)], is_read_from_stdin=False),
    "argument": Caller(lambda file: ["-c", file.read_text()], is_read_from_stdin=False),
    "pipe": Caller(lambda file: ["-"]),
    "prompt": Caller(lambda file: ["-q", "-i"]),
    "notebook": Caller(lambda file: ["-c", KERNEL]),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_sessions(tmp_path / "sessions", 4)
    return tmp_path


@pytest.fixture
def url() -> Iterator[str]:
    with fake.serving(fake.TeacherServer()) as url:
        yield url


def variables(place: Path, url: str) -> dict[str, str]:
    state = {name: str(place / "state") for name in ("HOME", "COMPOSER_HUB_STATE")}
    return {**os.environ, **state, "TEST_PLACE": str(place), "TEST_URL": url, "PYTHONPATH": str(ROOT)}


def test_every_stage_with_workers_is_run_here() -> None:
    package = Path(composer_hub.__file__).parent
    found = set()
    for stage in sorted(path.parent.name for path in package.glob("*/__init__.py") if "__all__" in path.read_text()):
        if stage in ("train", "integrations"):  # their processes are those of accelerate
            continue
        module = importlib.import_module(f"composer_hub.{stage}")
        for name in module.__all__:
            found |= {f"{stage}.{name}.{option}" for option in _options(getattr(module, name))}
    assert found == (RESULTS.keys() - EXECUTORS.keys()) | ELSEWHERE.keys()
    # Ray, Slurm and the jobs of a Hub start no process of this program; "local" starts none at all.
    assert EXECUTORS.keys() == {"local", "processes", "datatrove", "ray", "slurm", "jobs"}


def _options(value: Any) -> set[str]:
    try:
        return {"workers", "sharding"} & inspect.signature(value).parameters.keys()
    except (TypeError, ValueError):
        return set()


@pytest.mark.slow
@pytest.mark.parametrize("caller", CALLERS)
def test_stages_with_workers_run_from_any_program(caller: str, place: Path, url: str) -> None:
    path = place / "program.py"
    path.write_text(program(NAMES, "results.json"))
    one = CALLERS[caller]
    done = subprocess.run(
        [sys.executable, *one.command(path)],
        cwd=place,
        env=variables(place, url),
        input=path.read_text() if one.is_read_from_stdin else "",
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert (place / "results.json").is_file(), done.stderr[-4000:]
    results = json.loads((place / "results.json").read_text())
    assert len(results["ingest.IngestOptions.workers"]) == 4
    assert results["ingest.ingest.sharding"] == results["ingest.IngestOptions.workers"]
    assert results.get("datatrove", results["ingest.ingest.sharding"]) == results["ingest.ingest.sharding"]
    assert (place / "runs").read_text() == "begun\n"


def test_worker_processes_are_started_in_one_place() -> None:
    """The pools of other libraries import the main module of the caller again."""
    package = Path(composer_hub.__file__).parent
    pools = re.compile(r"^\s*(?:import|from) (?:multiprocess|joblib)|ProcessPoolExecutor|num_proc\b", re.MULTILINE)
    users = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if pools.search(path.read_text())}
    assert users == {"shards/workers.py"}
