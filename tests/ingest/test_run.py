"""A second run over the same files: what is read again, and what the version holds."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from composer_hub import ingest
from composer_hub.hub import Destination, NothingToPublish, PublishOptions, destination

FIXTURES = Path(__file__).parents[1] / "fixtures/harnesses/claude_code"
OPTIONS = ingest.IngestOptions(workers=1, scan=False)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Destination:
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    return destination(str(tmp_path / "hub"))


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES, tmp_path / "sessions"))


def run(sessions: Path, hub: Destination, options: ingest.IngestOptions = OPTIONS) -> ingest.Ingested:
    return ingest.ingest([sessions], options, destination=hub, repo="me/traces")


class WithoutRows:
    """A destination that gives everything but rows."""

    def __init__(self, hub: Destination) -> None:
        self._hub = hub

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)

    def fetch(self, repo: str, revision: str, path: str, repo_type: str = "dataset") -> Path | None:
        assert not path.startswith("data/")
        return self._hub.fetch(repo, revision, path, repo_type)


def test_a_run_with_nothing_new_reads_neither_files_nor_rows(sessions: Path, hub: Destination) -> None:
    first = run(sessions, hub)
    numbers = first.numbers()
    first.publish(PublishOptions())
    again = run(sessions, WithoutRows(hub))  # type: ignore[arg-type]
    with pytest.raises(NothingToPublish, match=r"me/traces v1\.0\.0 already holds exactly these rows"):
        again.publish(PublishOptions())
    assert again.numbers() == numbers | {"read": 0, "unchanged": numbers["read"]}


def test_a_touched_file_is_unchanged_and_one_of_the_same_size_is_not(sessions: Path, hub: Destination) -> None:
    run(sessions, hub).publish(PublishOptions())
    path = sessions / "rewind.jsonl"
    os.utime(path, ns=(1, 1))
    assert run(sessions, hub).numbers()["read"] == 0
    text = path.read_text()
    path.write_text(text.replace("readme", "manual"))
    assert path.stat().st_size == len(text)
    assert run(sessions, hub).numbers()["read"] == 1


def test_a_new_denial_takes_a_trace_out_although_no_file_changed(sessions: Path, hub: Destination) -> None:
    first = run(sessions, hub)
    first.publish(PublishOptions())
    denied, *rest = sorted(trace.trace_id for trace in first.traces() if not trace.parent_trace_id)
    again = run(sessions, hub, ingest.IngestOptions(workers=1, scan=False, denied=frozenset([denied])))
    again.publish(PublishOptions())
    assert sorted(trace.trace_id for trace in again.traces() if not trace.parent_trace_id) == rest


def test_redacted_sessions_for_the_viewer_come_with_the_rows_and_go_with_their_trace(
    sessions: Path, hub: Destination
) -> None:
    first = run(sessions, hub)
    published = first.publish(PublishOptions())
    roots = [trace.trace_id for trace in first.traces() if not trace.parent_trace_id]
    files = hub.files("me/traces", published.revision)
    assert {path for path in files if path.startswith("sessions/")} == {f"sessions/{name}.jsonl" for name in roots}
    path = hub.fetch("me/traces", published.revision, f"sessions/{roots[0]}.jsonl")
    assert path is not None
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (lines[0]["type"], {line["type"] for line in lines[1:]}) == ("session", {"message"})
    assert "/home/maria" not in path.read_text()
    card = hub.fetch("me/traces", published.revision, "README.md")
    assert card is not None
    head = yaml.safe_load(card.read_text().split("---")[1])
    assert "agent-traces" in head["tags"]
    assert [config["config_name"] for config in head["configs"] if config.get("default")] == ["steps"]

    denied = ingest.IngestOptions(workers=1, scan=False, denied=frozenset(roots[:1]))
    after = hub.files("me/traces", run(sessions, hub, denied).publish(PublishOptions()).revision)
    assert f"sessions/{roots[0]}.jsonl" not in after
