"""The tokens that providers counted prove prompts, or show that one was edited without a record of it."""

from __future__ import annotations

import dataclasses
import json

import pytest

from composer_hub.ingest.dataset import TraceCounts, numbers_of, trace_card
from composer_hub.ingest.readers import claude_code, codex
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.usage import SHRANK, checked, usage_of
from composer_hub.records import Message, Step, ToolCall, Trace, prompt_of
from composer_hub.session import Usage

CHARS = 400  # of each result below


def conversation(tokens, *, ask_again_at=0, thinking=""):
    """Return a pool and steps, one call each, and the usage of each step; `ask_again_at` ends a turn before a step."""
    pool, steps = [Message("system", "s"), Message("user", "go")], []
    for number in range(len(tokens)):
        if ask_again_at and number == ask_again_at:
            pool.append(Message("user", "and now this"))
        calls = () if ask_again_at and number == ask_again_at - 1 else (ToolCall("Read", {}, f"c{number}"),)
        status = "plain" if thinking else "absent"
        steps.append(Step(f"s{number}", number, len(pool), ((0, len(pool)),), model="m", reasoning_status=status))
        pool.append(Message("assistant", "ok", calls, reasoning_content=thinking))
        if calls:
            pool.append(Message("tool", "x" * CHARS, tool_call_id=f"c{number}"))
    return pool, steps, [Usage(count, 3000 if thinking else 20) for count in tokens]


@pytest.mark.parametrize(
    ("record", "usage"),
    [
        ({"input_tokens": 3, "cache_read_input_tokens": 15, "output_tokens": 7}, (18, 7)),
        ({"input_tokens": 3, "cache_creation_input_tokens": 15, "output_tokens": 7}, (18, 7)),
        ({"input": 3, "output": 7, "cacheRead": 10, "cacheWrite": 5, "cost": {}}, (18, 7)),
        ({"input": 3, "output": 7, "cache": {"read": 10, "write": 5}}, (18, 7)),
        ({"prompt_tokens": 18, "completion_tokens": 7, "cache_read_input_tokens": 10}, (18, 7)),
        ({"promptTokenCount": 18, "candidatesTokenCount": 7, "cachedContentTokenCount": 10}, (18, 7)),
        ({"input_tokens": "many", "output_tokens": -1}, (0, 0)),
        (None, (0, 0)),
        ([1], (0, 0)),
    ],
)  # fmt: skip
def test_usage_is_read_in_every_spelling(record, usage):
    read = usage_of(record)
    assert (read.context, read.output) == usage


def test_a_context_that_shrinks_below_a_growing_prompt_costs_exactness_from_there_on():
    steps, audit = checked(*conversation([10_000, 10_150, 4_000, 4_150, 4_300]))
    assert [step.prefix_reason for step in steps] == ["", "", SHRANK, SHRANK, SHRANK]
    assert [step.prefix_exact for step in steps] == [True, True, False, False, False]
    assert audit["num_steps"] == 5


def test_a_branch_beside_the_edit_stays_exact():
    pool, steps, usages = conversation([10_000, 10_150, 4_000])
    pool += [Message("user", "go back"), Message("assistant", "fine")]
    steps.append(Step("b", 3, len(pool) - 1, ((0, 4), (len(pool) - 2, len(pool) - 1)), model="m"))
    marked, _ = checked(pool, steps, [*usages, Usage(10_100)])
    assert [step.prefix_exact for step in marked] == [True, True, False, True]


def test_thinking_that_ends_with_its_turn_is_no_edit():
    tokens = [10_000, 13_200, 10_300]
    assert all(step.prefix_exact for step in checked(*conversation(tokens, ask_again_at=2, thinking="hm"))[0])
    assert not all(step.prefix_exact for step in checked(*conversation(tokens, thinking="hm"))[0])
    assert not all(step.prefix_exact for step in checked(*conversation(tokens, ask_again_at=2))[0])


def test_another_model_or_a_missing_count_proves_nothing():
    pool, steps, usages = conversation([10_000, 0, 4_000])
    assert [step.prefix_exact for step in checked(pool, steps, usages)[0]] == [True, True, False]
    assert checked(pool, steps, [Usage()] * 3) == (steps, {})
    other = [*steps[:2], dataclasses.replace(steps[2], model="another")]
    assert all(step.prefix_exact for step in checked(pool, other, usages)[0])


def test_the_audit_counts_the_prompts_that_grew_as_the_tokens_did():
    tokens = [1_000 + 130 * number for number in range(9)]
    _, audit = checked(*conversation(tokens))
    assert (audit["num_compared"], audit["num_agree"]) == (8, 8)
    assert audit["num_tokens"] / audit["num_chars"] == pytest.approx(130 / (CHARS + 8))
    _, audit = checked(*conversation([*tokens[:8], tokens[7] + 5_000]))
    assert (audit["num_compared"], audit["num_agree"]) == (8, 7)


def lines_of(path, records):
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def test_claude_codes_own_counts_reach_the_trace_and_the_card(tmp_path, read_file):
    records = [{"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "S", "message": {"content": "go"}}]
    for number in range(8):
        above = records[-1]["uuid"]
        usage = {"input_tokens": 4, "cache_read_input_tokens": 900 + 110 * number, "output_tokens": 9}
        call = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "ls"}}
        said = {"id": f"m{number}", "model": "claude-x", "usage": usage, "content": [call]}
        answer = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "y" * 300}
        records += [
            {"type": "assistant", "uuid": f"a{number}", "parentUuid": above, "sessionId": "S", "message": said},
            {"type": "user", "uuid": f"r{number}", "parentUuid": f"a{number}", "message": {"content": [answer]}},
        ]
    (session,), _ = read_file(claude_code, lines_of(tmp_path / "S.jsonl", records))
    audit = session.trace.counts["audit"]
    assert (audit["num_steps"], audit["num_compared"], audit["num_agree"]) == (8, 7, 7)
    counts = TraceCounts()
    counts.add(session.trace)
    numbers = numbers_of(FileReport(), counts)
    assert numbers["prompts_agree"] == 7
    assert "7 of the 7 exact prompts" in trace_card("me/t", "mit", numbers, redacted=True).holes["origin"]


def test_codex_counts_belong_to_the_message_before_them_and_repeats_do_not_count(tmp_path, read_file):
    def item(**payload):
        return {"timestamp": "t", "type": "response_item", "payload": payload}

    def count(total, last):
        info = {"total_token_usage": {"input_tokens": total}, "last_token_usage": {"input_tokens": last}}
        return {"timestamp": "t", "type": "event_msg", "payload": {"type": "token_count", "info": info}}

    def call(number):
        return item(type="function_call", name="shell", arguments="{}", call_id=f"c{number}")

    def answer(number):
        return item(type="function_call_output", call_id=f"c{number}", output="fine")

    records = [
        {"timestamp": "t", "type": "session_meta", "payload": {"id": "x"}},
        item(type="message", role="user", content=[{"type": "input_text", "text": "go"}]),
        call(1), count(20_000, 20_000), answer(1), call(2), count(20_000, 20_000), count(26_000, 6_000), answer(2),
    ]  # fmt: skip
    (session,), _ = read_file(codex, lines_of(tmp_path / "rollout-x.jsonl", records))
    assert [step.prefix_reason for step in session.trace.steps] == ["", SHRANK]


def test_a_prompt_keeps_the_thinking_of_its_own_turn_only():
    messages = (
        Message("user", "one"),
        Message("assistant", "", (ToolCall("Read", {}, "a"),), reasoning_content="first"),
        Message("tool", "text", tool_call_id="a"),
        Message("user", "<system-reminder>beside the result</system-reminder>"),
        Message("assistant", "Done.", reasoning_content="second"),
        Message("user", "two"),
        Message("assistant", "Also done.", reasoning_content="third"),
    )
    steps = [Step(f"{at}", number, at, ((0, at),)) for number, at in enumerate((1, 4, 6))]
    trace = Trace("t", "x", "s", messages, tuple(steps))
    kept = [[message.reasoning_content for message in prompt_of(trace, step)] for step in steps]
    assert kept == [[""], ["", "first", "", ""], [""] * 6]
    assert messages[1].reasoning_content == "first"
