"""Shards as jobs of the embedded Hub: real processes that mount the dataset and write into a bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits, hub, ingest, pairs, shards
from composer_hub.hub import HubDestination, Patience
from composer_hub.ingest.dataset import trace_tables
from composer_hub.ingest.raw import publish_raw
from composer_hub.jobs.fan_out import on_jobs
from composer_hub.local_hub.server import ServerProcess
from tests.hub.clients import hub_at
from tests.shards.sessions import TOKEN, write_sessions

OPTIONS = ingest.IngestOptions(workers=1)


@pytest.fixture
def where(hub_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubDestination:
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    return hub_at(hub_server, "hf_test_me")


def traces_of(source: str, where: HubDestination, sharding: shards.Sharding | None) -> list[object]:
    return list(ingest.ingest([source], OPTIONS, destination=where, sharding=sharding).traces())


def test_jobs_give_the_traces_of_one_process(where: HubDestination, tmp_path: Path, hub_repo) -> None:
    sessions = write_sessions(tmp_path / "sessions", 12)
    repo = hub_repo("raw")
    publish_raw(where, repo, sorted(sessions.glob("*.jsonl")))
    executor = on_jobs(where, 1, jobs=2, max_usd=1.0, poll_s=0.2)
    source = f"hf://datasets/{repo}"
    found = traces_of(source, where, shards.Sharding(tmp_path / "staging", executor, 4))
    assert found == traces_of(source, where, None)
    assert len(found) > 8
    assert TOKEN not in str(found)
    assert not [bucket.id for bucket in where.api.list_buckets("me") if "composer-shards" in bucket.id]


def test_jobs_refuse_files_of_this_machine_and_a_cap_that_does_not_hold(where: HubDestination, tmp_path: Path) -> None:
    sessions = write_sessions(tmp_path / "sessions", 2)
    with pytest.raises(exits.UsageError, match="max_usd"):
        on_jobs(where)
    with pytest.raises(exits.UsageError, match="has these --engine options: jobs, flavor"):
        on_jobs(where, colour="red")
    sharding = shards.Sharding(tmp_path / "staging", on_jobs(where, max_usd=1.0), 4)
    with pytest.raises(exits.UsageError, match=r"is a file of this machine"):
        traces_of(str(sessions), where, sharding)


@pytest.mark.slow
def test_jobs_make_the_pairs_of_one_process(
    where: HubDestination, tmp_path: Path, hub_repo: Callable[[str], str], make_trace: Any, make_vote: Any
) -> None:
    where.patience = Patience()  # it goes to the jobs, so it is pickled
    read = ("Read", {"file_path": "/repo/a.py"})
    traces = [make_trace(("Bash", {"command": "ls"}), name=f"t{number:02d}") for number in range(40)]
    votes = [make_vote(trace, 0, teacher, read) for trace in traces for teacher in ("a-x", "b-x")]
    card = hub.Card("traces", "Traces", holes={"origin": "", "redaction": ""})
    repo = hub_repo("traces")
    hub.publish(where, repo, trace_tables(lambda: iter(traces)), card)
    version = hub.load(where, repo)
    sharding = shards.Sharding(tmp_path, on_jobs(where, 1, jobs=1, max_usd=1.0, poll_s=0.2), 2)
    many, one = pairs.make(version, votes, sharding=sharding), pairs.make(version, votes)
    assert list(many.pairs.rows) == list(one.pairs.rows)
    assert len(one.pairs) == 40
