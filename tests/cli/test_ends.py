"""Whatever ends a command, nothing that it started outlives it: no server, no worker, no job."""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from huggingface_hub import HfApi

import composer_hub
from composer_hub.exits import END_SIGNALS
from composer_hub.local_hub.server import find_running
from tests.cli.test_demo import WITHOUT_TRAINING
from tests.quick import quick

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are counted in /proc")
SECONDS = 600.0
SIGNALS = quick(1, [*END_SIGNALS, signal.SIGINT, signal.SIGKILL])
SLEEP = ("sh", "-c", "echo $HF_ENDPOINT; exec sleep 3600")

# Every module that starts a process to last, with what ends it. Short calls of `subprocess.run` have their own limits.
ENDED = {
    "local_hub/children.py": "its pipe",
    "local_hub/server.py": "`hub stop`: the shared Hub is started for all later commands",
    "local_hub/jobrunner.py": "its pipe, which the supervisor reads",
    "local_hub/supervisor.py": "the supervisor",
    "cli/run.py": "forwarded signals, and the kernel on Linux",
    "cli/train.py": "forwarded signals",
    "shards/workers.py": "its pipe",
    "jobs/inside.py": "the machine, which is the job's own",
    "environments/bubblewrap.py": "--die-with-parent",
    "environments/confined.py": "the kernel",
    "environments/confine.py": "the kernel",
}
STARTS = "Popen create_subprocess_exec create_subprocess_shell ProcessPoolExecutor Process fork posix_spawn".split()


@dataclass(frozen=True)
class Started:
    """A command that is at work: its process, all that it started, and the address where it serves, if it does."""

    process: subprocess.Popen[str]
    others: set[tuple[int, str]]
    address: str = ""


def starters() -> set[str]:
    """Return the modules that start processes to last; those below tasks/inside run in a sandbox."""
    package, found = Path(composer_hub.__file__).parent, set()
    for path in package.rglob("*.py"):
        calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        if any(call.split(".")[-1] in STARTS for call in calls):
            found.add(path.relative_to(package).as_posix())
    return {name for name in found if not name.startswith("tasks/inside/")}


def test_every_module_that_starts_a_process_says_what_ends_it() -> None:
    assert starters() == set(ENDED)


def family(pid: int) -> set[tuple[int, str]]:
    """Return all descendants of a process, each with its start time, because numbers are used again."""
    found: set[tuple[int, str]] = set()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = [int(one) for one in (task / "children").read_text().split()]
        except OSError:
            continue
        for child in children:
            found |= {(child, started_at(child)), *family(child)}
    return found


def started_at(pid: int) -> str:
    """Return when a process started, or nothing if it has ended; a zombie has ended."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


def alive(processes: set[tuple[int, str]]) -> list[int]:
    """Return the processes that have not ended."""
    return [pid for pid, began in processes if began and started_at(pid) == began]


def wait_for(what: str, condition: Callable[[], object]) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {SECONDS:.0f} s"
        time.sleep(0.05)


def is_open(address: str) -> bool:
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=5).close()
    except OSError:
        return False
    return True


def obey() -> None:
    """Undo what a shell does for jobs in its background: they ignore some signals."""
    for number in (signal.SIGINT, *END_SIGNALS):
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)


@pytest.fixture
def begin(home: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command in the background; what it left is killed after the test."""
    processes: list[subprocess.Popen[str]] = []

    def start(*words: object, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "composer_hub", *map(str, words)]
        processes.append(
            subprocess.Popen(
                command, env=home | env, cwd=tmp_path, text=True, start_new_session=True, preexec_fn=obey,
                stdout=subprocess.PIPE, stderr=(tmp_path / "stderr").open("w"),
            )
        )  # fmt: skip
        return processes[-1]

    yield start
    for process in processes:
        left = family(process.pid)
        process.kill()
        process.wait()
        for pid in alive(left):
            os.kill(pid, signal.SIGKILL)


def end(number: int, started: Started, tmp_path: Path) -> None:
    """Send one signal to the command alone, and expect that everything ends."""
    assert not started.address or is_open(started.address)
    os.kill(started.process.pid, number)
    started.process.stdout.close()  # type: ignore[union-attr]
    wait_for("the command ends", lambda: started.process.poll() is not None)
    try:
        wait_for("its processes end", lambda: not alive(started.others))
    finally:
        for pid in alive(started.others):
            os.kill(pid, signal.SIGKILL)
    if started.address:
        wait_for("its port closes", lambda: not is_open(started.address))
    # A worker that was just being started finds no work in its pipe, and says so.
    assert number == signal.SIGKILL or "Traceback" not in (tmp_path / "stderr").read_text()


def line_of(process: subprocess.Popen[str], pattern: str) -> str:
    """Read the output until a line matches; return the first group."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if match := re.search(pattern, line):
            return match.group(1)
    raise AssertionError(f"no line like {pattern} in {''.join(seen)}")


def serving(process: subprocess.Popen[str]) -> Started:
    """Return a server as it is when it has printed its address."""
    address = line_of(process, r"(http://\S+)")
    wait_for("it answers", lambda: is_open(address))
    return Started(process, family(process.pid), address)


@pytest.fixture(scope="session")
def traces(home: dict[str, str]) -> str:
    command = [sys.executable, "-m", "composer_hub", "ingest", str(Path("composer_hub/demo/sessions").resolve())]
    subprocess.run([*command, "--repo", "me/ended"], env=home, check=True)
    return "me/ended@v1.0.0"


@pytest.mark.slow
@pytest.mark.parametrize("number", [*END_SIGNALS, signal.SIGKILL])
def test_the_space_ends_with_its_command(begin: Callable, traces: str, number: int, tmp_path: Path) -> None:
    pytest.importorskip("gradio", reason="the Space needs gradio")
    pytest.importorskip("duckdb", reason="the Space needs duckdb")
    started = serving(begin("space", "open", traces, "--no-browser", "--format", "quiet"))
    assert started.others
    end(number, started, tmp_path)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_embedded_hub_ends_with_its_jobs(begin: Callable, number: int, tmp_path: Path) -> None:
    process = begin("hub", "serve", "--data", tmp_path / "hub", "--allow-local-jobs", "--format", "quiet")
    address = serving(process).address
    running = find_running(tmp_path / "hub")
    assert running is not None
    api = HfApi(endpoint=address, token=running.token)
    job = api.run_job(image="python:3.12", command=["sleep", "3600"], flavor="local")
    wait_for("the job runs", lambda: api.inspect_job(job_id=job.id).status.stage == "RUNNING")
    wait_for("the job has its processes", lambda: len(family(process.pid)) >= 2)
    started = Started(process, family(process.pid), address)
    end(number, started, tmp_path)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_of_run_is_the_process_that_gets_the_signal(begin: Callable, number: int, tmp_path: Path) -> None:
    process = begin("run", "--", *SLEEP)
    hub = line_of(process, r"(http://\S+)")
    end(number, Started(process, family(process.pid)), tmp_path)
    assert process.returncode == -number
    assert is_open(hub), "the Hub of `run` serves other commands, too"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_fresh_hub_ends_with_run(begin: Callable, number: int, tmp_path: Path) -> None:
    started = serving(begin("run", "--fresh", "--", *SLEEP))
    assert len(started.others) == 2
    if number == signal.SIGINT:  # a terminal interrupts all of them
        for pid, _ in started.others:
            os.kill(pid, signal.SIGINT)
    end(number, started, tmp_path)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_embedded_teachers_end(begin: Callable, number: int, tmp_path: Path) -> None:
    end(number, serving(begin("teachers", "serve", "--format", "quiet")), tmp_path)


@pytest.mark.parametrize("number", quick(1, [signal.SIGTERM, signal.SIGKILL]))
@pytest.mark.parametrize("words", [["ingest"], ["report"], ["ingest", "--executor", "processes", "--shards", "4"]])
def test_workers_end_with_their_command(
    words: list[str], begin: Callable, number: int, sessions: Path, tmp_path: Path
) -> None:
    (session, *_) = sorted(sessions.glob("*.jsonl"))
    for copy in range(200):
        (sessions / f"copy-{copy}.jsonl").write_text(session.read_text().replace("session-", f"session-{copy}-"))
    repo = ["--to", tmp_path / "store", "--repo", "me/workers"] if words[0] == "ingest" else []
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = begin(*words, sessions, *repo, "--workers", "2", TMPDIR=str(scratch))
    wait_for("two workers run", lambda: len(family(process.pid)) >= 2 or process.poll() is not None)
    assert process.poll() is None
    end(number, Started(process, family(process.pid)), tmp_path)
    assert number == signal.SIGKILL or not list(scratch.iterdir()), "it held sessions before their redaction"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_demo_ends_with_its_hub_and_its_space(begin: Callable, number: int, tmp_path: Path) -> None:
    pytest.importorskip("gradio", reason="the Space needs gradio")
    pytest.importorskip("duckdb", reason="the Space needs duckdb")
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_TRAINING)
    path = os.pathsep.join([str(tmp_path), str(Path.cwd())])
    process = begin("demo", "--open", BROWSER="true", PYTHONPATH=path, TMPDIR=str(tmp_path))
    hub = line_of(process, r"embedded Hub serves (http://[^ ]+?)\. ")
    line_of(process, r"(Open the Space)")
    space = line_of(process, r"(http://\S+)")
    started = Started(process, family(process.pid), space)
    end(number, started, tmp_path)
    wait_for("the Hub's port closes", lambda: not is_open(hub))
    if number != signal.SIGKILL:
        assert not list(tmp_path.glob("composer-demo-*"))
