"""Aider's markdown, and trace rows of the Hub that hand their raw events to the harness's own reader."""

from __future__ import annotations

import json
import re

from composer_hub.ingest.readers import aider, hf_native


def test_the_real_history_has_a_session_for_each_chat_in_which_the_model_speaks(samples, read_file):
    path = samples / "aider" / "chat-history-a.md"
    # Counted with a line scan of its own: 41 of 90 chats have a line outside quotes, headings and blanks.
    chats = re.split(r"^# aider chat started at .*$", path.read_text(), flags=re.MULTILINE)[1:]
    spoken = [any(line.strip() and not line.startswith((">", "#### ")) for line in chat.split("\n")) for chat in chats]
    assert (len(chats), sum(spoken)) == (90, 41)
    sessions, report = read_file(aider, path)
    assert (len(chats), sum(spoken)) == (report.counts["traces"] + report.counts["no_steps"], len(sessions))
    assert {step.prefix_reason for session in sessions for step in session.trace.steps} == {"markdown_log"}


def test_failed_edits_are_flagged_as_often_as_aider_counts_them(samples, read_file):
    path = samples / "aider" / "chat-history-a.md"
    sessions, _ = read_file(aider, path)
    failed = [flag for session in sessions for flag in session.flags.values() if flag.detail == "edit_no_match"]
    # Counted with grep: 6 lines "> # N SEARCH/REPLACE block failed to match!", each in an answer of its own.
    assert len(re.findall(r"^> # \d+ SEARCH/REPLACE blocks? failed to match!", path.read_text(), re.MULTILINE)) == 6
    assert len(failed) == 6


def test_speakers_are_distinguished_and_results_belong_to_their_step(logs, read_file):
    sessions, _ = read_file(aider, logs / "aider/aider.chat.history.md")
    first, second = (session.trace for session in sessions)
    assert [message.role for message in first.messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert first.messages[1].content == "fix the typo\nin README"
    assert "<<<<<<< SEARCH" in first.messages[2].content
    assert [len(step.results) for step in first.steps] == [1, 1]
    assert [flag.detail for flag in sessions[0].flags.values()] == ["edit_no_match"]
    assert (first.model, first.family) == ("anthropic/claude-sonnet-4-5", "anthropic")
    assert (second.model, second.provenance["harness_version"]) == ("gpt-5", "0.86.0")
    assert [len(step.results) for step in second.steps] == [0]


def test_raw_events_go_to_the_harness_reader_and_other_rows_are_read_as_chat(logs, read_file):
    sessions, _ = read_file(hf_native, logs / "hf_native/hf_native.jsonl")
    assert [(session.trace.source, len(session.trace.steps)) for session in sessions] == [
        ("pi", 1),
        ("droid", 2),
        ("hermes", 2),
    ]
    pi, droid, _ = (session.trace for session in sessions)
    assert pi.cwd == "/home/ann/p"  # only the raw events tell
    assert pi.model == "claude-sonnet-4-5"
    assert {step.prefix_reason for step in droid.steps} == {"converted_row"}
    assert (droid.model, droid.tools_source) == ("gpt-5.1", "recorded")
    assert droid.messages[2].reasoning_content == "Use ls."


def test_a_row_whose_trace_is_a_list_of_events_is_also_read(logs, read_file, tmp_path):
    row = json.loads((logs / "hf_native/hf_native.jsonl").read_text().splitlines()[0])
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row, "trace": [json.loads(line) for line in row["trace"].split("\n")]}))
    (session,), _ = read_file(hf_native, path)
    assert (session.trace.source, session.trace.cwd) == ("pi", "/home/ann/p")


def test_rows_written_by_datasets_are_read_from_parquet(logs, read_file, tmp_path):
    from datasets import Dataset, Features, Json, List, Value

    rows = [json.loads(line) for line in (logs / "hf_native/hf_native.jsonl").read_text().splitlines()]
    kinds = {"messages": List(Json()), "tools": List(Json()), "metadata": Json(), "trace": Json()}
    numbers = {"num_user_messages": Value("int64"), "num_tool_calls": Value("int64")}
    features = Features({name: kinds.get(name) or numbers.get(name) or Value("string") for name in rows[0]})
    path = tmp_path / "rows.parquet"
    Dataset.from_list(rows, features=features).to_parquet(str(path))
    assert hf_native.sniff(path.read_bytes()[:4], path)
    sessions, _ = read_file(hf_native, path)
    assert [(session.trace.source, len(session.trace.steps)) for session in sessions] == [
        ("pi", 1),
        ("droid", 2),
        ("hermes", 2),
    ]


def test_the_license_of_a_row_goes_with_its_trace(logs, read_file, tmp_path):
    row = json.loads((logs / "hf_native/hf_native.jsonl").read_text().splitlines()[0])
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row, "license": "cc-by-4.0"}))
    (session,), _ = read_file(hf_native, path)
    assert session.trace.license == "cc-by-4.0"
