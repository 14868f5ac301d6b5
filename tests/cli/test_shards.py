"""`composer-hub shards` and the options of a command that runs over shards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from composer_hub import ingest, shards
from tests.cli.conftest import Command
from tests.shards.sessions import write_sessions


def test_the_shards_of_a_plan_are_listed_and_run_again(
    composer_hub: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    sessions = write_sessions(tmp_path / "sessions", 6)
    sharding = shards.Sharding(tmp_path / "staging", lambda staging, numbers, watch: None, 3)
    with pytest.raises(shards.ShardError, match="3 of 3 shards have no result"):
        ingest.ingest([sessions], ingest.IngestOptions(redact=False), sharding=sharding)
    (plan,) = map(str, (tmp_path / "staging").iterdir())
    first = composer_hub("shards", "run", plan, "1", "--format", "json")
    assert json.loads(first.stdout) == {"shards": 3, "missing": 2}
    listed = json.loads(composer_hub("shards", "status", plan, "--format", "json").stdout)
    assert [(row["shard"], row["state"]) for row in listed] == [(0, "missing"), (2, "missing"), (1, "done")]
    assert composer_hub("shards", "run", plan, "7").returncode == 2
    assert composer_hub("shards", "run", plan).returncode == 0
    assert composer_hub("shards", "run", plan).returncode == 5


def test_options_of_shards_belong_to_an_executor(composer_hub: Command, tmp_path: Path) -> None:
    run = composer_hub("ingest", str(tmp_path), "--report", "--shards", "4")
    assert run.returncode == 2
    assert "belong to --executor" in run.stderr
    run = composer_hub("ingest", str(tmp_path), "--report", "--executor", "slurm")
    assert "needs --engine partition=… and --engine time=…" in run.stderr
