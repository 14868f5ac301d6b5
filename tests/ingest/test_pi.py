"""Pi sessions: a real version 1 file against counts taken by hand, and small files for the tree of version 3."""

from __future__ import annotations

import json

from composer_hub.records import prompt_of
from composer_hub.session import ResultFlag


def test_a_real_session_gives_the_counts_taken_by_hand(samples, read):
    # Counted from the raw JSON: 453 assistant entries, 14 of them without text or call (aborted at once), so 439
    # actions; 391 calls, 373 results, 18 calls unanswered, all in aborted or failed messages; 19 results with isError;
    # 88 user messages; 8 actions that were aborted (7) or failed (1); 891 messages before the last action when those
    # that are empty, aborted or failed are left out.
    (session,), report = read(samples / "pi/pi-large-session.jsonl")
    trace = session.trace
    assert report.counts["lines"] == 1019
    assert report.counts["empty_actions"] == 14
    assert len(trace.steps) == 439
    assert sum(len(trace.messages[step.action].tool_calls) for step in trace.steps) == 391
    assert sum(len(step.results) for step in trace.steps) == 373
    assert report.counts["dangling_calls"] == 18
    assert sum(flag.is_error is True for flag in session.flags.values()) == 19
    assert sum(flag.status in ("interrupted", "provider_error") for flag in session.flags.values()) == 8
    assert sum(message.role == "user" for message in trace.messages) == 88
    assert sum(step.reasoning_status == "plain" for step in trace.steps) == 1
    assert len(prompt_of(trace, trace.steps[-1])) == 1 + 891
    assert (trace.model, trace.family) == ("claude-sonnet-4-5", "anthropic")


def test_a_compaction_keeps_the_entries_from_the_one_it_names(logs, read):
    (session,), report = read(logs / "pi/v3_tree.jsonl")
    trace = session.trace
    texts = [message.content for message in prompt_of(trace, trace.steps[3])][1:]
    assert "PI_SUMMARY" in texts[0]
    assert texts[1:] == ["PI_KEPT question", "PI_KEPT answer", "go on"]
    assert report.counts["boundaries"] == 1


def test_a_version_1_compaction_points_by_position(logs, read):
    (session,), _ = read(logs / "pi/v1_compaction.jsonl")
    texts = [message.content for message in prompt_of(session.trace, session.trace.steps[-1])][1:]
    assert "PI_SUMMARY" in texts[0]
    assert texts[1:] == ["PI_KEPT question", "PI_KEPT answer", "next"]


def test_a_branch_carries_its_summary_and_not_its_messages(logs, read):
    (session,), _ = read(logs / "pi/v3_tree.jsonl")
    trace = session.trace
    assert [step.on_main_branch for step in trace.steps] == [True, True, True, False, False, True]
    texts = [message.content for message in prompt_of(trace, trace.steps[5])]
    assert "PI_BRANCH" in texts[-2]
    assert "on the main way" not in texts


def test_an_aborted_message_is_a_flagged_step_that_no_later_prompt_shows(logs, read):
    (session,), _ = read(logs / "pi/v3_tree.jsonl")
    trace = session.trace
    aborted = trace.steps[3]
    assert session.flags[aborted.action] == ResultFlag(status="interrupted", detail="Request was aborted")
    assert all(call.call_id != "c2" for m in prompt_of(trace, trace.steps[4]) for call in m.tool_calls)


def test_a_command_of_the_user_is_read_as_its_words(logs, read):
    (session,), _ = read(logs / "pi/v3_tree.jsonl")
    assert prompt_of(session.trace, session.trace.steps[4])[-1].content == "Ran `make`\n```\nok\n```"


def test_an_error_result_is_flagged_with_its_exit_code(logs, read):
    (session,), _ = read(logs / "pi/v3_tree.jsonl")
    result = session.trace.steps[0].results[0]
    assert session.flags[result] == ResultFlag(is_error=True, exit_code=1)
    assert session.trace.messages[2].reasoning_content == "Let me see."


def test_a_providers_error_is_kept_whole_so_that_no_secret_in_it_is_cut_in_two(tmp_path, read):
    said_so = "The provider refused, and for many reasons. " * 5 + "key sk-proj-" + "a1B2" * 20
    entries = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01", "cwd": "/r"},
        {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": "go"}},
        {
            "type": "message",
            "id": "2",
            "parentId": "1",
            "message": {
                "role": "assistant",
                "content": [{"type": "text", "text": "I"}],
                "stopReason": "error",
                "errorMessage": said_so,
            },
        },
    ]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, entries)))
    (session,), _ = read(path)
    assert [flag.detail for flag in session.flags.values()] == [said_so]


def test_a_fork_that_records_its_system_prompt_has_it_in_every_prompt(tmp_path, read):
    said = {"role": "user", "content": "go"}
    done = {"role": "assistant", "content": [{"type": "text", "text": "done"}], "model": "m", "stopReason": "stop"}
    entries = [
        {"type": "title", "title": "A title"},
        {"type": "session", "version": 3, "id": "s1", "timestamp": "2026-08-01T00:00:00Z", "cwd": "/repo"},
        {"type": "session_init", "id": "a", "parentId": None, "systemPrompt": "You are omp.", "task": "go"},
        {"type": "credential_pin", "id": "b", "parentId": "a", "provider": "anthropic", "hash": "0"},
        {"type": "message", "id": "c", "parentId": "b", "timestamp": "2026-08-01T00:00:01Z", "message": said},
        {"type": "title_change", "id": "d", "parentId": "c", "title": "Another", "source": "auto"},
        {"type": "message", "id": "e", "parentId": "d", "timestamp": "2026-08-01T00:00:02Z", "message": done},
    ]  # fmt: skip
    path = tmp_path / "omp.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (session,), report = read(path)
    (step,) = session.trace.steps
    assert [message.content for message in prompt_of(session.trace, step)] == ["You are omp.", "go"]
    assert (session.trace.system_prompt_source, step.prefix_exact) == ("recorded", True)
    assert not report.unknown_types


def test_a_system_prompt_in_blocks_is_one_text(tmp_path, read):
    blocks = {"type": "session_init", "id": "a", "parentId": None, "systemPrompt": ["One.", "Two."]}
    done = {"role": "assistant", "content": "done", "stopReason": "stop"}
    entries = [
        {"type": "session", "version": 3, "id": "s1", "cwd": "/repo"},
        blocks,
        {"type": "message", "id": "c", "parentId": "a", "timestamp": "2026-08-01T00:00:01Z", "message": done},
    ]
    path = tmp_path / "omp.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    (session,), _ = read(path)
    assert session.trace.messages[0].content == "One.\n\nTwo."
