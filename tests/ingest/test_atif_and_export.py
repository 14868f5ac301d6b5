"""ATIF in and out, STS out: what goes out comes back, and both formats take it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from composer_hub import exports
from composer_hub.ingest.readers import atif, chat_rows, openhands_v1, swe_agent
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import source_named
from composer_hub.records import ErrorSite, prompt_of

LOGS = [
    ("openhands_v1/openhands_v1_events.jsonl", "openhands_v1"),
    ("openhands_v0/openhands_v0_events.json", "openhands_v0"),
    ("swe_agent/swe_agent_1x.traj", "swe_agent"),
    ("chat_rows/swe_rebench_openhands.jsonl", "chat_rows"),
    ("chat_rows/swe_gym_openhands.jsonl", "chat_rows"),
    ("mini_swe_agent/mini_1.1_toolcalls.traj.json", "mini_swe_agent"),
    ("gemini/gemini_0.40.jsonl", "gemini"),
    ("cline/cline_session.messages.json", "cline"),
    ("aider/aider.chat.history.md", "aider"),
    ("hf_native/hf_native.jsonl", "hf_native"),
    ("atif/atif_1.7.json", "atif"),
]


def sessions_in(path, name):
    return list(source_named(name).read(path, FileReport(str(path))))


def there_and_back(session, tmp_path):
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(exports.to_atif(session.trace, session.flags)))
    return next(iter(sessions_in(path, "atif")))


def acts_of(session, *, main_only=False):
    """Return what each step did and got back: text, thinking, calls, results."""
    trace = session.trace
    return [
        (
            trace.messages[step.action].content,
            trace.messages[step.action].reasoning_content,
            [(call.name, call.arguments, call.call_id) for call in trace.messages[step.action].tool_calls],
            [(trace.messages[at].role, trace.messages[at].content) for at in step.results],
            step.model,
            step.reasoning_status,
        )
        for step in trace.steps
        if step.on_main_branch or not main_only
    ]


def test_an_atif_trajectory_gives_its_steps_and_its_subagents(logs, read_file):
    (main, sub), report = read_file(atif, logs / "atif/atif_1.7.json")
    trace = main.trace
    # Of 8 steps 5 are the agent's: one is copied context and one a dispatch without a model, so 3 are steps here.
    assert [len(trace.messages[step.action].tool_calls) for step in trace.steps] == [2, 1, 0]
    assert [len(step.results) for step in trace.steps] == [2, 1, 0]
    assert [step.model for step in trace.steps] == ["claude-sonnet-4-5", "claude-haiku-4-5", "claude-sonnet-4-5"]
    (flag,) = main.flags.values()
    assert flag.is_error is True
    assert sub.trace.parent_trace_id == trace.trace_id
    assert sub.trace.spawn_call_id == "k3"
    assert report.counts["traces"] == 2
    assert trace.tools_source == "recorded"
    assert {step.prefix_reason for step in trace.steps} == {"image_left_out; linear_export"}


@pytest.mark.parametrize(("log", "name"), LOGS, ids=[log for log, _ in LOGS])
def test_a_trace_through_atif_keeps_steps_calls_and_results(logs, sound, tmp_path, log, name):
    for session in sessions_in(logs / log, name):
        back = there_and_back(session, tmp_path)
        sound(back)
        assert acts_of(back) == acts_of(session, main_only=True)
        assert (back.trace.trace_id, back.trace.source) == (session.trace.trace_id, session.trace.source)
        assert back.trace.resolved == session.trace.resolved
        assert back.trace.system_prompt_source == session.trace.system_prompt_source


def test_a_linear_trace_through_atif_keeps_its_prompts(logs, tmp_path):
    for session in sessions_in(logs / "chat_rows/swe_rebench_openhands.jsonl", "chat_rows"):
        back = there_and_back(session, tmp_path)
        for one, other in zip(session.trace.steps, back.trace.steps, strict=True):
            assert prompt_of(session.trace, one) == prompt_of(back.trace, other)


def test_errors_travel_in_the_extra_of_their_result(logs, tmp_path):
    (session,) = sessions_in(logs / "openhands_v1/openhands_v1_events.jsonl", "openhands_v1")
    site = ErrorSite("tool_not_found", "model", "flag", 1.0, "openhands.agent_error", "no_such_tool", "w3")
    steps = tuple(dataclasses.replace(s, error_sites=(site,) if s.index == 1 else ()) for s in session.trace.steps)
    document = exports.to_atif(dataclasses.replace(session.trace, steps=steps), session.flags)
    results = [r for step in document["steps"] for r in step.get("observation", {}).get("results", [])]
    error = next(r["extra"]["error"] for r in results if r["source_call_id"] == "w3")
    assert error == {
        "is_error": True, "status": "failed", "detail": "agent_error", "kind": "tool_not_found", "blame": "model",
        "rule": "openhands.agent_error",
    }  # fmt: skip
    back = there_and_back(session, tmp_path)
    assert list(back.flags.values()) == list(session.flags.values())


@pytest.mark.parametrize(("log", "name"), LOGS, ids=[log for log, _ in LOGS])
def test_the_document_keeps_the_rules_that_harbor_checks(logs, log, name):
    for session in sessions_in(logs / log, name):
        document = exports.to_atif(session.trace, session.flags)
        assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
        for step in document["steps"]:
            calls = {call["tool_call_id"] for call in step.get("tool_calls", ())}
            sources = {r.get("source_call_id") for r in step.get("observation", {}).get("results", ())} - {None}
            assert sources <= calls
            assert step["source"] == "agent" or not step.keys() & {"model_name", "reasoning_content", "tool_calls"}
            assert all(isinstance(call["arguments"], dict) for call in step.get("tool_calls", ()))
        json.dumps(document)


@pytest.mark.parametrize(("log", "name"), LOGS, ids=[log for log, _ in LOGS])
def test_sts_lines_are_a_session_and_then_every_message_of_the_main_branch(logs, log, name):
    for session in sessions_in(logs / log, name):
        head, *rest = [json.loads(line) for line in exports.to_sts(session.trace)]
        assert head == {"type": "session", "harness": session.trace.source, "id": session.trace.session_id}
        said = [line["message"] for line in rest if line["message"]["role"] == "assistant"]
        assert [(m["content"], len(m.get("toolCalls", ()))) for m in said if m.get("model") or True][-1][0] is not None
        steps = [step for step in session.trace.steps if step.on_main_branch]
        texts = [message["content"] for message in said]
        assert all(session.trace.messages[step.action].content in texts for step in steps)
        answered = {m["toolCallId"] for m in (line["message"] for line in rest) if "toolCallId" in m}
        asked = {call["id"] for m in said for call in m.get("toolCalls", ())}
        assert answered <= asked


def test_a_prompt_that_was_made_up_does_not_go_out(logs):
    (session,) = sessions_in(logs / "cline/cline_api_conversation_history.json", "cline")
    assert session.trace.system_prompt_source == "synthetic"
    assert exports.to_atif(session.trace)["steps"][0]["source"] == "user"
    assert json.loads(list(exports.to_sts(session.trace))[1])["message"]["role"] == "user"


def test_every_trace_becomes_a_row_that_datasets_takes_and_gives_back(logs, tmp_path):
    from datasets import Dataset

    from composer_hub.records import Trace, features_of, from_row, to_row

    traces = [session.trace for log, name in LOGS for session in sessions_in(logs / log, name)]
    path = str(tmp_path / "traces.parquet")
    Dataset.from_list([to_row(trace) for trace in traces], features=features_of(Trace)).to_parquet(path)
    assert [from_row(Trace, row) for row in Dataset.from_parquet(path, cache_dir=str(tmp_path))] == traces


def test_the_modules_of_this_test_are_those_of_the_sources():
    names = {"atif": atif, "chat_rows": chat_rows, "openhands_v1": openhands_v1, "swe_agent": swe_agent}
    assert all(source_named(name).read is module.read for name, module in names.items())
