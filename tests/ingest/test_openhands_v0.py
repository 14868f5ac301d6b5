"""OpenHands v0 event lists: resolver rows, event lists with tool metadata, event stores."""

from __future__ import annotations

import json

from composer_hub.ingest.readers import openhands_v0
from composer_hub.records import prompt_of


def test_resolver_rows_have_the_counts_of_their_histories(samples, read_file):
    path = samples / "openhands" / "v0-resolver-output.jsonl"
    # Counted from the raw lines: row 1 has 8 events (1 message, 3 run/run_ipython with an observation each, 1 finish),
    # row 2 has 44 (1 message, 21 with an observation each, 1 finish). No event carries an id or tool metadata.
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    acts = [sum("action" in event for event in row["history"]) - 1 for row in rows]
    seen = [sum("observation" in event for event in row["history"]) for row in rows]
    assert (acts, seen) == ([4, 22], [3, 21])
    sessions, report = read_file(openhands_v0, path)
    assert [len(session.trace.steps) for session in sessions] == acts
    assert [sum(len(step.results) for step in session.trace.steps) for session in sessions] == seen
    assert report.counts["dangling_calls"] == 2  # finish brings nothing back
    for session in sessions:
        assert session.trace.repository == "neubig/pr-viewer"
        assert session.trace.resolved is None  # `success` there is the model's own opinion
        assert session.trace.system_prompt_source == "synthetic"
        assert {step.prefix_reason for step in session.trace.steps} == {"action_text_lost"}


def test_exit_codes_of_old_and_new_events_are_typed(samples, logs, read_file):
    sessions, _ = read_file(openhands_v0, samples / "openhands" / "v0-resolver-output.jsonl")
    codes = [[flag.exit_code for flag in session.flags.values()] for session in sessions]
    assert codes == [[0, 0], [0]]
    (session,), _ = read_file(openhands_v0, logs / "openhands_v0/openhands_v0_events.json")
    assert [flag.exit_code for flag in session.flags.values() if flag.exit_code is not None] == [0, 2]


def test_calls_of_one_response_are_one_step_as_the_model_wrote_it(logs, read_file):
    (session,), report = read_file(openhands_v0, logs / "openhands_v0/openhands_v0_events.json")
    first = session.trace.steps[0]
    action = session.trace.messages[first.action]
    assert (action.content, [call.call_id for call in action.tool_calls]) == ("I look.", ["v1", "v2"])
    assert [session.trace.messages[index].tool_call_id for index in first.results] == ["v1", "v2"]
    assert report.counts["merged"] == 1
    assert session.trace.tools_source == "recorded"
    assert session.trace.model == "claude-3-5-sonnet-20241022"


def test_an_error_observation_is_flagged_and_reads_as_the_memory_shows_it(logs, read_file):
    (session,), _ = read_file(openhands_v0, logs / "openhands_v0/openhands_v0_events.json")
    (error,) = (index for index, flag in session.flags.items() if flag.is_error)
    assert session.flags[error].status == "failed"
    text = session.trace.messages[error].content
    assert text == "File not found: /w/a\n[Error occurred in processing last action]"


def test_a_condensation_takes_events_out_of_later_prompts_and_puts_its_summary_in(logs, read_file):
    (session,), report = read_file(openhands_v0, logs / "openhands_v0/openhands_v0_events.json")
    before, after = (
        [m.content for m in prompt_of(session.trace, step)] for step in (session.trace.steps[1], session.trace.steps[2])
    )
    assert "I look." in before
    assert "I look." not in after
    assert after[2] == "I listed the files."
    assert report.counts["boundaries"] == 1


def test_an_event_store_is_read_once_from_its_newest_file(logs, read_file, tmp_path):
    folder = tmp_path / "session-1" / "events"
    folder.mkdir(parents=True)
    for number, event in enumerate(json.loads((logs / "openhands_v0/openhands_v0_events.json").read_text())):
        (folder / f"{number}.json").write_text(json.dumps(event))
    (session,), _ = read_file(openhands_v0, folder / "12.json")
    assert len(session.trace.steps) == 3
    assert session.trace.session_id == "session-1"
    assert read_file(openhands_v0, folder / "9.json")[0] == []
    assert openhands_v0.sniff((folder / "4.json").read_bytes(), folder / "4.json")


def test_without_metadata_the_cause_ties_an_observation_to_its_action(read_file, tmp_path):
    def act(number, command):
        return {"id": number, "source": "agent", "action": "run", "args": {"command": command, "thought": ""}}

    def seen(number, cause):
        extras = {"metadata": {"exit_code": cause}}
        return {"id": number, "source": "agent", "cause": cause, "observation": "run", "content": "x", "extras": extras}

    path = tmp_path / "events.json"
    ask = {"id": 0, "source": "user", "action": "message", "args": {"content": "go"}}
    path.write_text(json.dumps([ask, act(1, "a"), act(2, "b"), seen(3, 2), seen(4, 1)]))
    (session,), _ = read_file(openhands_v0, path)
    codes = [[session.flags[index].exit_code for index in step.results] for step in session.trace.steps]
    assert codes == [[1], [2]]


def test_the_verdict_of_a_benchmark_is_kept(logs, read_file, tmp_path):
    events = json.loads((logs / "openhands_v0/openhands_v0_events.json").read_text())
    path = tmp_path / "output.jsonl"
    row = {"instance_id": "acme__app-1", "history": events, "test_result": {"report": {"resolved": True}}}
    path.write_text(json.dumps(row) + "\n")
    (session,), _ = read_file(openhands_v0, path)
    assert session.trace.resolved is True
    assert session.trace.session_id.startswith("acme__app-1-")


def test_a_history_of_pairs_is_read_like_one_of_events(read_file, tmp_path):
    events = [
        {"source": "user", "action": "message", "args": {"content": "go"}},
        {"observation": "null", "content": "", "extras": {}},
        {"source": "agent", "action": "run", "args": {"command": "ls", "thought": "I look."}},
        {"observation": "run", "content": "a.py", "extras": {"exit_code": 0}},
    ]
    flat, pairs = tmp_path / "flat.jsonl", tmp_path / "pairs.jsonl"
    flat.write_text(json.dumps({"instance_id": "i", "history": events}))
    pairs.write_text(json.dumps({"instance_id": "i", "history": [events[:2], events[2:]]}))
    assert openhands_v0.sniff(pairs.read_bytes(), pairs)
    (one,), _ = read_file(openhands_v0, flat)
    (other,), _ = read_file(openhands_v0, pairs)
    assert (one.trace, one.flags) == (other.trace, other.flags)
    assert len(one.trace.steps[0].results) == 1
