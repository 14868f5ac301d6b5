"""OpenHands v1 events: typed errors, parallel calls, condensations, folders of event files."""

from __future__ import annotations

import json

from composer_hub.ingest.readers import openhands_v1
from composer_hub.records import prompt_of


def test_the_real_log_has_two_steps_and_one_result_without_its_call(samples, read_file):
    path = samples / "openhands" / "v1-events.jsonl"
    # Counted from the raw lines: 10 events = 5 state updates, 2 ActionEvents of 2 responses, 3 ObservationEvents, one
    # of which answers an action that the log does not hold. The log begins after the system prompt.
    events = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = [event["kind"] for event in events]
    assert (len(kinds), kinds.count("ActionEvent"), kinds.count("ObservationEvent")) == (10, 2, 3)
    (session,), report = read_file(openhands_v1, path)
    assert len(session.trace.steps) == 2
    assert sum(len(step.results) for step in session.trace.steps) == 2
    assert report.counts["orphan_results"] == 1
    assert [(flag.is_error, flag.exit_code) for flag in session.flags.values()] == [(True, None), (False, 1)]
    reasons = [step.prefix_reason for step in session.trace.steps]
    assert reasons == ["log_starts_late", "log_starts_late; orphan_result"]
    assert session.trace.model == "litellm_proxy/minimax-m2.7"
    assert session.trace.family == "minimax"


def test_thinking_in_the_text_moves_to_where_thinking_belongs(samples, read_file):
    (session,), _ = read_file(openhands_v1, samples / "openhands" / "v1-events.jsonl")
    for step in session.trace.steps:
        action = session.trace.messages[step.action]
        assert "<think>" not in action.content
        assert action.reasoning_content
        assert step.reasoning_status == "plain"


def test_calls_of_one_response_are_one_step_and_results_find_their_calls(logs, read_file):
    (session,), report = read_file(openhands_v1, logs / "openhands_v1/openhands_v1_events.jsonl")
    names = [[call.name for call in session.trace.messages[step.action].tool_calls] for step in session.trace.steps]
    assert names == [["terminal", "file_editor"], ["no_such_tool"], ["terminal"], ["terminal"], []]
    assert [len(step.results) for step in session.trace.steps] == [2, 1, 1, 1, 0]
    assert report.counts["merged"] == 1
    assert session.keys[0] == "openhands_v1:r1"


def test_errors_and_rejections_are_typed(logs, read_file):
    (session,), _ = read_file(openhands_v1, logs / "openhands_v1/openhands_v1_events.jsonl")
    told = [(flag.is_error, flag.exit_code, flag.status, flag.detail) for flag in session.flags.values()]
    assert told == [
        (False, 0, "", ""),
        (True, None, "failed", "agent_error agent_action"),
        (True, None, "failed", "agent_error"),
        (True, None, "denied", "user"),
        (True, 2, "failed", ""),
    ]


def test_arguments_that_are_not_json_stay_the_model_s_text(logs, read_file):
    (session,), _ = read_file(openhands_v1, logs / "openhands_v1/openhands_v1_events.jsonl")
    (call,) = session.trace.messages[session.trace.steps[1].action].tool_calls
    assert call.arguments == "{bad json"


def test_a_result_reads_as_the_sdk_shows_it_to_the_model(logs, read_file):
    (session,), _ = read_file(openhands_v1, logs / "openhands_v1/openhands_v1_events.jsonl")
    texts = [message.content for message in session.trace.messages if message.role == "tool"]
    assert texts[0] == "a b\n[Current working directory: /w]\n[Command finished with exit code 0]"
    assert texts[-1].startswith("[An error occurred during execution.]\nmake: *** No rule")


def test_a_condensation_is_applied_to_the_prompt(logs, read_file):
    (session,), report = read_file(openhands_v1, logs / "openhands_v1/openhands_v1_events.jsonl")
    texts = [message.content for message in prompt_of(session.trace, session.trace.steps[3])]
    assert texts[2] == "I listed the files."
    assert "Two calls." not in texts
    assert "Clean." in texts
    assert all(step.prefix_exact for step in session.trace.steps[:-1])
    assert report.counts["boundaries"] == 1


def test_unknown_kinds_are_counted_and_the_system_prompt_brings_the_tools(logs, read_file):
    (session,), report = read_file(openhands_v1, logs / "openhands_v1/openhands_v1_events.jsonl")
    assert report.unknown_types == {"SomethingNew": 1}
    assert session.trace.steps[-1].prefix_reason == "record_not_read"
    assert session.trace.messages[0].content == "You are OpenHands.\nToday is Monday."
    assert [tool["function"]["name"] for tool in session.trace.tools] == ["execute_bash", "finish"]
    assert [step.reasoning_status for step in session.trace.steps] == [
        "plain",
        "encrypted",
        "absent",
        "absent",
        "plain",
    ]


def test_a_folder_of_event_files_is_one_conversation(logs, read_file, tmp_path):
    folder = tmp_path / "conversation-7" / "events"
    folder.mkdir(parents=True)
    for number, line in enumerate((logs / "openhands_v1/openhands_v1_events.jsonl").read_text().splitlines()):
        (folder / f"event-{number:05d}-{number:08x}-aaaa.json").write_text(line)
    *others, newest = sorted(folder.iterdir())
    (session,), _ = read_file(openhands_v1, newest)
    assert len(session.trace.steps) == 5
    assert session.trace.session_id == "conversation-7"
    assert [read_file(openhands_v1, other)[0] for other in others] == [[]] * len(others)


def _action(number, response, call, command):
    call = {"id": call, "name": "terminal", "arguments": json.dumps({"command": command})}
    told = {"tool_name": "terminal", "tool_call_id": call["id"], "tool_call": call, "llm_response_id": response}
    return {"kind": "ActionEvent", "id": f"e{number}", "source": "agent", "thought": [], **told}


def test_a_call_that_is_refused_at_once_stays_in_one_step_with_its_siblings(read_file, tmp_path):
    refused = {"kind": "AgentErrorEvent", "id": "e1", "source": "agent", "tool_name": "terminal", "tool_call_id": "c1"}
    state = {"kind": "ConversationStateUpdateEvent", "id": "e3", "source": "environment", "key": "stats", "value": {}}
    seen = {"content": [{"type": "text", "text": "ok"}], "exit_code": 0, "is_error": False}
    answer = {"kind": "ObservationEvent", "source": "environment", "tool_name": "terminal", "observation": seen}
    events = [
        {"kind": "MessageEvent", "id": "m", "source": "user", "llm_message": {"role": "user", "content": "go"}},
        _action(0, "r1", "c1", "ls"),
        {**refused, "error": "Error validating args"},
        _action(2, "r1", "c2", "pwd"),
        state,
        _action(4, "r1", "c3", "id"),
        {**answer, "id": "e5", "tool_call_id": "c2"},
        {**answer, "id": "e6", "tool_call_id": "c3"},
        _action(7, "r2", "c4", "date"),
    ]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, events)))
    (session,), report = read_file(openhands_v1, path)
    first, second = session.trace.steps
    assert [call.call_id for call in session.trace.messages[first.action].tool_calls] == ["c1", "c2", "c3"]
    assert [session.trace.messages[at].tool_call_id for at in first.results] == ["c1", "c2", "c3"]
    assert [m.role for m in prompt_of(session.trace, second)] == ["system", "user", "assistant", "tool", "tool", "tool"]
    assert report.counts["merged"] == 2


def test_actions_without_any_id_are_a_step_each(read_file, tmp_path):
    actions = [{"kind": "ActionEvent", "tool_call": {"id": f"c{n}", "name": "terminal"}} for n in range(2)]
    state = {"kind": "ConversationStateUpdateEvent", "id": "e", "source": "environment", "key": "stats", "value": {}}
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(map(json.dumps, [actions[0], state, actions[1]])))
    (session,), _ = read_file(openhands_v1, path)
    assert len(session.trace.steps) == 2
