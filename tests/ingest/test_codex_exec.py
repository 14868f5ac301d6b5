"""The output of `codex exec --json`."""

from __future__ import annotations

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import codex


@pytest.fixture
def session(logs, read_file):
    (session,), report = read_file(codex, logs / "codex/exec.jsonl")
    assert (report.counts["unknown"], report.counts["provider_errors"]) == (0, 2)
    return session


def test_started_items_are_the_calls_of_one_message_and_completed_ones_their_results(session):
    trace = session.trace
    assert trace.session_id == "01a2b3c4-0000-7000-8000-000000000001"
    assert [[call.name for call in trace.messages[step.action].tool_calls] for step in trace.steps] == [
        ["shell", "shell"], ["mcp__notes__find"], ["apply_patch"], ["web_search", "shell"]
    ]  # fmt: skip
    first = trace.messages[trace.steps[0].action]
    assert [call.arguments["command"][2] for call in first.tool_calls] == ["python3 check.py", "lss | head"]
    results = {trace.messages[at].tool_call_id: trace.messages[at].content for at in trace.steps[0].results}
    assert results["item_3"] == "ready\n"
    assert {step.prefix_reason for step in trace.steps} == {"stream_log"}


def test_exit_codes_and_lost_results_are_sites(session):
    kinds = [[site.kind for site in step.error_sites] for step in find_errors(session).steps]
    assert kinds == [["command_not_found"], ["tool_error"], [], ["dangling_call"]]


def test_a_message_whose_call_was_not_printed_is_no_step(session):
    said = [message.content for message in session.trace.messages if message.role == "assistant"]
    assert "I try a tool." in said
    assert "I try a tool." not in [session.trace.messages[step.action].content for step in session.trace.steps]


def test_a_resumed_run_in_the_same_file_counts_its_items_anew(logs, read_file, tmp_path):
    text = (logs / "codex/exec.jsonl").read_text()
    path = tmp_path / "exec.jsonl"
    path.write_text(text + text)
    (session,), _ = read_file(codex, path)
    calls = [call.call_id for message in session.trace.messages for call in message.tool_calls]
    assert len(calls) == len(set(calls)) == 12
