"""Inspect logs: exact inputs by events, pools and attachments; typed errors; archives that lie."""

from __future__ import annotations

import json
import zipfile
from collections import Counter

import pytest

from composer_hub.ingest.readers import inspect_eval
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.records import prompt_of

HEADER = {"eval": {"model": "openai/gpt-5", "task": "guess", "run_id": "run1", "packages": {"inspect_ai": "0.3.135"}}}


def call(name, number, **arguments):
    return {"id": number, "function": name, "arguments": arguments}


def model_event(refs, text, calls=(), **more):
    message = {"role": "assistant", "content": text, "tool_calls": list(calls), **more}
    tools = [{"name": "bash", "description": "run", "parameters": {"type": "object", "properties": {"cmd": {}}}}]
    output = {"model": "gpt-5-2025-08-07", "choices": [{"message": message}]}
    return {
        "event": "model", "model": "openai/gpt-5", "input": [], "input_refs": refs, "tools": tools, "output": output,
    }  # fmt: skip


def sample():
    first = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [call("bash", "c1", cmd="ls"), call("bash", "c2", cmd="x")],
    }
    slow = {
        "role": "tool", "tool_call_id": "c2", "function": "bash", "content": "",
        "error": {"type": "timeout", "message": "slow"},
    }  # fmt: skip
    fine = {"role": "tool", "tool_call_id": "c1", "function": "bash", "content": "attachment://h1"}
    last = {"role": "tool", "tool_call_id": "c3", "function": "bash", "content": "bye"}
    pool = [{"role": "system", "content": "sys"}, {"role": "user", "content": "Guess."}, first, fine, slow]
    reasoning = [{"type": "reasoning", "reasoning": "gAAA", "redacted": True}, {"type": "text", "text": "Again."}]
    return {
        "id": 7,
        "epoch": 2,
        "uuid": "u-7",
        "attachments": {"h1": "a long listing"},
        "events_data": {"messages": pool, "calls": []},
        "scores": {"includes": {"value": "I"}},
        "messages": [*pool, {"role": "assistant", "content": "Again."}, last],
        "events": [
            model_event([[0, 2]], "I look.", first["tool_calls"]),
            {"event": "tool", "id": "c1"},
            model_event([[0, 5]], reasoning, [call("bash", "c3", cmd="exit")]),
        ],
    }


def write(path, samples, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("header.json", json.dumps(HEADER))
        for number, value in enumerate(samples):
            archive.writestr(f"samples/{number}_epoch_1.json", value if isinstance(value, str) else json.dumps(value))
    return path


def test_every_sample_of_the_real_log_is_a_session_of_one_step(samples, read_file):
    path = samples / "inspect" / "popularity.eval"
    # Counted from the zip: 10 sample files, each with one event of type model with an input of 2 messages; the header's
    # accuracy is 0.8, so 8 samples have the score C and 2 have I.
    with zipfile.ZipFile(path) as archive:
        raw = [json.loads(archive.read(n)) for n in archive.namelist() if n.startswith("samples/")]
    assert [sum(e["event"] == "model" for e in one["events"]) for one in raw] == [1] * 10
    sessions, _ = read_file(inspect_eval, path)
    assert len(sessions) == 10
    assert Counter(session.trace.resolved for session in sessions) == {True: 8, False: 2}
    for session, one in zip(sessions, raw, strict=True):
        (step,) = session.trace.steps
        told = [(message.role, message.content) for message in prompt_of(session.trace, step)]
        assert told == [(m["role"], m["content"]) for m in one["messages"][:2]]
        assert step.prefix_exact
        assert session.trace.family == "openai"


def test_the_input_of_a_step_is_resolved_through_pool_and_attachments(read_file, tmp_path):
    (session,), _ = read_file(inspect_eval, write(tmp_path / "a.eval", [sample()]))
    first, second = session.trace.steps
    assert [m.content for m in prompt_of(session.trace, first)] == ["sys", "Guess."]
    assert [m.content for m in prompt_of(session.trace, second)] == [
        "sys", "Guess.", "I look.", "a long listing", "slow",
    ]  # fmt: skip
    assert [len(step.results) for step in session.trace.steps] == [2, 1]
    assert session.trace.tools[0]["function"]["parameters"]["properties"] == {"cmd": {}}
    assert (session.trace.session_id, session.trace.resolved) == ("u-7", False)


def test_the_pool_of_older_logs_is_also_read(read_file, tmp_path):
    old = sample()
    old["message_pool"] = old.pop("events_data")["messages"]
    (session,), _ = read_file(inspect_eval, write(tmp_path / "a.eval", [old]))
    assert len(prompt_of(session.trace, session.trace.steps[1])) == 5


def test_tool_errors_are_typed_and_ciphertext_is_encrypted_reasoning(read_file, tmp_path):
    (session,), _ = read_file(inspect_eval, write(tmp_path / "a.eval", [sample()]))
    (flag,) = session.flags.values()
    assert (flag.is_error, flag.status, flag.detail) == (True, "timeout", "timeout")
    assert [step.reasoning_status for step in session.trace.steps] == ["absent", "encrypted"]
    assert "gAAA" not in str(session.trace.messages)


def test_a_sample_without_events_falls_back_on_its_messages(read_file, tmp_path):
    bare = {**sample(), "events": []}
    (session,), _ = read_file(inspect_eval, write(tmp_path / "a.eval", [bare]))
    reasons = [step.prefix_reason for step in session.trace.steps]
    assert reasons == ["no_model_events", "no_model_events"]


def test_a_broken_sample_is_counted_and_the_others_are_read(tmp_path):
    path, report = write(tmp_path / "a.eval", ["{broken", sample()]), FileReport("a.eval")
    assert len(list(inspect_eval.read(path, report))) == 1
    assert report.counts["corrupt"] == 1


def test_a_member_that_unpacks_past_its_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(inspect_eval, "MAX_MEMBER", 1 << 16)
    path, report = write(tmp_path / "bomb.eval", ['"' + "0" * (1 << 24) + '"', sample()]), FileReport("bomb.eval")
    assert path.stat().st_size < 1 << 17
    assert len(list(inspect_eval.read(path, report))) == 1
    assert "unpacks to more than" in str(report.problems[0])


def test_an_archive_stops_at_its_total(tmp_path, monkeypatch):
    size = len(json.dumps(sample()))
    monkeypatch.setattr(inspect_eval, "MAX_TOTAL", 2 * size)
    report = FileReport("a.eval")
    sessions = list(inspect_eval.read(write(tmp_path / "a.eval", [sample()] * 5), report))
    assert len(sessions) == 1
    assert report.counts["corrupt"] == 4


def test_half_an_archive_says_what_to_do(tmp_path):
    path = write(tmp_path / "a.eval", [sample()])
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(SessionError, match="wait for its end"):
        list(inspect_eval.read(path, FileReport("a.eval")))


def test_a_log_as_one_document_gives_the_sessions_of_the_archive(tmp_path, read_file):
    packed, document = tmp_path / "log.eval", tmp_path / "log.json"
    write(packed, [sample()])
    document.write_text(json.dumps({"version": 2, "status": "success", **HEADER, "samples": [sample()]}, indent=2))
    assert inspect_eval.sniff(document.read_bytes()[:65536], document)
    (one,), _ = read_file(inspect_eval, packed)
    (other,), _ = read_file(inspect_eval, document)
    assert (one.trace, one.flags) == (other.trace, other.flags)
