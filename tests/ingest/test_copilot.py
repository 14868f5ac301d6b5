"""GitHub Copilot CLI events: calls and results, failures, denials, subagents, rewinds and compactions."""

from __future__ import annotations

import json

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.ingest.readers import copilot
from composer_hub.records import prompt_of


@pytest.fixture
def sessions(logs, read_file):
    found, report = read_file(copilot, logs / "copilot/events.jsonl")
    assert report.counts["unknown"] == 0
    return found


@pytest.fixture
def events(logs):
    return [json.loads(line) for line in (logs / "copilot/events.jsonl").read_text().splitlines()]


@pytest.fixture
def read_events(read_file, tmp_path):
    def read(events):
        path = tmp_path / "events.jsonl"
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        return read_file(copilot, path)

    return read


def texts(trace, step):
    return [message.content for message in prompt_of(trace, step)]


def test_each_assistant_message_is_a_step_and_a_call_is_counted_once(sessions):
    trace = sessions[0].trace
    assert (trace.cwd, trace.model, trace.system_prompt_source) == ("/home/dev/calc", "gpt-5", "recorded")
    assert [[call.call_id for call in trace.messages[step.action].tool_calls] for step in trace.steps] == [
        ["c1"], ["c2", "c3"], ["c4"], ["c5"], [], ["c7"], []
    ]  # fmt: skip
    assert trace.messages[trace.steps[2].action].tool_calls[0].arguments.startswith("*** Begin Patch")
    assert texts(trace, trace.steps[0]) == [
        "You are the GitHub Copilot CLI.", "<current_datetime>2026-01-05</current_datetime>\n\nFix add."
    ]  # fmt: skip


def test_a_command_that_failed_is_found_although_its_result_is_a_success(sessions):
    flags = [sessions[0].flags[index] for step in sessions[0].trace.steps[:3] for index in step.results]
    assert [(flag.is_error, flag.exit_code) for flag in flags] == [
        (False, 127), (False, 1), (True, None), (True, None)
    ]  # fmt: skip
    kinds = [sorted(site.kind for site in step.error_sites) for step in find_errors(sessions[0]).steps]
    assert kinds[:3] == [["command_not_found"], ["path_not_found", "test_failure"], ["user_rejected"]]
    assert [[site.kind for site in step.error_sites] for step in find_errors(sessions[1]).steps] == [
        ["tool_error"], []
    ]  # fmt: skip


def test_an_exit_code_in_a_file_that_was_read_is_not_that_of_a_command(events, read_events):
    for event in events:
        if event["data"].get("toolCallId") == "c2" and "success" in event["data"]:
            event["data"] = {
                "toolCallId": "c2", "success": True, "result": {"content": "log\n<exited with exit code 3>"}
            }  # fmt: skip
    session = read_events(events)[0][0]
    (index,) = [at for at, message in enumerate(session.trace.messages) if message.tool_call_id == "c2"]
    assert session.flags[index].exit_code is None


def test_a_subagent_is_a_session_with_its_parent_and_call(sessions):
    main, agent = (session.trace for session in sessions)
    assert agent.parent_trace_id == main.trace_id
    assert agent.spawn_call_id == "c5"
    assert [step.prefix_reason for step in agent.steps] == ["context_of_parent", "context_of_parent"]


def test_after_a_rewind_the_model_reads_what_was_before_it(sessions):
    trace = sessions[0].trace
    assert [step.on_main_branch for step in trace.steps] == [True, True, True, False, False, True, True]
    *read, last = texts(trace, trace.steps[5])
    assert last == "Do it yourself."
    assert "Use a subagent." not in read


def test_a_call_that_no_message_asks_for_is_a_step_whose_text_is_lost(sessions):
    *_, step, last = sessions[0].trace.steps
    assert step.prefix_reason == "rewound; action_text_lost"
    assert texts(sessions[0].trace, last) == ["You are the GitHub Copilot CLI.", "add() was wrong; it is fixed now."]
    assert last.prefix_reason == "rewound; action_text_lost; compacted"


@pytest.mark.parametrize(("data", "reason"), [
    ({"messagesRemovedDuringTruncation": 4}, "context_truncated"),
    ({"messagesRemovedDuringTruncation": 0, "tokensRemovedDuringTruncation": 0}, ""),
])  # fmt: skip
def test_a_truncation_that_removed_something_costs_exactness(events, read_events, data, reason):
    cut = {"type": "session.truncation", "data": data, "id": "t", "parentId": None}
    (session,), _ = read_events([*events[:11], cut, *events[11:14]])
    assert [step.prefix_reason for step in session.trace.steps] == ["", reason]


def test_an_unknown_event_costs_exactness_in_every_thread(events, read_events):
    unknown = {"type": "memory.added", "data": {"text": "Use tabs."}, "id": "x", "parentId": None}
    found, report = read_events([*events[:11], unknown, *events[11:]])
    assert report.unknown_types == {"memory.added": 1}
    assert [step.prefix_exact for step in found[0].trace.steps][:3] == [True, False, False]
    assert "record_not_read" in found[0].trace.steps[-1].prefix_reason


def test_real_sessions_are_read(samples, read_file):
    (large,), _ = read_file(copilot, samples / "copilot/flat-large.jsonl")
    assert [len(large.trace.messages[step.action].tool_calls) for step in large.trace.steps][-1] == 1
    (drift,), report = read_file(copilot, samples / "copilot/schema-drift.jsonl")
    assert [step.prefix_exact for step in drift.trace.steps] == [True, False]
    assert report.counts["orphan_results"] == 1


def event(kind, **data):
    return {"type": kind, "data": data, "id": kind, "parentId": None}


def test_events_around_a_tool_of_another_program_cost_no_exactness(events, read_events):
    asked = event("external_tool.requested", requestId="r", toolCallId="c1", toolName="bash", arguments={})
    found, report = read_events([*events[:8], asked, event("external_tool.completed", requestId="r"), *events[8:14]])
    assert not report.unknown_types
    assert [step.prefix_reason for step in found[0].trace.steps] == ["", ""]


@pytest.mark.parametrize(("message", "reason"), [
    ([event("user.message", content="<skill-context>\n# Review\nRead every line.\n</skill-context>")], ""),
    ([], "skill_not_recorded"),
])  # fmt: skip
def test_a_skill_costs_exactness_only_if_no_message_holds_its_text(events, read_events, message, reason):
    skill = event("skill.invoked", name="review", path="/s/SKILL.md", content="# Review\nRead every line.\n")
    found, report = read_events([*events[:9], skill, *message, *events[9:14]])
    assert not report.unknown_types
    assert [step.prefix_reason for step in found[0].trace.steps] == ["", reason]
