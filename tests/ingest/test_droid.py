"""Factory Droid: stored sessions and streams."""

from __future__ import annotations

import json

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import droid


def kinds(session):
    return [[site.kind for site in step.error_sites] for step in find_errors(session).steps]


def written(path, records):
    path.write_text("\n".join(map(json.dumps, records)))
    return path


@pytest.fixture
def records(logs):
    def of(name):
        return [json.loads(line) for line in (logs / f"droid/{name}.jsonl").read_text().splitlines()]

    return of


def test_a_stored_message_is_a_step_with_its_calls_and_results(logs, read_file):
    (session,), report = read_file(droid, logs / "droid/store.jsonl")
    trace = session.trace
    assert (trace.source, trace.session_id, trace.cwd) == ("droid", "0d0d0d0d-0000-4000-8000-000000000001", "/tmp/ws")
    assert [[call.name for call in trace.messages[step.action].tool_calls] for step in trace.steps] == [
        ["Execute", "Read"], ["Execute"], []
    ]  # fmt: skip
    assert [trace.messages[step.action].reasoning_content for step in trace.steps] == [
        "I look first.", "", "The user wants it."
    ]  # fmt: skip
    assert all(step.prefix_exact for step in trace.steps)
    assert report.counts["unknown"] == 0


def test_a_stored_failure_has_no_flag_but_an_exit_code_that_only_a_command_can_have(logs, read_file):
    (session,), _ = read_file(droid, logs / "droid/store.jsonl")
    assert kinds(session) == [["command_not_found"], ["user_rejected"], []]
    command, notes = session.trace.steps[0].results
    assert session.flags[command].exit_code == 127
    assert notes not in session.flags


def test_a_stream_joins_the_pieces_of_a_message_and_reads_exit_codes_of_successes(logs, read_file):
    (session,), report = read_file(droid, logs / "droid/stream.jsonl")
    trace = session.trace
    assert trace.model == "droid-model"
    assert [message.content for message in trace.messages if message.role == "assistant"] == [
        "Looking.", "The check fails."
    ]  # fmt: skip
    assert {step.prefix_reason for step in trace.steps} == {"stream_log"}
    assert len(trace.steps[0].results) == 2
    assert kinds(session) == [["program_exception", "command_not_found"], []]
    assert report.counts["provider_errors"] == 1


def test_the_final_text_is_added_only_if_it_was_not_printed(records, read_file, tmp_path):
    *before, end = records("stream")
    said = {**before[2], "id": "m3", "text": end["finalText"]}
    (session,), _ = read_file(droid, written(tmp_path / "stream.jsonl", [*before, said, end]))
    assert len(session.trace.steps) == 2


def test_a_message_that_goes_back_costs_the_later_prompts(records, read_file, tmp_path):
    stored = records("store")
    stored[-1]["parentId"] = "m1"
    (session,), _ = read_file(droid, written(tmp_path / "store.jsonl", stored))
    assert [step.prefix_reason for step in session.trace.steps] == ["", "", "rewound"]


def test_a_repeated_line_and_strange_parts_are_counted(records, read_file, tmp_path):
    stored = records("store")
    stored[4]["message"]["content"].append({"type": "hologram"})
    stored.insert(5, stored[4])
    (session,), report = read_file(droid, written(tmp_path / "store.jsonl", stored))
    assert (report.counts["duplicate_lines"], report.counts["unknown"]) == (1, 1)
    assert [step.prefix_exact for step in session.trace.steps] == [True, False, False]
