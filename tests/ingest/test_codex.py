"""Codex rollouts: a real file against counts taken by hand, and a small one with every turn a session can take."""

from __future__ import annotations

import json

import pytest

from composer_hub.records import prompt_of
from composer_hub.session import ResultFlag


@pytest.fixture
def rollout(logs, read):
    (session,), report = read(logs / "codex/rollout-2026-06-01T10-00-00-codex-1.jsonl")
    return session, report


def test_a_real_rollout_gives_the_counts_taken_by_hand(samples, read):
    # Counted from the raw JSON: 17 runs of assistant items between token counts and outputs, which is also the number
    # of different token totals; 33 calls (32 function, 1 custom) and as many outputs; 16 assistant texts; 4 user and
    # developer messages; one exec_command_end with an exit code that is not 0; 14,659 characters of base instructions.
    (session,), report = read(samples / "codex/rollout-0.12x-a.jsonl")
    trace = session.trace
    actions = [trace.messages[step.action] for step in trace.steps]
    assert report.counts["lines"] == 180
    assert len(trace.steps) == 17
    assert sum(len(action.tool_calls) for action in actions) == 33
    assert sum(len(step.results) for step in trace.steps) == 33
    assert sum(bool(action.content) for action in actions) == 16
    assert sum(message.role == "user" for message in trace.messages) == 4
    assert sum(bool(flag.exit_code) for flag in session.flags.values()) == 1
    assert trace.system_prompt_source == "recorded"
    assert len(trace.messages[0].content) == 14659
    assert (trace.model, trace.family) == ("gpt-5.4", "openai")
    assert {step.reasoning_status for step in trace.steps} == {"encrypted"}
    assert all(step.prefix_exact for step in trace.steps)
    assert len(prompt_of(trace, trace.steps[-1])) == 1 + 4 + 16 + 33


def test_every_record_type_of_the_inventory_is_known(samples, read):
    _, report = read(samples / "schema_inventory/codex-all-record-types-0.149.jsonl")
    assert (report.counts["lines"], report.counts["boundaries"]) == (118, 6)
    assert not report.unknown_types


def test_a_run_of_items_is_one_step(rollout):
    trace = rollout[0].trace
    first = trace.messages[trace.steps[0].action]
    assert first.content == "I look around."
    assert [call.call_id for call in first.tool_calls] == ["call_a", "call_b"]


def test_arguments_that_are_not_json_stay_raw_text(rollout):
    trace = rollout[0].trace
    good, bad = trace.messages[trace.steps[0].action].tool_calls
    assert good.arguments == {"cmd": "ls"}
    assert bad.arguments == '{"cmd":"cat cart.py"'


def test_kinds_of_reasoning_are_distinguished_and_never_made_up(rollout):
    trace = rollout[0].trace
    assert [step.reasoning_status for step in trace.steps][:3] == ["encrypted", "summary", "absent"]
    assert not any(message.reasoning_content for message in trace.messages)


def test_flags_come_from_events_and_outputs(rollout):
    session = rollout[0]
    by_call = {session.trace.messages[at].tool_call_id: flag for at, flag in session.flags.items()}
    assert by_call["call_a"] == ResultFlag(exit_code=0, status="completed")
    assert by_call["call_c"] == ResultFlag(is_error=True, exit_code=1, status="failed")


def test_an_aborted_turn_is_flagged_on_its_action(rollout):
    session = rollout[0]
    aborted = session.trace.steps[4]
    assert session.trace.messages[aborted.action].tool_calls[0].call_id == "call_d"
    assert session.flags[aborted.action] == ResultFlag(status="interrupted", detail="interrupted")


def test_a_roll_back_makes_a_branch(rollout):
    session, report = rollout
    trace = session.trace
    assert [step.on_main_branch for step in trace.steps] == [True, True, True, False, True, True]
    after = [message.content for message in prompt_of(trace, trace.steps[4])]
    assert after[-2:] == ["ROLLED_BACK_ANSWER done.", "Now open the cart again"]
    assert not any("ROLLED_BACK_PROMPT" in text for text in after)
    assert report.counts["forks"] == 1


def test_a_replacement_history_is_all_that_is_read_after_a_compaction(rollout):
    trace = rollout[0].trace
    assert [m.content for m in prompt_of(trace, trace.steps[5])] == [
        "You are Codex.",
        "HANDOVER summary of the work",
        "After the compaction",
    ]
    assert trace.steps[5].prefix_exact


def test_the_repository_and_the_versions_are_kept(rollout):
    trace = rollout[0].trace
    assert trace.repository == "https://example.org/shop.git"
    assert trace.provenance["harness_version"] == "0.128.0"
    assert trace.provenance["git_commit"] == "1" * 40


def test_a_copy_of_the_history_in_a_fork_has_the_same_keys(logs, read, tmp_path):
    path = logs / "codex/rollout-2026-06-01T10-00-00-codex-1.jsonl"
    fork = tmp_path / "rollout-fork.jsonl"
    fork.write_text(path.read_text().replace('"id":"codex-1"', '"id":"codex-2","forked_from_id":"codex-1"'))
    (one,), _ = read(path)
    (two,), _ = read(fork)
    assert one.keys == two.keys
    assert one.trace.trace_id != two.trace.trace_id
    assert two.trace.provenance["forked_from"] == "codex-1"


def test_a_rollout_without_envelopes_is_also_read(tmp_path, read):
    path = tmp_path / "rollout-old.jsonl"
    records = [
        {"id": "old-1", "timestamp": "2025-06-01T00:00:00Z", "instructions": "be brief", "git": {"branch": "main"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list the files"}]},
        {
            "type": "local_shell_call",
            "call_id": "c",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"]},
        },
        {"type": "function_call_output", "call_id": "c", "output": '{"output":"a.txt","metadata":{"exit_code":0}}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a.txt"}]},
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    (session,), report = read(path)
    assert session.trace.session_id == "old-1"
    assert [m.content for m in prompt_of(session.trace, session.trace.steps[1])] == [
        "be brief",
        "list the files",
        "",
        "a.txt",
    ]
    assert not report.unknown_types


def test_what_the_provider_does_itself_is_answered_by_a_word(tmp_path, read):
    path = tmp_path / "rollout-search.jsonl"
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look it up"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "found"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "thanks"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "welcome"}]},
    ]
    path.write_text("\n".join(json.dumps({"type": "response_item", "payload": item}) for item in items))
    (session,), report = read(path)
    first, second = session.trace.steps
    assert session.trace.messages[first.action].tool_calls[0].name == "web_search"
    assert (first.prefix_exact, second.prefix_reason) == (True, "provider_result_not_recorded")
    assert report.counts["dangling_calls"] == 0
