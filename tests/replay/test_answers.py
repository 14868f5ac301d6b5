"""Responses of every shape become a vote, an abstention with a reason, or a failure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from composer_hub.replay.answers import cost_of, failure_in, parse_body, read, same_model
from composer_hub.replay.prices import per_million
from composer_hub.replay.teachers import Teacher

TEACHER = Teacher("glm", "zai-org/GLM-5.3", "http://x/v1", server="novita", price=per_million("1", "2", "0.1"))


def call(name: str = "bash", arguments: Any = '{"command": "ls"}') -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def response(message: dict[str, Any] | None = None, finish: str = "tool_calls", **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": None, "tool_calls": [call()]} if message is None else message
    return {"model": "glm-5.3", "choices": [{"finish_reason": finish, "message": message}], **fields}


@pytest.mark.parametrize(("answer", "status"), [
    (response(), "voted"),
    (response({"tool_calls": [call(arguments={"command": "ls"})]}), "voted"),
    (response({"tool_calls": [call(arguments="")]}), "voted"),
    (response({"content": "I am done."}), "text_only"),
    (response({"content": ""}), "empty"),
    (response({"content": None}), "empty"),
    (response({"tool_calls": [call(arguments="{oops")]}), "invalid_args"),
    (response({"tool_calls": [call(arguments="[1]")]}), "invalid_args"),
    (response({"tool_calls": [{"id": "x"}]}), "invalid_args"),
    (response({"tool_calls": True}), "invalid_args"),
    (response({"tool_calls": call()}), "invalid_args"),
    (response({"tool_calls": [call("teleport")]}), "unknown_tool"),
    (response(finish="length"), "length"),
    (response(finish="content_filter"), "refusal"),
    (response({"content": None, "refusal": "no"}), "refusal"),
    (response(model="glm-5.3-flash"), "route_mismatch"),
    (response(model="zai-org/GLM-5.3-0711:novita"), "voted"),
    (response(provider="Novita AI"), "voted"),
    (response(provider="Together"), "route_mismatch"),
    (response({"content": [{"type": "text", "text": "hi"}]}), "text_only"),
])  # fmt: skip
def test_an_answer_is_a_vote_or_an_abstention_with_a_reason(answer: dict[str, Any], status: str) -> None:
    found = read(answer, TEACHER, {"bash"})
    assert found.status == status
    assert (found.action is not None) == (status == "voted")


@pytest.mark.parametrize(("body", "kind"), [
    ([], "bad_json"),
    (response(), None),
    ({"choices": []}, "empty_choices"),
    ({"choices": None}, "empty_choices"),
    ({"choices": [None]}, "empty_choices"),
    ({"choices": [{"message": None}]}, "empty_choices"),
    ({"error": {"code": 429, "message": "x"}}, "rate_limited"),
    ({"error": {"code": 502, "message": "x"}}, "error_in_answer"),
    ({"error": "just words"}, "error_in_answer"),
    ({"choices": [{"error": {"message": "cut"}, "message": {"content": "half"}}]}, "error_in_answer"),
])  # fmt: skip
def test_a_response_without_an_answer_is_a_failure(body: Any, kind: str | None) -> None:
    failure = failure_in(body, TEACHER, now=0)
    assert (failure.kind if failure else None) == kind


def test_an_error_after_work_began_has_the_cost_of_its_usage_or_an_unknown_one() -> None:
    silent = failure_in({"error": {"code": 502}}, TEACHER, now=0)
    billed = failure_in({"error": {"code": 502}, "usage": {"cost": 0.25}}, TEACHER, now=0)
    assert silent is not None
    assert billed is not None
    assert (silent.cost, billed.cost) == (None, 250_000_000)


USAGE = {"prompt_tokens": 1000, "completion_tokens": 10}


@pytest.mark.parametrize(("usage", "cost", "source"), [
    ({**USAGE, "cost": 0.5, "estimated_cost": 1}, 500_000_000, "usage"),
    ({**USAGE, "cost": 0.1, "is_byok": True, "cost_details": {"upstream_inference_cost": 2}}, 21 * 10**8, "usage"),
    ({**USAGE, "estimated_cost": 0.3}, 300_000_000, "estimated"),
    ({**USAGE, "cost": float("nan")}, 1_020_000, "price"),
    ({**USAGE, "cost": -1}, 1_020_000, "price"),
    ({**USAGE, "prompt_tokens_details": {"cached_tokens": 1000}}, 120_000, "price"),
    ({**USAGE, "prompt_cache_hit_tokens": 500}, 570_000, "price"),
    ({"prompt_tokens": 10}, None, "worst_case"),
    ({"prompt_tokens": True, "completion_tokens": 1, "prompt_tokens_details": [1]}, None, "worst_case"),
    ({"prompt_tokens": -5, "completion_tokens": 1}, None, "worst_case"),
    ({"prompt_tokens": 10**30, "completion_tokens": 1}, None, "worst_case"),
    (None, None, "worst_case"),
])  # fmt: skip
def test_the_cost_comes_from_the_best_available_source(usage: Any, cost: int | None, source: str) -> None:
    assert cost_of({"usage": usage}, TEACHER) == (cost, source)


@pytest.mark.parametrize(("asked", "served", "same"), [
    ("anthropic/claude-opus-4.7", "claude-4.7-opus-20260401", True),
    ("deepseek-ai/DeepSeek-V4-Pro", "deepseek-v4-pro-0813", True),
    ("local/model", "local/model@main", True),
    ("gpt-5", "gpt-5-mini", False),
    ("qwen3-32b", "qwen3-8b", False),
    ("claude-opus-4.7", "claude-opus-4.6", False),
])  # fmt: skip
def test_a_model_is_recognized_by_its_other_names_and_distinct_from_other_sizes(
    asked: str, served: str, same: bool
) -> None:
    assert same_model(asked, served) is same


def test_lone_surrogates_in_an_answer_become_replacement_characters() -> None:
    assert parse_body(b'{"content": "a\\ud800b"}')["content"] == "a\ufffdb"


def test_bottomless_json_is_refused() -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- orjson and json word it differently
        parse_body(b"[" * 100_000)
    assert parse_body(json.dumps({"a": 1}).encode()) == {"a": 1}


@pytest.mark.parametrize("usage", [
    {"prompt_tokens_details": {"cached_tokens": 900}},
    {"prompt_cache_hit_tokens": 900},
    {"cache_read_input_tokens": 900},
])  # fmt: skip
def test_no_more_tokens_are_cached_than_the_prompt_has(usage: dict[str, Any]) -> None:
    answer = read(response(usage={"prompt_tokens": 10, "completion_tokens": 1, **usage}), TEACHER, {"bash"})
    assert answer.counted.cached_tokens == 10
