"""Cursor transcripts: calls with and without ids, results that are missing, and models of exports."""

from __future__ import annotations

import json
import shutil

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import cursor


def test_results_follow_calls_without_ids_in_order_and_recorded_ids_exactly(logs, read_file):
    (session,), report = read_file(cursor, logs / "cursor/transcript.jsonl")
    trace = session.trace
    found = [[trace.messages[index].content for index in step.results] for step in trace.steps]
    assert found == [
        ["bash: line 1: pytset: command not found", "def add(a, b): return a - b"],
        ["The file was changed."], [], ["4 passed"], [],
    ]  # fmt: skip
    assert report.counts["orphan_results"] == 1
    assert report.counts["unknown"] == 0
    assert trace.messages[trace.steps[0].action].reasoning_content == "Tests first."


def test_a_call_without_a_result_is_not_the_models_failure(logs, read_file):
    (session,), _ = read_file(cursor, logs / "cursor/transcript.jsonl")
    steps = find_errors(session).steps
    assert [site.kind for site in steps[0].error_sites] == ["command_not_found"]
    assert all(site.blame != "model" for step in steps[1:] for site in step.error_sites)


def test_no_prompt_is_exact_because_the_file_is_for_display(logs, read_file):
    (session,), _ = read_file(cursor, logs / "cursor/transcript.jsonl")
    assert all("display_log" in step.prefix_reason for step in session.trace.steps)


def test_a_subagent_names_its_parent(logs, read_file, tmp_path):
    path = tmp_path / "main-1/subagents/sub-1.jsonl"
    path.parent.mkdir(parents=True)
    shutil.copy(logs / "cursor/transcript.jsonl", path)
    (session,), _ = read_file(cursor, path)
    assert session.trace.session_id == "main-1/sub-1"
    assert session.trace.parent_trace_id


def test_an_unknown_block_is_counted_and_costs_exactness(read_file, tmp_path):
    lines = [
        {"role": "user", "message": {"content": [{"type": "text", "text": "Hi."}, {"type": "selection", "text": "x"}]}},
        {"role": "assistant", "message": {"content": "Hello."}},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (session,), report = read_file(cursor, path)
    assert report.unknown_types == {"content/selection": 1}
    assert "record_not_read" in session.trace.steps[0].prefix_reason


def test_real_transcripts_are_read(samples, read_file):
    (large,), _ = read_file(cursor, samples / "cursor/agent-transcript-large.jsonl")
    assert [len(step.results) for step in large.trace.steps] == [1, 0, 1, 0, 0]
    (export,), _ = read_file(cursor, samples / "cursor/teich-export.jsonl")
    assert (export.trace.model, export.trace.tools_source) == ("claude-opus-4.5", "recorded")


def test_a_printed_stream_keeps_calls_once_with_their_outcome(logs, read_file):
    (session,), report = read_file(cursor, logs / "cursor/stream.jsonl")
    trace = session.trace
    actions = [trace.messages[step.action] for step in trace.steps]
    assert [(one.content, one.reasoning_content, [call.name for call in one.tool_calls]) for one in actions] == [
        ("I look.", "Use the shell.", ["shell", "read"]), ("", "", ["edit"]), ("Done.", "", []),
    ]  # fmt: skip
    assert (trace.cwd, trace.model, report.counts["unknown"]) == ("/w/shop", "Composer", 0)
    kinds = [[site.kind for site in step.error_sites] for step in find_errors(session).steps]
    assert kinds == [["nonzero_empty"], ["user_rejected"], []]  # `ls` of a folder that is not there is a look


def test_calls_of_a_transcript_without_any_result_are_no_failures(read_file, tmp_path):
    use = {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}}
    lines = [
        {"role": "user", "message": {"content": [{"type": "text", "text": "List."}]}},
        {"role": "assistant", "message": {"content": [use]}},
        {"role": "assistant", "message": {"content": [{"type": "text", "text": "Done."}]}},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    (session,), _ = read_file(cursor, path)
    assert not any(step.error_sites for step in find_errors(session).steps)
