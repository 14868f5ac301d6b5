"""Prompts keep their prefix, pair calls with results, omit thinking, and stay within their token bound."""

from __future__ import annotations

import dataclasses
import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from composer_hub.pairs.prompts import NO_RESULT, paired, read_prompt
from composer_hub.records import Message, Step, ToolCall, Trace, canonical_json
from composer_hub.replay.fake import tokens_of
from composer_hub.replay.prompts import Counted, Prompts, marked
from tests.quick import cases
from tests.replay.sample import trace_of

stable = cases(100)


def test_each_prompt_starts_with_the_one_before() -> None:
    prompts = Prompts(trace := trace_of(10))
    chats = [paired(prompts.of(step).chat) for step in trace.steps]
    for before, after in itertools.pairwise(chats):
        assert after[: len(before)] == before


def test_thinking_is_never_sent() -> None:
    prompts = Prompts(trace := trace_of(5))
    assert "secret thoughts" not in json.dumps(prompts.of(trace.steps[-1]).chat)


def one_prompt(*messages: Message) -> Trace:
    step = Step("s", 0, len(messages), ((0, len(messages)),))
    return Trace("t", "test", "s", (*messages, Message("assistant", "done")), (step,), redaction="r")


def test_a_message_with_thinking_alone_is_left_out() -> None:
    trace = one_prompt(Message("user", "go"), Message("assistant", reasoning_content="hm"), Message("user", "well?"))
    assert [m["role"] for m in Prompts(trace).of(trace.steps[0]).chat] == ["user", "user"]


def test_an_empty_message_of_the_user_is_left_out() -> None:
    trace = one_prompt(Message("user", "go"), Message("assistant", "well"), Message("user", "\n"))
    assert [m["content"] for m in Prompts(trace).of(trace.steps[0]).chat] == ["go", "well"]


def test_a_system_prompt_that_was_not_recorded_says_where_the_session_began() -> None:
    recorded = dataclasses.replace(one_prompt(Message("system", "Code."), Message("user", "go")), cwd="/repo")
    synthetic = dataclasses.replace(recorded, system_prompt_source="synthetic")
    heads = [Prompts(trace).of(trace.steps[0]).chat[0]["content"] for trace in (recorded, synthetic)]
    assert heads == ["Code.", "Code.\n\nWorking directory: /repo"]
    assert [read_prompt(trace, trace.steps[0])[0].content for trace in (recorded, synthetic)] == heads


def test_a_call_without_a_result_gets_a_placeholder_and_an_orphaned_result_becomes_a_user_message() -> None:
    chat = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a"}, {"id": "b"}]},
        {"role": "tool", "tool_call_id": "b", "content": "B"},
        {"role": "user", "content": "next"},
        {"role": "tool", "tool_call_id": "zz", "content": "lost"},
    ]
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in paired(chat)] == [
        ("assistant", None, ""), ("tool", "b", "B"), ("tool", "a", NO_RESULT), ("user", None, "next"),
        ("user", None, "lost"),
    ]  # fmt: skip


def test_arguments_are_always_sent_as_the_json_text_of_an_object() -> None:
    calls = (ToolCall("bash", {"command": "ls"}), ToolCall("bash", "{broken"), ToolCall("bash", None))
    trace = one_prompt(Message("user", "go"), Message("assistant", "", calls))
    (_, message) = Prompts(trace).of(trace.steps[0]).chat
    assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in message["tool_calls"])
    assert len({call["id"] for call in message["tool_calls"]}) == 3


def test_cache_marks_are_at_the_system_prompt_the_previous_end_and_the_end() -> None:
    chat = [{"role": "system", "content": "S"}, *({"role": "user", "content": str(i)} for i in range(5))]
    places = [i for i, message in enumerate(marked(chat, also=3)) if isinstance(message["content"], list)]
    assert places == [0, 2, 5]
    assert [m["content"] for m in chat] == ["S", "0", "1", "2", "3", "4"]


def test_the_key_depends_on_route_messages_tools_parameters_and_attempt_only() -> None:
    def keys(trace: Trace) -> list[str]:
        prompts = Prompts(trace)
        one, two = (prompts.of(step) for step in trace.steps)
        return [
            prompts.key("r", one, {"max_tokens": 1}, 0), prompts.key("q", one, {"max_tokens": 1}, 0),
            prompts.key("r", two, {"max_tokens": 1}, 0), prompts.key("r", one, {"max_tokens": 2}, 0),
            prompts.key("r", one, {"max_tokens": 1}, 1),
        ]  # fmt: skip

    assert len(set(keys(trace_of(2)))) == 5
    assert keys(trace_of(2)) == keys(trace_of(2, license="other"))
    assert not set(keys(trace_of(2))) & set(keys(trace_of(2, tools=())))


def test_tools_in_any_shape_become_functions_with_unique_names() -> None:
    shapes = (
        {"name": "a", "input_schema": {"type": "object"}},
        {"type": "function", "function": {"name": "b"}},
        {"name": "a"},
    )
    tools = Prompts(Trace("t", "x", "s", (), (), tools=shapes)).tools
    assert [tool["function"]["name"] for tool in tools] == ["a", "b"]


@stable
@given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=8))
def test_the_token_bound_holds_for_bytes_and_for_text_that_normalization_lengthens(texts: list[str]) -> None:
    trace = one_prompt(*(Message("user", text + "\ufdfa") for text in texts))
    prompt = Prompts(trace).of(trace.steps[0])
    assert prompt.bound >= sum(len(text.encode("utf-8", "replace")) + 18 for text in texts)


def test_a_counted_prefix_tightens_the_bound_without_breaking_it() -> None:
    prompts = Prompts(trace := trace_of(20, growth=1500))

    def counted(step: Step) -> int:
        chat = paired(prompts.of(step).chat)
        return tokens_of(canonical_json(prompts.tools)) + sum(tokens_of(canonical_json(m)) for m in chat)

    for before, after in itertools.pairwise(trace.steps):
        prompt = prompts.of(after)
        bound = prompts.bound_after(prompt, Counted(prompts.of(before).positions, counted(before)))
        assert counted(after) <= bound <= prompt.bound
    assert bound < 1.3 * counted(trace.steps[-1])


def test_a_count_of_another_branch_does_not_tighten_the_bound() -> None:
    prompts = Prompts(trace := trace_of(4))
    prompt = prompts.of(trace.steps[1])
    assert prompts.bound_after(prompt, Counted(prompts.of(trace.steps[3]).positions, 1)) == prompt.bound
