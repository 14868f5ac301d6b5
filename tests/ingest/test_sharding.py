"""Ingest over shards gives the bytes that one process gives, for any number of shards and any executor."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from composer_hub import ingest, shards
from composer_hub.hub import NothingToPublish, PublishOptions, destination
from composer_hub.shards import Staging
from tests.quick import quick
from tests.shards.sessions import TOKEN, write_sessions

OPTIONS = ingest.IngestOptions(workers=1, scan=False)
SALT = json.dumps({"format": "composer_hub redaction map 1", "salt": "ab" * 32}) + "\n"
Publish = Callable[..., dict[str, bytes]]


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Return a function that publishes sessions into a fresh folder, and returns the version's files."""
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))

    def run(name: str, sessions: Path, sharding: shards.Sharding | None, times: int = 1) -> dict[str, bytes]:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        where = destination(str(root))
        memory = ingest.memory_folder(where, "me/traces")
        memory.mkdir(parents=True, exist_ok=True)
        if not (memory / "redaction.jsonl").exists():
            (memory / "redaction.jsonl").write_text(SALT)
        ingested = ingest.ingest([sessions], OPTIONS, destination=where, repo="me/traces", sharding=sharding)
        ingested.publish(PublishOptions())
        files = (path for path in (root / "me" / "traces").rglob("*") if path.is_file())
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}

    return run


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return write_sessions(tmp_path / "sessions", 40)


@pytest.mark.parametrize(
    ("executor", "num_shards"), quick(1, [(shards.in_processes(2), 5), (shards.here, 1), (shards.here, 64)])
)
def test_shards_publish_the_bytes_of_one_process(
    publish: Publish, sessions: Path, tmp_path: Path, executor: shards.Executor, num_shards: int
) -> None:
    whole = publish("whole", sessions, None)
    seen: list[shards.ShardProgress] = []
    sharding = shards.Sharding(tmp_path / "staging", executor, num_shards, seen.append)
    assert publish("sharded", sessions, sharding) == whole
    assert TOKEN.encode() not in b"".join(whole.values())
    assert seen[-1].num_done == seen[-1].num_shards <= num_shards
    assert list((tmp_path / "staging").iterdir()) == []  # nothing is left that holds what was replaced


def test_copies_and_secrets_are_found_across_shards(publish: Publish, sessions: Path, tmp_path: Path) -> None:
    files = publish("sharded", sessions, shards.Sharding(tmp_path / "staging", shards.here, 40))
    manifest = json.loads(files["me/traces/composer_manifest.json"])
    numbers = manifest["sources"]["numbers"]
    assert (numbers["traces"], numbers["duplicate_traces"]) == (36, 4)
    # One session names the token; the others that print it do not.
    assert numbers["redactions_by_kind"]["secret"] > 10


def test_a_second_run_reads_only_what_changed_and_merges(publish: Publish, sessions: Path, tmp_path: Path) -> None:
    for name, sharding in (("whole", None), ("sharded", shards.Sharding(tmp_path / "staging", shards.here, 4))):
        publish(name, sessions, sharding)
    write_sessions(sessions, 45)
    sharding = shards.Sharding(tmp_path / "staging", shards.here, 4)
    assert publish("sharded", sessions, sharding) == publish("whole", sessions, None)
    with pytest.raises(NothingToPublish):
        publish("sharded", sessions, sharding)


def test_workers_that_are_killed_lose_and_double_nothing(publish: Publish, sessions: Path, tmp_path: Path) -> None:
    killed: set[int] = set()

    def deadly(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        def kill() -> None:
            watch()
            running = {int(str(note["where"]).rpartition(":")[2]) for note in staging.notes("running").values()}
            for worker in [*(running - killed)][: 2 - len(killed)]:
                killed.add(worker)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

        shards.in_processes(2)(staging, numbers, kill)

    whole = publish("whole", sessions, None)
    assert publish("sharded", sessions, shards.Sharding(tmp_path / "staging", deadly, 8)) == whole
    assert len(killed) == 2


def test_a_run_that_was_interrupted_continues_with_what_is_missing(
    publish: Publish, sessions: Path, tmp_path: Path
) -> None:
    ran: list[int] = []

    def interrupted(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        shards.here(staging, numbers[:3], watch)
        raise KeyboardInterrupt

    def continued(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        ran.extend(numbers)
        shards.here(staging, numbers, watch)

    with pytest.raises(KeyboardInterrupt):
        publish("sharded", sessions, shards.Sharding(tmp_path / "staging", interrupted, 6))
    files = publish("sharded", sessions, shards.Sharding(tmp_path / "staging", continued, 6))
    assert ran[:3] == [3, 4, 5]
    assert files == publish("whole", sessions, None)


def test_a_file_that_changes_after_the_plan_fails_its_shard(publish: Publish, sessions: Path, tmp_path: Path) -> None:
    def changed(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        path = sessions / "s00004.jsonl"
        path.write_text(path.read_text() + "\n")
        shards.here(staging, numbers, watch)

    with pytest.raises(shards.ShardError, match=r"s00004\.jsonl is not the file of the plan"):
        publish("sharded", sessions, shards.Sharding(tmp_path / "staging", changed, 4))


def test_a_second_run_of_the_same_plan_at_once_is_refused(publish: Publish, sessions: Path, tmp_path: Path) -> None:
    def twice(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
        with pytest.raises(shards.ShardError, match="Another run carries out the plan"):
            publish("sharded", sessions, shards.Sharding(tmp_path / "staging", shards.here, 4))
        shards.here(staging, numbers, watch)

    publish("sharded", sessions, shards.Sharding(tmp_path / "staging", twice, 4))
