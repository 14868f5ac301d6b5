"""mini-swe-agent: v1's bare list, v2 with tool calls, with the Responses API, with format errors."""

from __future__ import annotations

import json

from composer_hub.ingest.readers import mini_swe_agent
from composer_hub.records import prompt_of


def test_the_v1_list_has_two_steps_each_answered_by_a_user_message(samples, read_file):
    path = samples / "mini" / "local.traj.json"
    # Counted from the raw file: system, user, assistant, user (<returncode>0), assistant, user (empty: the submission).
    raw = json.loads(path.read_text())
    assert [m["role"] for m in raw] == ["system", "user", "assistant", "user", "assistant", "user"]
    (session,), _ = read_file(mini_swe_agent, path)
    trace = session.trace
    assert [(step.action, step.results, step.prefix_exact) for step in trace.steps] == [
        (2, (3,), True),
        (4, (5,), True),
    ]
    assert [flag.exit_code for flag in session.flags.values()] == [0]
    assert trace.system_prompt_source == "recorded"


def test_v2_calls_results_and_return_codes(logs, read_file):
    (session,), report = read_file(mini_swe_agent, logs / "mini_swe_agent/mini_1.1_toolcalls.traj.json")
    steps = session.trace.steps
    assert [len(session.trace.messages[step.action].tool_calls) for step in steps] == [2, 0, 1, 1]
    assert [len(step.results) for step in steps] == [2, 1, 1, 0]
    told = [(flag.is_error, flag.exit_code, flag.status, flag.detail) for flag in session.flags.values()]
    assert told == [
        (None, 0, "", ""),
        (None, 1, "", ""),
        (True, None, "failed", "format_error"),
        (True, None, "timeout", "TimeoutExpired"),
    ]
    assert report.counts["dangling_calls"] == 1  # the submission brings nothing back
    assert session.trace.provenance == {"harness_version": "2.1.0", "exit_status": "Submitted"}
    assert session.trace.model == "gpt-5-mini-2025-08-07"
    assert session.trace.tools[0]["function"]["name"] == "bash"


def test_a_rejected_message_is_a_branch_and_only_its_complaint_is_read_later(logs, read_file):
    (session,), _ = read_file(mini_swe_agent, logs / "mini_swe_agent/mini_1.1_toolcalls.traj.json")
    rejected, after = session.trace.steps[1:3]
    assert session.trace.messages[rejected.action].content == "I am done."
    assert [step.on_main_branch for step in session.trace.steps] == [True, False, True, True]
    texts = [message.content for message in prompt_of(session.trace, after)]
    assert "I am done." not in texts
    assert texts[-1].startswith("Tool call error")


def test_reasoning_is_plain_or_a_summary_in_the_responses_api(logs, read_file):
    (session,), _ = read_file(mini_swe_agent, logs / "mini_swe_agent/mini_1.1_toolcalls.traj.json")
    assert [step.reasoning_status for step in session.trace.steps] == ["plain", "absent", "absent", "absent"]
    (session,), report = read_file(mini_swe_agent, logs / "mini_swe_agent/mini_1.1_responses.traj.json")
    (step,) = session.trace.steps
    assert step.reasoning_status == "summary"
    assert session.trace.messages[step.action].tool_calls[0].arguments == {"command": "ls"}
    assert session.flags[step.results[0]].exit_code == 0
    assert report.counts["unknown"] == 0
