"""Rollouts of other Codex versions: rollbacks, words between agents, outputs that quote codes."""

from __future__ import annotations

import json

import pytest

from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import source_named
from composer_hub.records import prompt_of


def said(role, text):
    kind = "output_text" if role == "assistant" else "input_text"
    return item(type="message", role=role, content=[{"type": kind, "text": text}])


def item(**payload):
    return {"type": "response_item", "payload": payload}


def event(kind, **payload):
    return {"type": "event_msg", "payload": {"type": kind, **payload}}


@pytest.fixture
def rollout(tmp_path, sound):
    def read(*records):
        path = tmp_path / "rollout-x.jsonl"
        meta = {"type": "session_meta", "payload": {"id": "thread", "base_instructions": {"text": "SYSTEM"}}}
        path.write_text("\n".join(map(json.dumps, [meta, *records])))
        report = FileReport(str(path))
        (session,) = source_named("codex").read(path, report)
        sound(session)
        return session, report

    return read


def last_prompt(session):
    return [message.content for message in prompt_of(session.trace, session.trace.steps[-1])]


def test_a_roll_back_does_not_count_developer_messages(rollout):
    session, _ = rollout(
        said("user", "first"), said("assistant", "one"), said("user", "second"), said("developer", "Plan mode is on."),
        said("assistant", "two"), event("thread_rolled_back", num_turns=1), said("user", "third"),
        said("assistant", "three"),
    )  # fmt: skip
    assert last_prompt(session) == ["SYSTEM", "first", "one", "third"]


def test_a_roll_back_takes_back_the_context_that_came_with_the_prompt(rollout):
    session, _ = rollout(
        said("user", "<environment_context>start</environment_context>"), said("user", "first"),
        said("assistant", "one"), said("developer", "<permissions instructions>new</permissions instructions>"),
        said("user", "<environment_context>later</environment_context>"), said("user", "second"),
        said("assistant", "two"), event("thread_rolled_back", num_turns=1), said("user", "third"),
        said("assistant", "three"),
    )  # fmt: skip
    context = "<environment_context>start</environment_context>"
    assert last_prompt(session) == ["SYSTEM", context, "first", "one", "third"]


def test_a_roll_back_over_all_turns_keeps_what_stood_before_the_first(rollout):
    session, _ = rollout(
        said("user", "<environment_context>start</environment_context>"), said("user", "first"),
        said("assistant", "one"), event("thread_rolled_back", num_turns=9), said("user", "second"),
        said("assistant", "two"),
    )  # fmt: skip
    assert last_prompt(session) == ["SYSTEM", "<environment_context>start</environment_context>", "second"]


def test_a_roll_back_past_a_compaction_keeps_its_history_and_is_inexact(rollout):
    history = [said("user", "HANDOVER")["payload"]]
    session, _ = rollout(
        said("user", "first"), said("assistant", "one"),
        {"type": "compacted", "payload": {"message": "", "replacement_history": history}}, said("assistant", "two"),
        event("thread_rolled_back", num_turns=1), said("user", "third"), said("assistant", "three"),
    )  # fmt: skip
    assert last_prompt(session) == ["SYSTEM", "HANDOVER", "third"]
    assert session.trace.steps[-1].prefix_reason == "rolled_back_past_compaction"


def test_words_between_agents_are_input_in_every_form_they_are_recorded_in(rollout):
    words = {"author": "/root", "recipient": "/root/worker", "other_recipients": [], "trigger_turn": True}
    session, report = rollout(
        said("assistant", json.dumps({**words, "content": "look at a.py"})),
        said("assistant", "looking"),
        {"type": "inter_agent_communication", "payload": {**words, "content": "and at b.py"}},
        said("assistant", "looked"),
    )
    assert [session.trace.messages[step.action].content for step in session.trace.steps] == ["looking", "looked"]
    assert last_prompt(session) == ["SYSTEM", "[/root] look at a.py", "looking", "[/root] and at b.py"]
    assert not report.unknown_types


@pytest.mark.parametrize(("output", "code"), [
    ("Exit code: 2\nWall time: 0.1 seconds\nOutput:\nno", 2),
    ("Chunk ID: 1f\nWall time: 0.1 seconds\nProcess exited with code 3\nOutput:\nno", 3),
    ("Exit code: 0\nWall time: 0.1 seconds\nOutput:\nExit code: 4", 0),
    ("Wall time: 1 seconds\nProcess running with session ID 7\nOutput:\nlast run\nExit code: 5", None),
    ("build.log:\nExit code: 6\n", None),
])  # fmt: skip
def test_an_exit_code_is_read_only_from_the_header_of_codex(rollout, output, code):
    session, _ = rollout(
        item(type="function_call", name="exec_command", arguments='{"cmd": "x"}', call_id="c"),
        item(type="function_call_output", call_id="c", output=output),
    )
    assert [flag.exit_code for flag in session.flags.values()] == ([] if code is None else [code])


def test_a_subagent_knows_its_parent_also_from_an_older_header(tmp_path):
    path = tmp_path / "rollout-y.jsonl"
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "thread", "depth": 1}}}
    meta = {"type": "session_meta", "payload": {"id": "child", "source": source}}
    path.write_text("\n".join(map(json.dumps, [meta, said("user", "go"), said("assistant", "gone")])))
    (child,) = source_named("codex").read(path, FileReport())
    assert child.trace.parent_trace_id


def test_an_error_is_kept_whole_so_that_no_secret_in_it_is_cut_in_two(rollout):
    said_so = "The server refused, and for many reasons. " * 5 + "token ghp_" + "a1B2" * 9
    session, _ = rollout(
        item(type="function_call", name="mcp__x__y", arguments="{}", call_id="c"),
        event("mcp_tool_call_end", call_id="c", result={"Err": said_so}),
        item(type="function_call_output", call_id="c", output="failed"),
    )
    assert [flag.detail for flag in session.flags.values()] == [said_so]
