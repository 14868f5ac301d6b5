"""Sessions of Hermes, Goose and Grok CLI as files; their databases are in test_databases.py."""

from __future__ import annotations

import json

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import goose, grok, hermes
from composer_hub.ingest.reading import Reading


def shown(trace, step):
    return [trace.messages[index].content for start, stop in step.prompt for index in range(start, stop)]


def kinds_of(session):
    return [[site.kind for site in step.error_sites] for step in find_errors(session).steps]


def rewritten(source, target, change):
    """Copy lines of JSON after a change to all of them."""
    records = [json.loads(line) for line in source.read_text().splitlines()]
    change(records)
    target.write_text("\n".join(map(json.dumps, records)))
    return target


def test_hermes_has_its_system_prompt_and_failures_by_the_json_of_results(logs, read_file):
    (session,), _ = read_file(hermes, logs / "hermes/export.jsonl")
    trace = session.trace
    assert (trace.system_prompt_source, trace.cwd, trace.model) == ("recorded", "/w/shop", "acme/coder-1")
    assert all(step.prefix_exact for step in trace.steps)
    assert kinds_of(session) == [["test_failure", "path_not_found"], ["command_not_found", "tool_not_found"], [], []]
    assert trace.messages[trace.steps[1].results[0]].content.startswith('{"output"')  # as the model read it


def test_an_export_of_hermes_has_the_keys_of_its_database(samples, read):
    folder = samples / "hermes" / "generated-0.19.0"
    exported, stored = ({key for session in read(folder / name)[0] for key in session.keys}
                        for name in ("export.jsonl", "state.db"))  # fmt: skip
    assert exported == stored
    assert all(key.startswith("hermes:2026") for key in exported)


def session_file(folder, name, messages):
    path = folder / f"session_{name}.json"
    path.write_text(json.dumps({"session_id": name, "model": "m", "platform": "cli", "session_start": "2026",
                                "messages": messages}))  # fmt: skip
    return path


def test_numbers_of_hermes_messages_name_nothing_without_their_session(tmp_path):
    for name in ("one", "two"):
        session_file(tmp_path, name, [{"id": 1, "role": "user", "content": "Hi"},
                                      {"id": 2, "role": "assistant", "content": f"I am {name}."}])  # fmt: skip
    assert [session.keys for session in Reading([tmp_path])] == [("",), ("",)]


def test_a_copy_is_one_although_only_some_of_its_steps_have_keys(tmp_path):
    messages = [{"id": 1, "role": "user", "content": "Hi"},
                {"id": 2, "role": "assistant", "content": "Yes?", "session_id": "s"},
                {"role": "assistant", "content": "I wait.", "session_id": "s"}]  # fmt: skip
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        session_file(folder, "s", messages)
    reading = Reading([tmp_path])
    assert [bool(key) for session in reading for key in session.keys] == [True, False]
    assert reading.report.counts["duplicate_traces"] == 1


def test_what_hermes_rewound_is_a_branch(logs, read_file, tmp_path):
    def rewind(records):
        for message in records[0]["messages"]:
            message["active"] = int(message["id"] not in (5, 6, 7))

    path = rewritten(logs / "hermes/export.jsonl", tmp_path / "export.jsonl", rewind)
    (session,), _ = read_file(hermes, path)
    steps = session.trace.steps
    assert [step.on_main_branch for step in steps] == [True, False, True, True]
    assert [step.prefix_reason for step in steps] == ["", "", "rewound", "rewound"]
    assert not any("ruf: command not found" in text for text in shown(session.trace, steps[2]))


def test_what_hermes_compacted_is_not_in_later_prompts(logs, read_file, tmp_path):
    def compact(records):
        for message in records[0]["messages"][:4]:
            message |= {"active": 0, "compacted": 1}

    path = rewritten(logs / "hermes/export.jsonl", tmp_path / "export.jsonl", compact)
    (session,), _ = read_file(hermes, path)
    steps = session.trace.steps
    assert [step.on_main_branch for step in steps] == [True] * 4
    assert (steps[0].prefix_reason, steps[1].prefix_reason) == ("", "compacted")
    assert shown(session.trace, steps[1]) == ["You are Hermes Agent."]


def test_a_message_of_an_unknown_role_costs_hermes_prompts(logs, read_file, tmp_path):
    path = rewritten(
        logs / "hermes/export.jsonl",
        tmp_path / "export.jsonl",
        lambda records: records[0]["messages"].insert(1, {"role": "oracle", "content": "Read by the model."}),
    )
    (session,), report = read_file(hermes, path)
    assert report.counts["unknown"] == 1
    assert all(step.prefix_reason == "record_not_read" for step in session.trace.steps)


def test_goose_reads_exit_codes_and_errors_whatever_the_status(logs, read_file):
    (session,), _ = read_file(goose, logs / "goose/20260708_1.jsonl")
    assert kinds_of(session) == [["test_failure", "path_not_found"], [], []]
    assert session.trace.steps[0].reasoning_status == "plain"


def test_goose_prompts_leave_out_what_a_compaction_hid(logs, read_file):
    (session,), _ = read_file(goose, logs / "goose/20260708_1.jsonl")
    step = session.trace.steps[2]
    assert step.prefix_reason == "compacted"
    assert "The total is wrong." not in shown(session.trace, step)
    assert shown(session.trace, step)[-1] == "Summary: test_total fails."


def test_chunks_of_a_printed_message_of_goose_are_one_step(logs, read_file):
    (session,), report = read_file(goose, logs / "goose/stream.jsonl")
    trace = session.trace
    assert [trace.messages[step.action].content for step in trace.steps] == ["", "There is cart.py."]
    assert all(step.prefix_reason == "stream_log" for step in trace.steps)
    assert report.counts["unknown"] == 0


def test_a_call_that_goose_could_not_parse_costs_exactness(logs, read_file, tmp_path):
    def break_call(records):
        records[2]["content"][-1]["toolCall"] = {"status": "error", "error": "-32602: bad arguments"}

    path = rewritten(logs / "goose/20260708_1.jsonl", tmp_path / "a.jsonl", break_call)
    (session,), report = read_file(goose, path)
    assert report.unknown_types["call that did not parse"] == 1
    assert "record_not_read" in session.trace.steps[1].prefix_reason


def test_grok_is_read_with_the_facts_beside_it(logs, read_file, tmp_path):
    path = tmp_path / "s1/chat_history.jsonl"
    path.parent.mkdir()
    path.write_bytes((logs / "grok/chat_history.jsonl").read_bytes())
    summary = {"info": {"id": "g-1", "cwd": "/w/shop"}, "current_model_id": "grok-x"}
    path.with_name("summary.json").write_text(json.dumps(summary))
    (session,), report = read_file(grok, path)
    trace = session.trace
    assert (trace.session_id, trace.cwd, trace.model) == ("g-1", "/w/shop", "grok-x")
    assert [step.reasoning_status for step in trace.steps] == ["encrypted", "absent"]
    assert trace.steps[1].prefix_reason == "linear_export; provider_result_not_recorded"
    assert report.counts["unknown"] == 0
