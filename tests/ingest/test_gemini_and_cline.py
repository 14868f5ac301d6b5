"""Gemini CLI chats and Cline sessions."""

from __future__ import annotations

import json

from composer_hub.ingest.readers import cline, gemini
from composer_hub.records import prompt_of


def test_the_real_gemini_chat_has_two_steps_and_one_call_with_its_result(samples, read_file):
    path = samples / "gemini" / "gemini-chat-2.json"
    # Counted from the raw file: user, gemini with 1 call (success), user, gemini; both gemini messages carry thoughts.
    raw = json.loads(path.read_text())["messages"]
    assert [(m["type"], len(m.get("toolCalls", ()))) for m in raw] == [
        ("user", 0), ("gemini", 1), ("user", 0), ("gemini", 0),
    ]  # fmt: skip
    (session,), _ = read_file(gemini, path)
    trace = session.trace
    assert [len(step.results) for step in trace.steps] == [1, 0]
    assert [step.reasoning_status for step in trace.steps] == ["summary", "summary"]
    assert {step.prefix_reason for step in trace.steps} == {"display_log"}
    assert (trace.model, trace.family, trace.system_prompt_source) == ("gemini-2.5-flash", "google", "synthetic")
    (flag,) = session.flags.values()
    assert (flag.is_error, flag.status, flag.detail) == (False, "completed", "success")


def test_a_message_written_again_counts_once_with_its_last_text(logs, read_file):
    (session,), _ = read_file(gemini, logs / "gemini/gemini_0.40.jsonl")
    first = session.trace.steps[0]
    assert [call.call_id for call in session.trace.messages[first.action].tool_calls] == ["s1", "s2", "s3"]
    told = [(flag.is_error, flag.exit_code, flag.status) for flag in session.flags.values()]
    assert told == [(False, 0, "completed"), (True, None, "failed"), (True, None, "cancelled")]


def test_a_rewind_is_a_branch_that_is_kept(logs, read_file):
    (session,), report = read_file(gemini, logs / "gemini/gemini_0.40.jsonl")
    texts = [session.trace.messages[step.action].content for step in session.trace.steps]
    branches = dict(zip(texts, (step.on_main_branch for step in session.trace.steps), strict=True))
    assert branches["Deleted."] is False
    assert sum(not main for main in branches.values()) == 1
    kept = next(step for step in session.trace.steps if session.trace.messages[step.action].content == "Kept.")
    assert "Delete it." not in [message.content for message in prompt_of(session.trace, kept)]
    assert (report.counts["forks"], report.counts["boundaries"]) == (1, 1)


def test_after_a_checkpoint_nothing_from_before_it_is_read(logs, read_file):
    (session,), _ = read_file(gemini, logs / "gemini/gemini_0.40.jsonl")
    texts = [message.content for message in prompt_of(session.trace, session.trace.steps[-1])]
    assert texts[1:] == ["Summary: one file, kept."]


def test_cline_results_come_before_the_words_of_the_same_message(logs, read_file):
    (session,), _ = read_file(cline, logs / "cline/cline_session.messages.json")
    trace = session.trace
    assert [message.role for message in trace.messages] == [
        *("system", "user", "assistant", "tool", "tool", "user", "assistant", "user", "assistant")
    ]
    assert [step.model for step in trace.steps] == ["claude-sonnet-4-6", "claude-sonnet-4-6", "gpt-5"]
    assert [step.reasoning_status for step in trace.steps] == ["plain", "absent", "absent"]
    (flag,) = session.flags.values()
    assert flag.is_error is True
    assert trace.messages[4].content == '[{"query":"ls","result":"a b","success":true}]'


def test_a_cline_prompt_never_holds_a_message_from_before_a_compaction(logs, read_file):
    (session,), report = read_file(cline, logs / "cline/cline_session.messages.json")
    texts = [message.content for message in prompt_of(session.trace, session.trace.steps[-1])]
    assert texts == ["You are Cline.", "Context summary: nothing happened."]
    assert report.counts["boundaries"] == 1


def test_an_old_cline_history_is_read_with_its_working_directory(logs, read_file):
    (session,), _ = read_file(cline, logs / "cline/cline_api_conversation_history.json")
    assert session.trace.cwd == "/home/ann/p"
    assert [len(step.results) for step in session.trace.steps] == [0, 1, 0]
    assert session.trace.system_prompt_source == "synthetic"


def test_without_any_call_the_reply_to_xml_is_its_result(logs, read_file, tmp_path):
    history = json.loads((logs / "cline/cline_api_conversation_history.json").read_text())[:3]
    path = tmp_path / "api_conversation_history.json"
    path.write_text(json.dumps([*history, {"role": "assistant", "content": "Done."}]))
    (session,), _ = read_file(cline, path)
    assert [len(step.results) for step in session.trace.steps] == [1, 0]


def test_a_failed_query_of_clines_own_tools_is_an_error(logs, read_file, tmp_path):
    document = json.loads((logs / "cline/cline_session.messages.json").read_text())
    document["messages"][2]["content"][1]["content"] = [{"query": "ls", "error": "exit 1", "success": False}]
    path = tmp_path / "a.messages.json"
    path.write_text(json.dumps(document))
    (session,), _ = read_file(cline, path)
    assert [flag.is_error for flag in session.flags.values()] == [True, True]


def test_an_exit_code_that_a_command_prints_is_not_its_own(read_file, tmp_path):
    text = "Command: cat build.log\nOutput: last run\nExit Code: 7\nError: (none)\nExit Code: 0\nSignal: (none)"
    result = [{"functionResponse": {"response": {"output": text}}}]
    call = {"id": "c", "name": "run_shell_command", "args": {}, "status": "success", "result": result}
    messages = [{"id": "1", "type": "user", "content": "go"}, {"id": "2", "type": "gemini", "toolCalls": [call]}]
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"sessionId": "s", "projectHash": "h", "messages": messages}))
    (session,), _ = read_file(gemini, path)
    assert [flag.exit_code for flag in session.flags.values()] == [0]
