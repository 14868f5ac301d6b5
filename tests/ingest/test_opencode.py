"""OpenCode sessions, exported and as files of the old storage."""

from __future__ import annotations

import json

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import opencode


@pytest.fixture
def export(logs):
    return json.loads((logs / "opencode/export.json").read_text())


def stored(document, storage):
    """Write an export as the files of the old storage and return the session's."""
    session = storage / "session/project" / f"{document['info']['id']}.json"
    files = {session: document["info"]}
    for message in document["messages"]:
        info = message["info"]
        files[storage / "message" / document["info"]["id"] / f"{info['id']}.json"] = info
        for part in message["parts"]:
            files[storage / "part" / info["id"] / f"{part['id']}.json"] = part
    for path, value in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    return session


def test_each_assistant_message_is_a_step_with_its_calls_and_results(logs, read_file):
    (session,), report = read_file(opencode, logs / "opencode/export.json")
    trace = session.trace
    assert (trace.source, trace.cwd, trace.model) == ("opencode", "/tmp/ws", "fake-model")
    assert trace.provenance["harness_version"] == "1.18.33"
    assert [[call.name for call in trace.messages[step.action].tool_calls] for step in trace.steps] == [
        ["bash"], ["bash", "bash"], ["bash"], ["read"], ["edit"], ["no_such_tool"], ["bash"], []
    ]  # fmt: skip
    assert all(step.prefix_exact and step.reasoning_status == "plain" for step in trace.steps)
    assert report.counts["unknown"] == 0


def test_failures_are_found_by_exit_code_status_and_tool_name(logs, read_file):
    (session,), _ = read_file(opencode, logs / "opencode/export.json")
    kinds = [[site.kind for site in step.error_sites] for step in find_errors(session).steps]
    assert kinds == [
        [], ["program_exception"], ["command_not_found"], ["path_not_found"], ["edit_no_match"], ["tool_not_found"],
        ["schema_validation"], [],
    ]  # fmt: skip


def test_the_old_storage_gives_the_session_of_the_export(export, read_file, logs, tmp_path):
    (exported,), _ = read_file(opencode, logs / "opencode/export.json")
    (session,), _ = read_file(opencode, stored(export, tmp_path / "storage"))
    assert session.trace == exported.trace
    assert session.flags == exported.flags


def test_a_broken_part_costs_only_itself(export, read_file, tmp_path):
    path = stored(export, tmp_path / "storage")
    text = next(part for part in export["messages"][1]["parts"] if part["type"] == "text")
    (tmp_path / "storage/part" / export["messages"][1]["info"]["id"] / f"{text['id']}.json").write_text("{")
    (session,), report = read_file(opencode, path)
    assert report.counts["corrupt"] == 1
    assert len(session.trace.steps) == 8


def test_after_a_compaction_the_model_reads_the_request_and_the_summary(export, read_file, tmp_path):
    first, second, *_, last = export["messages"]
    request = {"info": {"id": "msg_u", "role": "user"}, "parts": [{"type": "compaction", "auto": True}]}
    request["parts"].append({"type": "text", "text": "Summarize.", "synthetic": True})
    summary = {
        "info": {"id": "msg_s", "role": "assistant", "parentID": "msg_u", "summary": True, "finish": "stop"},
        "parts": [{"type": "text", "text": "add() was wrong."}],
    }
    export["messages"] = [first, second, request, summary, last]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(export))
    (session,), report = read_file(opencode, path)
    trace = session.trace
    *_, step = trace.steps
    texts = [trace.messages[index].content for start, stop in step.prompt for index in range(start, stop)]
    assert texts == [trace.messages[0].content, "Summarize.", "add() was wrong."]
    assert step.prefix_reason == "compacted"
    assert report.counts["boundaries"] == 1


@pytest.mark.parametrize(("error", "kind"), [
    ("MessageAbortedError", "interrupted"),
    ("APIError", "api_error"),
    ("MessageOutputLengthError", "truncated_output"),
])  # fmt: skip
def test_a_message_that_was_cut_off_says_why(export, read_file, tmp_path, error, kind):
    export["messages"] = export["messages"][:2]
    export["messages"][1]["info"]["error"] = {"name": error}
    path = tmp_path / "export.json"
    path.write_text(json.dumps(export))
    (session,), _ = read_file(opencode, path)
    (step,) = find_errors(session).steps
    assert kind in [site.kind for site in step.error_sites]


def test_real_sessions_of_the_old_storage_are_read(samples, read_file):
    (small,), _ = read_file(opencode, samples / "opencode/storage-small/session/proj_test/ses_s_stage0_small.json")
    (large,), _ = read_file(opencode, samples / "opencode/storage-large/session/proj_test/ses_s_stage0_large.json")
    assert [len(session.trace.steps) for session in (small, large)] == [1, 2]
    assert [flag.exit_code for flag in large.flags.values() if flag.exit_code is not None] == [1]


def test_a_printed_run_has_steps_exit_codes_and_usage_but_no_exact_prompt(logs, read_file):
    (session,), report = read_file(opencode, logs / "opencode/run.jsonl")
    trace = session.trace
    assert (trace.session_id, len(trace.steps), report.counts["unknown"]) == ("ses_run1", 2, 0)
    assert [step.prefix_reason for step in trace.steps] == ["stream_log"] * 2
    assert [[site.kind for site in step.error_sites] for step in find_errors(session).steps] == [
        ["command_not_found"],
        [],
    ]
    assert trace.counts["audit"]["num_steps"] == 2
