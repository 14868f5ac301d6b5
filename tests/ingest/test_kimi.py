"""Kimi Code's wire files, and those of kimi-cli."""

from __future__ import annotations

import json

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import kimi


def shown(trace, step):
    return [trace.messages[index].content for start, stop in step.prompt for index in range(start, stop)]


def test_the_prompt_is_the_context_that_the_file_replays(logs, read_file):
    (session,), report = read_file(kimi, logs / "kimi/wire.jsonl")
    trace = session.trace
    assert (trace.system_prompt_source, trace.tools_source, trace.model) == ("recorded", "recorded", "kimi-x")
    assert shown(trace, trace.steps[0]) == ["You are Kimi Code CLI.", "Fix the total."]
    assert [call.name for call in trace.messages[trace.steps[0].action].tool_calls] == ["Bash", "Bash"]
    assert trace.steps[1].prefix_exact
    assert trace.counts["audit"]["num_steps"] == 5
    assert report.counts["unknown"] == 0


def test_after_a_compaction_the_users_words_and_the_summary_remain(logs, read_file):
    (session,), _ = read_file(kimi, logs / "kimi/wire.jsonl")
    step = session.trace.steps[2]
    assert shown(session.trace, step) == [
        "You are Kimi Code CLI.", "Fix the total.", "So far: the total is in cart.py.", "Now fix it."
    ]  # fmt: skip
    assert step.prefix_reason == "compacted"


def test_an_undo_goes_back_to_before_the_users_message(logs, read_file):
    (session,), _ = read_file(kimi, logs / "kimi/wire.jsonl")
    trace = session.trace
    assert [step.on_main_branch for step in trace.steps] == [True, True, False, False, True]
    assert shown(trace, trace.steps[4])[-1] == "Try again."
    assert "Now fix it." not in shown(trace, trace.steps[4])


def test_failures_are_found_by_exit_code_and_flag(logs, read_file):
    (session,), _ = read_file(kimi, logs / "kimi/wire.jsonl")
    kinds = [[site.kind for site in step.error_sites] for step in find_errors(session).steps]
    assert kinds == [["path_not_found"], [], ["edit_no_match"], [], []]


def test_an_older_compaction_keeps_the_newest_messages_behind_the_summary(logs, read_file, tmp_path):
    records = [json.loads(line) for line in (logs / "kimi/wire.jsonl").read_text().splitlines()]
    for record in records:
        if record["type"] == "context.apply_compaction":
            del record["keptUserMessageCount"]
            record["compactedCount"] = 4
    path = tmp_path / "wire.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    (session,), _ = read_file(kimi, path)
    assert shown(session.trace, session.trace.steps[2])[1:] == [
        "So far: the total is in cart.py.", "It is in cart.py.", "Now fix it."
    ]  # fmt: skip


def test_a_subagents_file_names_its_parent(logs, read_file, tmp_path):
    path = tmp_path / "wd/session_abc/agents/agent-0/wire.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes((logs / "kimi/wire.jsonl").read_bytes())
    (session,), _ = read_file(kimi, path)
    assert session.trace.session_id == "abc/agent-0"
    assert session.trace.parent_trace_id


def test_kimi_cli_has_steps_and_exit_codes_but_no_exact_prompt(logs, read_file):
    (session,), report = read_file(kimi, logs / "kimi/cli_wire.jsonl")
    assert [step.prefix_reason for step in session.trace.steps] == ["display_log"] * 2
    assert [flag.exit_code for flag in session.flags.values()] == [1]
    assert report.counts["unknown"] == 0
