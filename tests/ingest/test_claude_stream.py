"""The printed streams of Claude Code, as lines and as a list."""

from __future__ import annotations

import json

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import claude_code
from composer_hub.ingest.sources import sniff


@pytest.fixture
def records(logs):
    return [json.loads(line) for line in (logs / "claude_code/stream.jsonl").read_text().splitlines()]


def test_a_stream_gives_the_session_and_its_subagent(logs, read_file):
    (session, agent), report = read_file(claude_code, logs / "claude_code/stream.jsonl")
    trace = session.trace
    assert (trace.source, trace.cwd, trace.model) == ("claude_code", "/tmp/ws", "claude-test-1")
    assert trace.provenance["harness_version"] == "2.1.197"
    assert [[call.name for call in trace.messages[step.action].tool_calls] for step in trace.steps] == [
        ["Bash", "Read"], ["Task"], ["Write"], []
    ]  # fmt: skip
    assert [len(step.results) for step in trace.steps] == [2, 1, 1, 0]
    assert {tool["function"]["name"] for tool in trace.tools} == {"Bash", "Read", "Task", "Write"}
    assert (agent.trace.parent_trace_id, agent.trace.spawn_call_id) == (trace.trace_id, "toolu_3")
    assert [message.content for message in agent.trace.messages[1:2]] == ["Find the list."]
    assert (report.counts["unknown"], report.counts["bridged"]) == (0, 0)


def test_no_prompt_of_a_stream_is_exact_and_keys_are_those_of_the_stored_session(logs, read_file):
    sessions, _ = read_file(claude_code, logs / "claude_code/stream.jsonl")
    assert {step.prefix_reason for session in sessions for step in session.trace.steps} == {"stream_log"}
    assert [key for session in sessions for key in session.keys] == [
        f"claude_code:msg_{number}" for number in (1, 2, 5, 6, 3, 4)
    ]


def test_failures_of_a_stream_are_found(logs, read_file):
    sessions, _ = read_file(claude_code, logs / "claude_code/stream.jsonl")
    kinds = [[site.kind for site in step.error_sites] for session in sessions for step in find_errors(session).steps]
    assert kinds == [["nonzero_exit", "path_not_found"], [], ["policy_denied"], [], ["command_not_found"], []]
    session = sessions[0]
    assert [session.flags[at].status for at in session.trace.steps[2].results] == ["denied"]


def test_a_list_of_records_without_ids_reads_the_same(records, read_file, logs, tmp_path):
    for record in records:
        del record["uuid"]
    path = tmp_path / "execution.json"
    path.write_text(json.dumps(records, indent=2))
    assert sniff(path.read_bytes(), path).name == "claude_code"
    sessions, _ = read_file(claude_code, path)
    lines, _ = read_file(claude_code, logs / "claude_code/stream.jsonl")
    assert [session.trace.messages for session in sessions] == [session.trace.messages for session in lines]


def test_a_provider_error_is_no_step(records, read_file, tmp_path):
    (failed,) = [record for record in records if as_text_of(record) == "I may not write the list."]
    failed["error"] = "rate_limit"
    path = tmp_path / "stream.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    (session, _), report = read_file(claude_code, path)
    assert len(session.trace.steps) == 3
    assert report.counts["provider_errors"] == 1


def test_the_stream_of_qwen_code_is_left_to_its_own_reader(records, tmp_path):
    init = {**records[1], "tools": ["agent", "read_file", "run_shell_command"], "qwen_code_version": "0.24.4"}
    del init["claude_code_version"]
    path = tmp_path / "stream.jsonl"
    path.write_text("\n".join(map(json.dumps, [init, *records[2:]])))
    found = sniff(path.read_bytes(), path)
    assert found is not None
    assert found.name == "qwen_code"


def as_text_of(record):
    blocks = record.get("message", {}).get("content", [{}])
    return blocks[0].get("text")
