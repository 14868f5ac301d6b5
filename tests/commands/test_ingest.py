"""`composer-hub ingest`, as a user runs it: what it prints, what it publishes, how it ends."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from composer_hub import exits
from tests.commands.conftest import Command

LOAD = """
import sys
from datasets import load_dataset
for config in ("traces", "steps"):
    print(sum(1 for split in load_dataset(sys.argv[1], config, revision=sys.argv[2]).values() for row in split))
"""


def one_json(run: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """Return the one JSON value a command printed, and nothing else."""
    found: dict[str, object] = json.loads(run.stdout)
    return found


def test_sessions_are_published_once_and_every_row_loads(composer_hub: Command, sessions: Path) -> None:
    first = composer_hub("ingest", sessions, "--repo", "me/once", "--report", "--format", "json")
    assert first.returncode == exits.DONE, first.stderr
    assert first.stderr == ""
    printed = one_json(first)
    assert printed["version"] == "v1.0.0"
    assert printed["report"]["read"] == 3  # type: ignore[index]

    loaded = composer_hub("run", "--", sys.executable, "-c", LOAD, "me/once", "v1.0.0")
    assert loaded.stdout.split() == [str(printed["rows"][config]) for config in ("traces", "steps")]  # type: ignore[index]

    again = composer_hub("ingest", sessions, "--repo", "me/once", "--format", "json")
    assert (again.returncode, again.stdout) == (exits.NOTHING_TO_DO, "")
    assert "already holds exactly these rows" in again.stderr


def test_only_the_session_that_grew_is_read_again(composer_hub: Command, sessions: Path) -> None:
    composer_hub("ingest", sessions, "--repo", "me/grows")
    path = min(sessions.iterdir())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    last = next(line for line in reversed(lines) if line["type"] == "assistant")
    said = last["message"] | {"id": "msg_more", "content": [{"type": "text", "text": "One thing more."}]}
    more = last | {"uuid": "more", "parentUuid": last["uuid"], "message": said}
    path.write_text(path.read_text() + json.dumps(more) + "\n")

    run = composer_hub("ingest", sessions, "--repo", "me/grows", "--report", "--format", "json")
    printed = one_json(run)
    assert printed["version"] == "v1.1.0"
    assert (printed["report"]["read"], printed["report"]["unchanged"]) == (1, 2)  # type: ignore[index]

    diff = one_json(composer_hub("diff", "me/grows@v1.0.0", "me/grows", "--format", "json"))
    traces, steps = diff["rows"]["traces"], diff["rows"]["steps"]  # type: ignore[index]
    assert (len(traces["changed"]), len(steps["added"]), len(steps["removed"])) == (1, 1, 0)

    path.unlink()
    kept = composer_hub("ingest", sessions, "--repo", "me/grows")
    assert kept.returncode == exits.NOTHING_TO_DO, "a session that its harness deleted stays in the dataset"


def test_a_denied_trace_is_not_in_the_next_version(composer_hub: Command, sessions: Path, tmp_path: Path) -> None:
    composer_hub("ingest", sessions, "--repo", "me/denies")
    composer_hub("export", "me/denies", "--to", "sts", "--out", tmp_path / "sts")
    denied = min((tmp_path / "sts").iterdir()).stem
    (tmp_path / "deny.txt").write_text(f"{denied}\n")
    run = composer_hub("ingest", sessions, "--repo", "me/denies", "--deny", tmp_path / "deny.txt", "--format", "json")
    assert one_json(run)["rows"]["traces"] == 2  # type: ignore[index]


@pytest.mark.parametrize("format", ["human", "agent", "json", "quiet"])
def test_a_dry_run_prints_its_plan_in_every_format_and_writes_nothing(
    composer_hub: Command, sessions: Path, format: str
) -> None:
    run = composer_hub("ingest", sessions, "--repo", "me/never", "--report", "--dry-run", "--format", format)
    assert run.returncode == exits.DONE, run.stderr
    assert "v1.0.0" in run.stdout
    if format == "json":
        assert {"tag", "files", "card", "report"} <= set(one_json(run))
    if format == "quiet":
        assert run.stdout == "v1.0.0\n"
    assert composer_hub("lineage", "me/never").returncode == exits.FAILURE


def test_raw_sessions_go_up_once_also_when_the_rows_are_there_already(composer_hub: Command, sessions: Path) -> None:
    (sessions / "copy.jsonl").write_bytes(min(sessions.iterdir()).read_bytes())
    composer_hub("ingest", sessions, "--repo", "me/raw")
    first = composer_hub("ingest", sessions, "--repo", "me/raw", "--raw")
    assert first.returncode == exits.DONE, first.stderr
    assert "3 raw sessions are in me/raw-sessions (private) now." in first.stderr
    again = composer_hub("ingest", sessions, "--repo", "me/raw", "--raw")
    assert again.returncode == exits.NOTHING_TO_DO
    assert "holds every raw session already" in again.stderr


@pytest.mark.parametrize(
    ("words", "code", "sign"),
    [
        ([], exits.USAGE, "Name the sessions"),
        (["EMPTY", "--repo", "me/x"], exits.FAILURE, "No session could be read"),
        (["EMPTY/nothing", "--repo", "me/x"], exits.FAILURE, "No such file"),
        (["SESSIONS"], exits.USAGE, "--repo"),
        (["SESSIONS", "--repo", "no-owner"], exits.USAGE, "write it as owner/name"),
        (["SESSIONS", "--repo", "me/x", "--no-redact", "--public"], exits.REFUSED, "not redacted"),
        (["SESSIONS", "--repo", "me/x", "--raw", "--public"], exits.REFUSED, "never go into a public"),
        (["SESSIONS", "--repo", "me/x", "--to", "hub"], exits.REFUSED, "no token"),
        (["SESSIONS", "--repo", "me/x", "--to", "GARBAGE"], exits.USAGE, "is a file"),
        (["GARBAGE", "--repo", "me/x"], exits.FAILURE, "no known session format"),
        (["SESSIONS", "--repo", "me/x", "--deny", "GARBAGE"], exits.USAGE, "is no UTF-8 text"),
        (["SESSIONS", "--repo", "me/x", "--deny", "PROSE"], exits.USAGE, "is not a trace id. Write one id a line"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_its_code(
    composer_hub: Command, sessions: Path, tmp_path: Path, words: list[str], code: int, sign: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "prose.txt").write_text("all of last week\n")
    places = {"EMPTY": tmp_path / "empty", "SESSIONS": sessions, "GARBAGE": tmp_path / "garbage"}
    places["PROSE"] = tmp_path / "prose.txt"
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    run = composer_hub("ingest", *words)
    assert (run.returncode, run.stdout) == (code, "")
    assert sign in run.stderr
    assert run.stderr.count("\n") == 1


def test_a_proxy_does_not_stand_between_a_command_and_the_embedded_hub(composer_hub: Command, sessions: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    run = composer_hub("ingest", sessions, "--repo", "me/proxy", HTTP_PROXY=nowhere, HTTPS_PROXY=nowhere)
    assert run.returncode == exits.DONE, run.stderr


def test_offline_is_a_sentence_and_a_folder_still_works(composer_hub: Command, sessions: Path, tmp_path: Path) -> None:
    run = composer_hub("ingest", sessions, "--repo", "me/offline", HF_HUB_OFFLINE="1")
    assert run.returncode == exits.USAGE
    assert "Unset it" in run.stderr
    run = composer_hub("ingest", sessions, "--repo", "me/offline", "--to", tmp_path / "here", HF_HUB_OFFLINE="1")
    assert f'load_dataset("{tmp_path / "here"}/me/offline")' in run.stderr


def test_an_interrupted_run_leaves_with_130_and_the_next_one_does_the_work(
    composer_hub: Command, sessions: Path, home: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "composer_hub", "ingest", str(sessions), "--repo", "me/interrupted"]
    # A test run in the background of a script inherits an ignored SIGINT; the command must not.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        command, env=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    )
    # Again and again, as a person would: a signal that meets a finaliser or a callback is swallowed by the interpreter.
    for _ in range(100):
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        if process.poll() is not None:
            break
    _, said = process.communicate(timeout=60)
    # A signal that comes while the interpreter still starts ends the process by itself, as a shell's 130.
    assert process.returncode in (exits.INTERRUPTED, -signal.SIGINT), said
    rerun = composer_hub("ingest", sessions, "--repo", "me/interrupted")
    assert rerun.returncode == exits.DONE, rerun.stderr
