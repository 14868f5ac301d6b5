"""`composer-hub export`: one file a trace, in the format that was asked for."""

from __future__ import annotations

import json
from pathlib import Path

from composer_hub import exits
from tests.commands.conftest import Command


def test_every_trace_becomes_one_file_that_parses(composer_hub: Command, sessions: Path, tmp_path: Path) -> None:
    composer_hub("ingest", sessions, "--repo", "me/export", "--to", tmp_path / "store")
    for target, ending in (("sts", ".jsonl"), ("atif", ".json")):
        words = ("export", "me/export", "--from", tmp_path / "store", "--to", target, "--out", tmp_path / target)
        run = composer_hub(*words, "--format", "json")
        assert run.returncode == exits.DONE, run.stderr
        assert json.loads(run.stdout)["files"] == 3
        files = list((tmp_path / target).iterdir())
        assert {path.suffix for path in files} == {ending}
        for path in files:
            for text in path.read_text().splitlines() if target == "sts" else [path.read_text()]:
                json.loads(text)


def test_a_version_that_is_not_there_writes_nothing(composer_hub: Command, tmp_path: Path) -> None:
    run = composer_hub("export", "me/none", "--from", f"{tmp_path}/", "--to", "sts", "--out", tmp_path / "out")
    assert run.returncode == exits.FAILURE
    assert not (tmp_path / "out").exists()
