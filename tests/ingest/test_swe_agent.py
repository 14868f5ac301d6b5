"""SWE-agent trajectories: the counts of real files, the exact input of 1.x, requeries and attempts."""

from __future__ import annotations

import json

import pytest

from composer_hub.ingest.readers import swe_agent
from composer_hub.records import prompt_of


def test_a_0x_trajectory_has_a_step_an_assistant_message_of_its_history(samples, read_file):
    path = samples / "swe_agent" / "ctf-i_got_id_demo.traj"
    # Counted from the raw file: 43 history entries = 1 system, 21 user, 21 assistant; the first user entry is the task,
    # so 20 observations follow steps; the last step submits and nothing comes back.
    raw = json.loads(path.read_text())
    roles = [entry["role"] for entry in raw["history"]]
    assert (len(roles), roles.count("assistant"), roles.count("user")) == (43, 21, 21)
    (session,), _ = read_file(swe_agent, path)
    trace = session.trace
    assert len(trace.messages) == 43
    assert len(trace.steps) == 21
    assert sum(len(step.results) for step in trace.steps) == 20
    said = [entry["content"] for entry in raw["history"] if entry["role"] == "assistant"]
    assert [trace.messages[step.action].content for step in trace.steps] == said
    assert {step.prefix_reason for step in trace.steps} == {"history_processed"}
    assert trace.cwd == "/__Users__talora__LLM_CTF_Dataset_Dev__2016__CSAW-Quals__web__I-Got-Id"
    assert trace.provenance["exit_status"] == "submitted"


def test_the_prompt_of_a_1x_step_is_its_query_word_for_word(logs, read_file):
    path = logs / "swe_agent/swe_agent_1x.traj"
    (session,), _ = read_file(swe_agent, path)
    raw = json.loads(path.read_text())
    for step, told in zip(session.trace.steps, raw["trajectory"], strict=True):
        read = [(message.role, message.content) for message in prompt_of(session.trace, step)]
        assert read == [(entry["role"], _text(entry["content"])) for entry in told["query"]]
        assert step.prefix_exact
    assert session.trace.model == "anthropic/claude-sonnet-4-20250514"
    assert session.trace.family == "anthropic"


def test_a_requery_is_a_step_whose_result_is_the_complaint_with_its_code(logs, read_file):
    (session,), _ = read_file(swe_agent, logs / "swe_agent/swe_agent_1x.traj")
    rejected = session.trace.steps[1]
    assert session.trace.messages[rejected.action].content == "I forgot to call a tool."
    (flag,) = (session.flags[index] for index in rejected.results)
    assert (flag.is_error, flag.status, flag.detail) == (True, "failed", "format_error missing")
    last = prompt_of(session.trace, session.trace.steps[-1])
    assert "I forgot to call a tool." not in [message.content for message in last]


def test_calls_thinking_and_results_come_from_the_history(logs, read_file):
    (session,), report = read_file(swe_agent, logs / "swe_agent/swe_agent_1x.traj")
    steps = session.trace.steps
    calls = [[call.name for call in session.trace.messages[step.action].tool_calls] for step in steps]
    assert calls == [["bash"], [], ["str_replace_editor"], ["submit"]]
    assert session.trace.messages[steps[0].action].reasoning_content == "What is here?"
    assert [step.reasoning_status for step in steps] == ["plain", "absent", "absent", "absent"]
    assert report.counts["dangling_calls"] == 0


def test_demonstrations_are_read_and_never_steps(logs, read_file, tmp_path):
    raw = json.loads((logs / "swe_agent/swe_agent_1x.traj").read_text())
    demo = {"role": "assistant", "content": "as shown", "agent": "main", "is_demo": True}
    path = tmp_path / "demo.traj"
    path.write_text(json.dumps({"history": [raw["history"][0], demo, *raw["history"][2:]], "trajectory": []}))
    (session,), _ = read_file(swe_agent, path)
    assert [message.content for message in session.trace.messages].count("as shown") == 1
    assert "as shown" not in [session.trace.messages[step.action].content for step in session.trace.steps]


def test_every_attempt_of_a_retry_run_is_a_session(logs, read_file, tmp_path):
    raw = json.loads((logs / "swe_agent/swe_agent_1x.traj").read_text())
    path = tmp_path / "retry.traj"
    path.write_text(json.dumps({**raw, "attempts": [raw, {**raw, "history": raw["history"][:5], "trajectory": []}]}))
    sessions, _ = read_file(swe_agent, path)
    assert [len(session.trace.steps) for session in sessions] == [4, 1]
    assert len({session.trace.trace_id for session in sessions}) == 2


@pytest.mark.parametrize("version", ["1.x", "1.0", "history"])
def test_the_closing_words_of_a_harness_are_not_an_answer(version, read_file, tmp_path):
    read = [{"role": "system", "content": "S", "agent": "main"}, {"role": "user", "content": "T", "agent": "main"}]
    said = {"role": "assistant", "content": "look", "action": "ls", "agent": "main"}
    seen = {"role": "user", "content": "a.py", "agent": "main"}
    ended = {"role": "assistant", "content": "Exit due to context window", "action": "", "agent": "main"}
    steps = [
        {"action": "ls", "observation": "a.py", "response": "look", "thought": "look"},
        {"action": "", "observation": "Exited", "response": ended["content"], "thought": ended["content"]},
    ]
    if version == "1.x":
        steps = [{**steps[0], "query": read}, {**steps[1], "query": [{}]}]
    elif version == "1.0":
        steps = [{**steps[0], "messages": [*read, said, seen]}, {**steps[1], "messages": [*read, said, seen, ended]}]
    path = tmp_path / "run.traj"
    path.write_text(json.dumps({"trajectory": steps, "history": [*read, said, seen, ended], "info": {}}))
    (session,), _ = read_file(swe_agent, path)
    (step,) = session.trace.steps
    assert session.trace.messages[step.action].content == "look"
    assert next(session.trace.messages[at].content for at in step.results) == "a.py"


def test_an_empty_answer_is_read_later_and_is_not_a_step(read_file, tmp_path):
    history = [
        {"role": "system", "content": "S", "agent": "primary"},
        {"role": "assistant", "content": "look", "agent": "primary"},
        {"role": "user", "content": "a.py", "agent": "primary"},
        {"role": "assistant", "content": "", "thought": "Exit due to cost limit", "agent": "primary"},
    ]
    path = tmp_path / "run.traj"
    path.write_text(json.dumps({"trajectory": [], "history": history, "info": {}}))
    (session,), report = read_file(swe_agent, path)
    assert len(session.trace.steps) == report.counts["empty_actions"] == 1


def _text(content):
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)
