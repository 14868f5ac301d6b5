"""Qwen Code chats: a recorded session, compactions, rewinds and subagents."""

from __future__ import annotations

import json

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.harnesses import body_of
from composer_hub.ingest.readers import qwen_code
from composer_hub.records import prompt_of


@pytest.fixture
def chat(logs, read_file):
    (session,), report = read_file(qwen_code, logs / "qwen_code/chat.jsonl")
    assert report.counts["unknown"] == 0
    return session


@pytest.fixture
def changed(logs, read_file):
    (session,), report = read_file(qwen_code, logs / "qwen_code/compaction_and_rewind.jsonl")
    assert report.counts["unknown"] == 0
    return session


def words(trace, step):
    """Return the texts of a step's prompt, without the system prompt."""
    return [message.content for message in prompt_of(trace, step)[1:]]


def test_each_record_of_the_assistant_is_a_step_with_its_calls_and_results(chat):
    trace = chat.trace
    assert (trace.source, trace.cwd, trace.model) == ("qwen_code", "/tmp/ws", "fake-model")
    assert trace.provenance["git_branch"] == "master"
    assert [[call.name for call in trace.messages[step.action].tool_calls] for step in trace.steps] == [
        ["run_shell_command"], ["run_shell_command", "run_shell_command"], ["run_shell_command"], ["read_file"],
        ["read_file"], ["edit"], ["edit"], ["no_such_tool"], ["run_shell_command"], ["run_shell_command"], [],
    ]  # fmt: skip
    assert all(step.prefix_exact and step.reasoning_status == "plain" for step in trace.steps)
    assert [len(step.results) for step in trace.steps] == [1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 0]


def test_failures_are_found_by_exit_code_type_and_words(chat):
    kinds = [[site.kind for site in step.error_sites] for step in find_errors(chat).steps]
    assert kinds == [
        [], ["program_exception"], ["command_not_found"], ["path_not_found"], [], ["edit_no_match"], [],
        ["tool_not_found"], ["schema_validation"], [], [],
    ]  # fmt: skip


def test_a_command_that_failed_has_its_exit_code_though_its_status_is_success(chat):
    codes = [flag.exit_code for flag in chat.flags.values() if flag.exit_code is not None]
    assert codes == [0, 1, 0, 127, 0]
    assert all(flag.is_error is False for flag in chat.flags.values() if flag.exit_code)


def test_the_frame_around_an_output_is_not_part_of_it():
    frame = "Command: {}\nDirectory: (root)\nOutput: {}\nError: (none)\nExit Code: 1\nSignal: 0\nProcess Group PGID: 7"
    assert body_of(frame.format("make", "no rule")) == "no rule"
    assert body_of(frame.format("cat <<E\na\nE", "(empty)")) == ""
    own = 'Command "instal" is not defined.\n\nDid you mean this?\n    install'
    assert body_of(own) == own


def test_an_exit_code_in_a_file_that_was_read_is_only_text(logs, read_file, tmp_path):
    text = (logs / "qwen_code/compaction_and_rewind.jsonl").read_text()
    path = tmp_path / "chat.jsonl"
    path.write_text(text.replace("return a - b\\n", "return a - b\\nExit Code: 3"))
    (session,), _ = read_file(qwen_code, path)
    assert all(flag.exit_code is None for flag in session.flags.values())


def test_below_a_compaction_the_model_reads_the_stored_history(changed):
    trace = changed.trace
    step = next(step for step in trace.steps if trace.messages[step.action].content == "I use sed.")
    summary = ["<state_snapshot>add subtracts</state_snapshot>", "Got it. Thanks for the additional context!"]
    assert words(trace, step) == [*summary, "Fix it with sed."]
    assert step.prefix_exact


def test_a_compaction_that_stored_nothing_leaves_the_prompt_as_it_was(logs, read_file, tmp_path):
    lines = (logs / "qwen_code/compaction_and_rewind.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        if record.get("subtype") == "chat_compression":
            record["systemPayload"]["compressedHistory"] = None
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    (session,), _ = read_file(qwen_code, path)
    assert words(session.trace, session.trace.steps[-1])[0] == "Find the bug in add."


def test_a_rewind_is_a_branch(changed):
    trace = changed.trace
    main = [trace.messages[step.action].content for step in trace.steps if step.on_main_branch]
    assert main == ["I look at the file.", "It subtracts.", "I edit the file.", "Fixed."]
    assert "I use sed." not in words(trace, trace.steps[-1])
    assert trace.steps[-1].prefix_reason == "image_left_out"


def test_records_under_one_id_are_one_message(changed):
    trace = changed.trace
    (message,) = [m for m in trace.messages if m.content == "I edit the file."]
    assert message.reasoning_content == "One character is wrong."
    assert [call.call_id for call in message.tool_calls] == ["c3"]


def test_a_command_that_qwen_code_answered_is_never_in_a_prompt(changed):
    assert all("/stats" not in message.content for message in changed.trace.messages)


def test_a_call_that_the_user_did_not_allow_is_the_users_decision(changed):
    sites = [site for step in find_errors(changed).steps for site in step.error_sites]
    assert [(site.kind, site.blame) for site in sites] == [("user_rejected", "user")]


def test_a_subagent_is_a_trace_with_its_parent_and_joins_the_records_of_one_message(logs, read_file, changed):
    path = logs / "qwen_code/subagents/s-qwen-2/agent-explore-7f3c.jsonl"
    (session,), report = read_file(qwen_code, path)
    assert session.trace.parent_trace_id == changed.trace.trace_id
    first, last = session.trace.steps
    action = session.trace.messages[first.action]
    assert (action.content, [call.call_id for call in action.tool_calls]) == ("Let me search.", ["c8", "c9"])
    assert [len(step.results) for step in (first, last)] == [2, 0]
    assert report.counts["merged"] == 2


def test_real_chats_are_read(samples, read_file):
    (mocked,), _ = read_file(qwen_code, samples / "qwen/splitrail.jsonl")
    assert [[site.kind for site in step.error_sites] for step in find_errors(mocked).steps] == [
        ["schema_validation"],
        [],
    ]
    (glued,), report = read_file(qwen_code, samples / "qwen/019f0000-0000-7000-8000-000000000005.jsonl")
    assert (len(glued.trace.steps), report.counts["repaired"]) == (1, 1)


def test_a_printed_stream_joins_the_blocks_of_a_message(logs, read_file):
    (session,), report = read_file(qwen_code, logs / "qwen_code/stream.jsonl")
    trace = session.trace
    first = trace.messages[trace.steps[0].action]
    assert (first.content, first.reasoning_content, len(first.tool_calls)) == ("I look.", "Look first.", 1)
    assert [step.prefix_reason for step in trace.steps] == ["stream_log"] * 3
    assert [(flag.is_error, flag.exit_code) for flag in session.flags.values()] == [(None, 0), (True, None)]
    assert report.counts["unknown"] == 0
