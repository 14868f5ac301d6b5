"""Rows of chat messages: SWE-smith, SWE-Gym, nebius; JSON and Parquet."""

from __future__ import annotations

import json

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import chat_rows
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.records import prompt_of


def test_swe_smith_rows_have_a_step_an_assistant_message(samples, read_file):
    path = samples / "swe_smith" / "swe-smith-sample-rows.json"
    # Counted from the raw file: 5 rows of 31, 47, 37, 45 and 77 messages that begin with system and user and end with
    # an assistant, so 15, 23, 18, 22 and 38 steps; every step but the last is answered by one user message.
    rows = json.loads(path.read_text())
    roles = [[message["role"] for message in row["messages"]] for row in rows]
    said = [row.count("assistant") for row in roles]
    assert ([len(row) for row in roles], said) == ([31, 47, 37, 45, 77], [15, 23, 18, 22, 38])
    sessions, report = read_file(chat_rows, path)
    assert [len(session.trace.steps) for session in sessions] == said
    assert [sum(len(step.results) for step in session.trace.steps) for session in sessions] == [14, 22, 17, 21, 37]
    assert [len(session.trace.messages) for session in sessions] == [31, 47, 37, 45, 77]
    assert [session.trace.session_id for session in sessions] == [row["traj_id"] for row in rows]
    assert {session.trace.resolved for session in sessions} == {True}
    assert {session.trace.family for session in sessions} == {"anthropic"}
    assert report.counts["inexact"] == 0


def test_every_prompt_of_a_row_is_the_messages_before_it(samples, read_file):
    path = samples / "swe_smith" / "swe-smith-sample-rows.json"
    sessions, _ = read_file(chat_rows, path)
    raw = json.loads(path.read_text())[0]["messages"]
    trace = sessions[0].trace
    for step in trace.steps:
        assert [m.content for m in prompt_of(trace, step)] == [m["content"] for m in raw[: step.action]]


def test_nebius_rows_speak_of_ai_and_text(logs, read_file):
    sessions, _ = read_file(chat_rows, logs / "chat_rows/nebius_swe_agent.jsonl")
    assert [len(session.trace.steps) for session in sessions] == [3, 2]
    assert [session.trace.resolved for session in sessions] == [False, True]
    assert sessions[0].trace.messages[0].content == "SETTING: You are an autonomous programmer."
    assert sessions[0].trace.family == "meta"
    assert sessions[0].trace.provenance["exit_status"] == "submitted (exit_context)"


def test_calls_stay_calls_and_broken_arguments_stay_text(logs, read_file):
    (session,), _ = read_file(chat_rows, logs / "chat_rows/swe_rebench_openhands.jsonl")
    calls = session.trace.messages[session.trace.steps[0].action].tool_calls
    assert [call.arguments for call in calls] == [{"command": "ls"}, '{"command": "cat x"']
    assert [len(step.results) for step in session.trace.steps] == [2, 0]
    assert session.trace.tools_source == "recorded"
    assert session.trace.resolved is False
    assert session.trace.repository == "PlasmaFAIR/sdf-xarray"


def test_the_model_of_a_swe_gym_row_is_named_by_its_run(logs, read_file, tmp_path):
    row = json.loads((logs / "chat_rows/swe_gym_openhands.jsonl").read_text())
    del row["model"]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row))
    (session,), _ = read_file(chat_rows, path)
    assert session.trace.model == "gpt-4o-2024-08-06"
    assert [flag.exit_code for flag in session.flags.values()] == [2]


def test_messages_stored_as_json_text_are_read(logs, read_file, tmp_path):
    row = json.loads((logs / "chat_rows/swe_rebench_openhands.jsonl").read_text())
    path = tmp_path / "rows.json"
    path.write_text(
        json.dumps([{**row, "messages": json.dumps(row.pop("trajectory")), "tools": json.dumps(row["tools"])}])
    )
    (session,), _ = read_file(chat_rows, path)
    assert len(session.trace.steps) == 2
    assert session.trace.tools_source == "recorded"


def test_one_task_solved_twice_gives_two_traces(logs, read_file, tmp_path):
    row = json.loads((logs / "chat_rows/swe_gym_openhands.jsonl").read_text())
    other = {**row, "messages": [*row["messages"][:-1], {"role": "assistant", "content": "Otherwise."}]}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, [row, other, row])))
    sessions, _ = read_file(chat_rows, path)
    ids = [session.trace.trace_id for session in sessions]
    assert ids[0] == ids[2] != ids[1]


@pytest.mark.parametrize("name", ["nebius_swe_agent", "swe_rebench_openhands"])
def test_parquet_gives_the_same_sessions_as_json(logs, read_file, tmp_path, name):
    from datasets import Dataset

    path = tmp_path / "rows.parquet"
    Dataset.from_list(
        [json.loads(line) for line in (logs / f"chat_rows/{name}.jsonl").read_text().splitlines()]
    ).to_parquet(str(path))
    assert chat_rows.sniff(path.read_bytes()[:65536], path)
    from_parquet, _ = read_file(chat_rows, path)
    from_json, _ = read_file(chat_rows, logs / f"chat_rows/{name}.jsonl")
    for one, other in zip(from_parquet, from_json, strict=True):
        assert (one.trace.messages, one.trace.steps) == (other.trace.messages, other.trace.steps)


def test_a_parquet_file_cut_short_is_an_error(logs, tmp_path):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1" + b"\x00" * 100)
    assert not chat_rows.sniff(path.read_bytes(), path)
    with pytest.raises(SessionError, match="is not Parquet"):
        list(chat_rows.read(path, FileReport(str(path))))


def test_a_call_without_its_result_makes_the_later_prompts_inexact(tmp_path, read_file):
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    other = {"id": "c2", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "user", "content": "never mind"},
        {"role": "assistant", "content": "", "tool_calls": [other]},
        {"role": "tool", "content": "out", "tool_call_id": "c2"},
        {"role": "assistant", "content": "done"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}))
    (session,), _ = read_file(chat_rows, path)
    assert [step.prefix_reason for step in session.trace.steps] == ["", "missing_result", "missing_result"]


def test_a_null_that_parquet_put_into_arguments_is_not_the_models(tmp_path, read_file):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    calls = [
        {"id": "c1", "function": {"name": "bash", "arguments": {"command": "ls"}}},
        {"id": "c2", "function": {"name": "view", "arguments": {"path": "a.py"}}},
    ]
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist([{"instance_id": "i", "messages": messages}]), path)
    (session,), _ = read_file(chat_rows, path)
    called = session.trace.messages[session.trace.steps[0].action].tool_calls
    assert [call.arguments for call in called] == [{"command": "ls"}, {"path": "a.py"}]


def test_a_call_in_the_form_of_before_there_were_several_has_its_result(tmp_path, read_file):
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "function_call": {"name": "ls", "arguments": '{"path": "."}'}},
        {"role": "function", "name": "ls", "content": "a.py"},
        {"role": "assistant", "content": "done"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}))
    (session,), _ = read_file(chat_rows, path)
    first, _ = session.trace.steps
    assert session.trace.messages[first.action].tool_calls[0].arguments == {"path": "."}
    assert [session.trace.messages[at].content for at in first.results] == ["a.py"]


def test_an_image_placeholder_makes_later_prompts_inexact(tmp_path, read_file):
    seen = [{"type": "text", "text": "like this"}, {"type": "image_url", "image_url": {"url": "data:"}}]
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "how?"},
        {"role": "user", "content": seen},
        {"role": "assistant", "content": "done"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": messages}))
    (session,), _ = read_file(chat_rows, path)
    assert [step.prefix_reason for step in session.trace.steps] == ["", "image_left_out"]


def test_a_message_of_a_role_that_is_none_is_counted_without_the_speakers_name(tmp_path, read_file):
    messages = [
        {"from": "human", "value": "go"},
        {"from": "gpt", "value": "run it"},
        {"from": "human", "value": "x\n[Command finished with exit code 2]"},
        {"from": "Alice Smith alice@corp.example", "value": "hm", "tool_calls": [{"function": {"name": "ls"}}]},
        {"from": "gpt", "value": "done"},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"conversations": messages}))
    (session,), report = read_file(chat_rows, path)
    assert report.unknown_types == {"role of a message": 1}
    first, last = session.trace.steps
    assert session.flags[first.results[0]].exit_code == 2  # its calls are not those of a form with results
    assert not last.prefix_exact


def test_calls_and_results_in_the_blocks_of_a_message_are_read(logs, read_file):
    (session,), report = read_file(chat_rows, logs / "chat_rows/anthropic_blocks.jsonl")
    messages = session.trace.messages
    first, last = session.trace.steps
    assert [(call.call_id, call.arguments) for call in messages[first.action].tool_calls] == [
        ("a", {"command": "wc -l rows.csv"}),
        ("b", {"command": "wc -l row.csv"}),
    ]
    assert (messages[first.action].reasoning_content, first.reasoning_status) == ("Count them.", "plain")
    assert [messages[at].content for at in first.results] == ["7 rows.csv", "wc: row.csv: No such file"]
    assert [flag.is_error for flag in session.flags.values()] == [True]
    assert [one.content for one in prompt_of(session.trace, last)][-1] == "Be brief."
    assert messages[0].content == "You count rows."
    assert report.counts["empty_actions"] == 0


def test_the_system_prompt_of_a_row_is_read_once(logs, read_file, tmp_path):
    row = json.loads((logs / "chat_rows/anthropic_blocks.jsonl").read_text())
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row, "messages": [{"role": "system", "content": "Count."}, *row["messages"]]}))
    (session,), _ = read_file(chat_rows, path)
    assert [one.content for one in session.trace.messages if one.role == "system"] == ["Count."]


@pytest.mark.parametrize("result", [
    "head: illegal option -- P\n[exit code: 1]", "head: illegal option -- P\nExit status 1",
    '{"returncode": 1, "stdout": "", "stderr": "head: illegal option -- P"}',
])  # fmt: skip
def test_the_exit_code_of_a_command_is_read_from_its_result(read_file, tmp_path, result):
    call = {"id": "a", "type": "function", "function": {"name": "shell", "arguments": '{"command": "head -P x"}'}}
    rows = [
        {"role": "user", "content": "Clean up."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": result},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": rows}))
    (session,), _ = read_file(chat_rows, path)
    assert [flag.exit_code for flag in session.flags.values()] == [1]
    assert [site.kind for step in find_errors(session).steps for site in step.error_sites] == ["usage_error"]


def test_thinking_beside_the_blocks_of_a_message_is_kept(logs, read_file, tmp_path):
    row = json.loads((logs / "chat_rows/anthropic_blocks.jsonl").read_text())
    call = row["messages"][1]
    del call["content"][0]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**row, "messages": [row["messages"][0], {**call, "reasoning_content": "Count."}]}))
    (session,), _ = read_file(chat_rows, path)
    assert session.trace.messages[-1].reasoning_content == "Count."
    assert session.trace.steps[0].reasoning_status == "plain"
