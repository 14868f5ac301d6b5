"""`composer-hub export`: files in the requested format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.hub import Card, FolderDestination, Table, load_traces, publish
from composer_hub.pairs.tables import pairs_table
from composer_hub.records import Message, Trace, action_text, features_of, prompt_of, to_row
from tests.cli.conftest import Command
from tests.factories import make_pair, make_trace


def test_every_trace_becomes_one_file_that_parses(in_process: Command, sessions: Path, tmp_path: Path) -> None:
    in_process("ingest", sessions, "--repo", "me/export", "--to", tmp_path / "store")
    for target, ending in (("sts", ".jsonl"), ("atif", ".json")):
        words = ("export", "me/export", "--from", tmp_path / "store", "--as", target, "--out", tmp_path / target)
        run = in_process(*words, "--format", "json")
        assert run.returncode == exits.DONE, run.stderr
        assert json.loads(run.stdout)["files"] == 3
        files = list((tmp_path / target).iterdir())
        assert {path.suffix for path in files} == {ending}
        for path in files:
            for text in path.read_text().splitlines() if target == "sts" else [path.read_text()]:
                json.loads(text)


def test_a_version_that_is_not_there_writes_nothing(in_process: Command, tmp_path: Path) -> None:
    run = in_process("export", "me/none", "--from", f"{tmp_path}/", "--as", "sts", "--out", tmp_path / "out")
    assert run.returncode == exits.FAILURE
    assert not (tmp_path / "out").exists()


def read(path: Path) -> list[dict[str, Any]]:
    """Read a file as verl does."""
    from datasets import load_dataset

    return list(load_dataset("parquet", data_files=str(path), cache_dir=str(path.parent / "cache"))["train"])


def test_for_verl_each_step_with_a_hint_becomes_a_row(in_process: Command, sessions: Path, tmp_path: Path) -> None:
    in_process("ingest", sessions, "--repo", "me/export", "--to", tmp_path / "store")
    words = ("export", "me/export", "--from", tmp_path / "store", "--as", "verl", "--out", tmp_path / "out")
    run = in_process(*words, "--format", "json")
    assert run.returncode == exits.DONE, run.stderr
    _, traces = load_traces(FolderDestination(tmp_path / "store"), "me/export")
    steps = {step.step_id: (trace, step) for trace in traces for step in trace.steps if step.hints}
    rows = read(tmp_path / "out" / "train.parquet")
    assert json.loads(run.stdout)["rows"] == len(rows) == len(steps) > 0
    for number, row in enumerate(rows):
        told = row["extra_info"]
        trace, step = steps[told["step_id"]]
        assert row["prompt"] == [message.to_chat() for message in prompt_of(trace, step)]
        assert told["hint"] == step.hints[0].text
        assert told["error_message"] in {site.message for site in step.error_sites}
        assert told["student_action"] == action_text(trace.messages[step.action])
        assert (row["data_source"], told["index"], told["split"]) == (f"composer_hub/{trace.source}", number, "train")


def test_for_verl_pairs_keep_their_splits_and_the_chosen_action_is_the_truth(
    in_process: Command, tmp_path: Path
) -> None:
    pairs = [make_pair(0), make_pair(2), make_pair(4, prompt=(Message("user", "Größe 𝄞"),))]
    splits = {pair.trace_id: "test" if number == 1 else "train" for number, pair in enumerate(pairs)}
    card = Card("pairs", "Pairs", holes={"policy": "", "report": ""})
    publish(FolderDestination(tmp_path / "store"), "me/pairs", [pairs_table(pairs, splits)], card)
    words = ("export", "me/pairs", "--from", tmp_path / "store", "--as", "verl", "--out", tmp_path / "out")
    assert in_process(*words).returncode == exits.DONE
    train, test = (read(tmp_path / "out" / f"{name}.parquet") for name in ("train", "test"))
    assert [row["extra_info"]["pair_id"] for row in test] == [pairs[1].pair_id]
    row = next(row for row in train if row["extra_info"]["pair_id"] == pairs[2].pair_id)
    assert row["prompt"] == [{"role": "user", "content": "Größe 𝄞"}]
    assert json.loads(row["extra_info"]["rejected"]) == [message.to_chat() for message in pairs[2].rejected]
    assert row["reward_model"] == {"style": "rule", "ground_truth": action_text(pairs[2].chosen[0])}


def test_for_verl_a_version_without_hints_has_nothing_to_write(in_process: Command, tmp_path: Path) -> None:
    table = Table("traces", [to_row(make_trace())], features_of(Trace), "trace_id")
    publish(
        FolderDestination(tmp_path / "store"),
        "me/bare",
        [table],
        Card("traces", "Bare", holes={"origin": "", "redaction": ""}),
    )
    words = ("export", "me/bare", "--from", tmp_path / "store", "--as", "verl", "--out", tmp_path / "out")
    run = in_process(*words)
    assert run.returncode == exits.NOTHING_TO_DO
    assert "no step with a hint" in run.stderr
    assert not list((tmp_path / "out").iterdir())
