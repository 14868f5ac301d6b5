"""`composer-hub ingest`, as a user runs it: what it prints, what it publishes, how it ends."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd

from composer_hub import exits
from composer_hub.hub import HubDestination, destination, load_traces, newest
from composer_hub.records import to_row
from tests.cli.conftest import Command
from tests.factories import make_trace

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


def test_only_the_session_that_grew_is_read_again(in_process: Command, sessions: Path) -> None:
    in_process("ingest", sessions, "--repo", "me/grows")
    path = min(sessions.iterdir())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    last = next(line for line in reversed(lines) if line["type"] == "assistant")
    said = last["message"] | {"id": "msg_more", "content": [{"type": "text", "text": "One thing more."}]}
    more = last | {"uuid": "more", "parentUuid": last["uuid"], "message": said}
    path.write_text(path.read_text() + json.dumps(more) + "\n")

    run = in_process("ingest", sessions, "--repo", "me/grows", "--report", "--format", "json")
    printed = one_json(run)
    assert printed["version"] == "v1.1.0"
    assert (printed["report"]["read"], printed["report"]["unchanged"]) == (1, 2)  # type: ignore[index]
    # But for these two, the numbers are those of a run that reads everything: they are the version's.
    whole = one_json(in_process("ingest", sessions, "--report", "--format", "json"))
    assert printed["report"] == whole | {"read": 1, "unchanged": 2}

    diff = one_json(in_process("diff", "me/grows@v1.0.0", "me/grows", "--format", "json"))
    traces, steps = diff["rows"]["traces"], diff["rows"]["steps"]  # type: ignore[index]
    assert (len(traces["changed"]), len(steps["added"]), len(steps["removed"])) == (1, 1, 0)

    path.unlink()
    kept = in_process("ingest", sessions, "--repo", "me/grows")
    assert kept.returncode == exits.NOTHING_TO_DO, "a session that its harness deleted stays in the dataset"


def test_a_denied_trace_is_not_in_the_next_version(in_process: Command, sessions: Path, tmp_path: Path) -> None:
    in_process("ingest", sessions, "--repo", "me/denies")
    in_process("export", "me/denies", "--as", "sts", "--out", tmp_path / "sts")
    denied = min((tmp_path / "sts").iterdir()).stem
    (tmp_path / "deny.txt").write_text(f"{denied}\n")
    run = in_process("ingest", sessions, "--repo", "me/denies", "--deny", tmp_path / "deny.txt", "--format", "json")
    assert one_json(run)["rows"]["traces"] == 2  # type: ignore[index]


def test_a_file_that_holds_a_denied_trace_beside_others_stays_at_home(
    in_process: Command, where: HubDestination, sessions: Path, tmp_path: Path
) -> None:
    chats = [[{"role": "user", "content": f"Do {n}"}, {"role": "assistant", "content": f"Did {n}"}] for n in "ab"]
    rows = (json.dumps({"instance_id": f"task-{n}", "messages": chat}) for n, chat in enumerate(chats))
    (sessions / "rows.jsonl").write_text("\n".join(rows))
    in_process("ingest", sessions, "--repo", "me/shared")
    in_process("export", "me/shared", "--as", "sts", "--out", tmp_path / "sts")
    denied = next(path.stem for path in (tmp_path / "sts").iterdir() if "Did a" in path.read_text())
    (tmp_path / "deny.txt").write_text(denied)
    for _ in range(2):  # also when nothing is read any more
        run = in_process("ingest", sessions, "--repo", "me/shared", "--raw", "--deny", tmp_path / "deny.txt")
        assert "1 raw file with a denied trace did not go to me/shared-sessions" in run.stderr
    there = where.api.list_repo_files("me/shared-sessions", repo_type="dataset")
    assert len([name for name in there if name.startswith("sessions/")]) == 3


def test_rows_of_a_dataset_on_the_hub_name_its_commit_and_license(in_process: Command, where: HubDestination) -> None:
    def upload(**texts: str) -> str:
        adds = [CommitOperationAdd(place, texts[name].encode()) for place, name in PLACES.items() if name in texts]
        where.api.create_repo("me/chats-source", repo_type="dataset", exist_ok=True)
        done = where.api.create_commit("me/chats-source", adds, commit_message="Sessions", repo_type="dataset")
        return str(done.oid)

    def rows() -> list[tuple[str, str, str]]:
        run = in_process("ingest", "hf://datasets/me/chats-source/data", "--repo", "me/chats", "--license", "mit")
        assert run.returncode == exits.DONE, run.stderr
        traces = load_traces(where, "me/chats")[1]
        return sorted((one.license, one.provenance["dataset"], one.provenance["revision"]) for one in traces)

    PLACES = {"data/rows.jsonl": "rows", "database/rows.jsonl": "elsewhere", "README.md": "card"}
    chat = [{"role": "user", "content": "Do it"}, {"role": "assistant", "content": "Done"}]
    lines = [{"instance_id": "a", "messages": chat}, {"instance_id": "b", "messages": chat[:1] * 2 + chat[1:]}]
    lines[1]["license"] = "apache-2.0"
    text = "\n".join(map(json.dumps, lines))
    card = "---\nlicense: {}\n---\n# Chats\n"
    first = upload(rows=text, elsewhere=text.replace("Do it", "Not asked for"), card=card.format("cc-by-4.0"))
    assert rows() == [("apache-2.0", "me/chats-source", first), ("cc-by-4.0", "me/chats-source", first)]
    second = upload(card="---\nlicense: other\nlicense_name: house-rules\n---\n")
    assert rows() == [("apache-2.0", "me/chats-source", second), ("house-rules", "me/chats-source", second)]


def test_rollouts_that_hold_a_secret_are_published_without_it_and_without_the_tokens_that_spell_it(
    in_process: Command, where: HubDestination, sessions: Path, tmp_path: Path
) -> None:
    secret = "ghp_" + "Zq3vT9xLw2Rk8Yb5Nc7Jd1Hf6Gs4Pm0Ae9Qu"
    numbers = {"prompt_ids": [1, 2], "completion_ids": [3], "tokenizer": "0a1b"}
    leaking, clean = make_trace(1, redaction="", provenance=numbers), make_trace(2, redaction="", provenance=numbers)
    messages = tuple(dataclasses.replace(m, content=f"{m.content} {secret}") for m in leaking.messages)
    rows = [to_row(dataclasses.replace(leaking, messages=messages)), to_row(clean)]
    (tmp_path / "rank000-00000.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    raw = in_process("ingest", tmp_path / "rank000-00000.jsonl", "--no-redact", "--repo", "me/rolled")
    assert raw.returncode == exits.DONE, raw.stderr

    shown = in_process("ingest", sessions, "--repo", "me/rolled", "--public", "--yes")
    assert shown.returncode == exits.REFUSED
    assert "me/rolled holds traces of earlier versions that were never redacted (2)" in shown.stderr

    words = ("ingest", "hf://datasets/me/rolled@v1.0.0", "--repo", "me/rolled-clean", "--report", "--format", "json")
    run = in_process(*words)
    assert run.returncode == exits.DONE, run.stderr
    report = one_json(run)["report"]
    assert (report["traces"], report["tokens_dropped"], report["unredacted"]) == (2, 1, 0)  # type: ignore[index]
    traces = list(load_traces(where, "me/rolled-clean")[1])
    assert secret not in repr(traces)
    assert sorted(len(trace.provenance["prompt_ids"]) for trace in traces) == [0, 2]
    back = in_process("lineage", "me/rolled-clean", "--format", "json")
    assert [link["repo"] for link in json.loads(back.stdout)] == ["me/rolled-clean", "me/rolled"]
    again = in_process(*words[:-3])
    assert again.returncode == exits.NOTHING_TO_DO, again.stderr
    assert "Redaction changed the text of 1 trace, so their token ids" in again.stderr


@pytest.mark.parametrize("format", ["human", "agent", "json", "quiet"])
def test_a_dry_run_prints_its_plan_in_every_format_and_writes_nothing(
    in_process: Command, sessions: Path, format: str
) -> None:
    words = ("ingest", sessions, "--repo", "me/never", "--report", "--dry-run", "--workers", "1", "--format", format)
    run = in_process(*words)
    assert run.returncode == exits.DONE, run.stderr
    assert "v1.0.0" in run.stdout
    if format == "json":
        assert {"tag", "files", "card", "report"} <= set(one_json(run))
    if format == "quiet":
        assert run.stdout == "v1.0.0\n"
    assert in_process("lineage", "me/never").returncode == exits.FAILURE


def test_raw_sessions_go_up_once_also_when_the_rows_are_there_already(in_process: Command, sessions: Path) -> None:
    (sessions / "copy.jsonl").write_bytes(min(sessions.iterdir()).read_bytes())
    in_process("ingest", sessions, "--repo", "me/raw")
    first = in_process("ingest", sessions, "--repo", "me/raw", "--raw")
    assert first.returncode == exits.DONE, first.stderr
    assert "3 raw sessions are in me/raw-sessions (private) now." in first.stderr
    again = in_process("ingest", sessions, "--repo", "me/raw", "--raw")
    assert again.returncode == exits.NOTHING_TO_DO
    assert "holds every raw session already" in again.stderr
    file = min(sessions.iterdir())
    file.write_bytes(file.read_bytes() + b"\n")
    assert "1 raw session is in" in in_process("ingest", sessions, "--repo", "me/raw", "--raw").stderr


@pytest.mark.parametrize(("words", "code", "sign"), [
    (["--repo", "me/x"], exits.USAGE, "Name the sessions to publish"),
    (["EMPTY", "--repo", "me/x"], exits.FAILURE, "No session could be read"),
    (["EMPTY/nothing", "--repo", "me/x"], exits.FAILURE, "No such file"),
    (["SESSIONS"], exits.USAGE, "--repo"),
    (["SESSIONS", "--repo", "no-owner"], exits.USAGE, "write it as owner/name"),
    (["SESSIONS", "--repo", "me/x", "--no-redact", "--public"], exits.REFUSED, "not redacted"),
    (["SESSIONS", "--repo", "me/x", "--raw", "--public"], exits.REFUSED, "never become public"),
    (["SESSIONS", "--repo", "me/x", "--to", "GARBAGE"], exits.USAGE, "is a file"),
    (["GARBAGE", "--repo", "me/x"], exits.FAILURE, "(1 file looked at)"),
    (["SESSIONS", "--repo", "me/x", "--deny", "GARBAGE"], exits.USAGE, "is not text"),
    (["SESSIONS", "--repo", "me/x", "--deny", "PROSE"], exits.USAGE, "is not a trace id. Write one id per line"),
])  # fmt: skip
def test_an_error_is_one_sentence_and_an_exit_code(
    in_process: Command, sessions: Path, tmp_path: Path, words: list[str], code: int, sign: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "prose.txt").write_text("all of last week\n")
    places = {"EMPTY": tmp_path / "empty", "SESSIONS": sessions, "GARBAGE": tmp_path / "garbage"}
    places["PROSE"] = tmp_path / "prose.txt"
    for name, place in places.items():
        words = [word.replace(name, str(place)) for word in words]
    run = in_process("ingest", *words)
    assert (run.returncode, run.stdout) == (code, "")
    assert sign in run.stderr
    assert run.stderr.count("\n") == 1


def test_no_time_without_a_change_is_refused_also_without_watch(in_process: Command, sessions: Path) -> None:
    run = in_process("ingest", sessions, "--report", "--settle", "0")
    assert run.returncode == exits.USAGE
    assert "'--settle': 0.0 is not in the range x>0" in run.stderr


def test_a_proxy_is_not_used_for_the_embedded_hub(composer_hub: Command, sessions: Path) -> None:
    nowhere = "http://127.0.0.1:9"
    run = composer_hub("ingest", sessions, "--repo", "me/proxy", HTTP_PROXY=nowhere, HTTPS_PROXY=nowhere)
    assert run.returncode == exits.DONE, run.stderr


def test_the_hub_itself_is_not_reached_without_a_token(composer_hub: Command, sessions: Path) -> None:
    run = composer_hub("ingest", sessions, "--repo", "me/x", "--to", "hub")
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (exits.REFUSED, "", 1)
    assert "no token" in run.stderr


def test_offline_is_an_error_and_a_folder_still_works(composer_hub: Command, sessions: Path, tmp_path: Path) -> None:
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
    _, said = process.communicate(timeout=600)
    # A signal that comes while the interpreter still starts ends the process by itself, as a shell's 130.
    assert process.returncode in (exits.INTERRUPTED, -signal.SIGINT), said
    rerun = composer_hub("ingest", sessions, "--repo", "me/interrupted")
    assert rerun.returncode == exits.DONE, rerun.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see when the workers start")
@pytest.mark.parametrize("after", [0.0, 0.1], ids=["at once", "while they import"])
def test_ctrl_c_while_the_workers_start_is_one_line(home: dict[str, str], sessions: Path, after: float) -> None:
    command = [sys.executable, "-m", "composer_hub", "ingest", str(sessions), "--report", "--workers", "3"]
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    # A terminal sends Ctrl-C to the whole group: to the command, and to workers that are still importing.
    process = subprocess.Popen(
        command, env=home, stderr=subprocess.PIPE, text=True, preexec_fn=heed, start_new_session=True
    )
    while process.poll() is None and not any(map(is_starting, children_of(process.pid))):
        time.sleep(0.002)
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=600)
    assert (process.returncode, said.strip()) == (exits.INTERRUPTED, "composer-hub: interrupted.")


def children_of(pid: int) -> list[Path]:
    try:
        return [Path(f"/proc/{child}") for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_starting(process: Path) -> bool:
    """True for a worker whose interpreter has made up its mind about SIGINT: caught, or held back."""
    try:
        if b"composer_hub.shards.workers" not in (process / "cmdline").read_bytes():
            return False
        status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    except OSError:
        return False
    return any(int(status[name], 16) >> (signal.SIGINT - 1) & 1 for name in ("SigCgt", "SigBlk"))


def test_without_a_source_the_sessions_of_the_machine_are_listed_and_nothing_is_published(
    composer_hub: Command, sessions: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    empty = composer_hub("ingest", HOME=str(home))
    assert (empty.returncode, empty.stdout) == (exits.NOTHING_TO_DO, "")
    shutil.copytree(sessions, home / ".claude/projects/p")
    listed = composer_hub("ingest", HOME=str(home), CLAUDE_CONFIG_DIR="")
    assert "Claude Code" in listed.stdout
    assert str(home / ".claude/projects") in listed.stdout
    assert f"composer-hub ingest {home}/.claude/projects --report" in listed.stderr
    refused = composer_hub("ingest", "--repo", "me/all", HOME=str(home))
    assert refused.returncode == exits.USAGE


@pytest.mark.slow
def test_two_watchers_publish_each_settled_change_once_and_stop_on_sigint(
    home: dict[str, str], sessions: Path, tmp_path: Path
) -> None:
    folder, target = tmp_path / "watched", tmp_path / "out"
    folder.mkdir()
    first, second, *_ = sorted(sessions.iterdir())
    shutil.copy(first, folder)
    words = ["ingest", folder, "--to", target, "--repo", "me/watched", "--watch", "--settle", "0.4", "--no-scan"]
    logs = [tmp_path / f"watch-{number}.log" for number in (1, 2)]

    def wait_for(state: Callable[[], bool]) -> None:
        while not state():
            assert all(watcher.poll() is None for watcher in watchers), [log.read_text() for log in logs]
            time.sleep(0.1)

    def version() -> str:
        found = newest(destination(str(target)), "me/watched") if target.exists() else None
        return found.tag if found else ""

    watchers: list[subprocess.Popen[bytes]] = []
    try:
        for log in logs:
            command = [sys.executable, "-m", "composer_hub", *map(str, words)]
            with log.open("wb") as file:
                heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
                watchers.append(
                    subprocess.Popen(command, stdout=file, stderr=file, cwd=tmp_path, env=home, preexec_fn=heed)
                )
        wait_for(lambda: all("Watching" in log.read_text() for log in logs))
        wait_for(lambda: version() == "v1.0.0")
        shutil.copy(second, folder)
        wait_for(lambda: version() == "v1.0.1")
        for watcher in watchers:
            watcher.send_signal(signal.SIGINT)
        codes = [watcher.wait() for watcher in watchers]
    finally:
        for watcher in watchers:
            watcher.kill()
            watcher.wait()
    # A watcher that was just reading is interrupted; one between two runs is done.
    assert set(codes) <= {exits.DONE, exits.INTERRUPTED}
    assert version() == "v1.0.1"
    assert not any("Traceback" in log.read_text() for log in logs)
