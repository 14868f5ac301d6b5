"""Read a response into a `TeacherAnswer`, or into a `RequestFailure` if it holds no answer.

In: the body of a response with status 200. Out: the assistant message, its status (`voted`, or the reason why it
abstains), its cost and the source of that cost. Reading is pure. Stored responses are read again on every resume, so a
better reader costs nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from composer_hub.money import from_usd
from composer_hub.records import Message, ToolCall, clean
from composer_hub.replay.retries import RequestFailure, error_code, error_of, error_text, from_status
from composer_hub.replay.teachers import Teacher

VOTED = "voted"
MAX_TOKENS_SEEN = 10**9
"""Larger token counts are errors of the server."""


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The token counts of a response; None for a count that is missing."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0
    written_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TeacherAnswer:
    """One response that holds an answer."""

    status: str
    message: Mapping[str, Any]  # as it came
    action: Message | None  # None if the answer abstains
    usage: Mapping[str, Any] = field(default_factory=dict)
    counted: TokenCounts = TokenCounts()
    cost: int | None = None  # nano-dollars; None if unknown
    cost_source: str = "worst_case"
    served_model: str = ""
    provider: str = ""
    request_id: str = ""


def parse_body(body: bytes) -> Any:
    """Parse a body as JSON, or raise ValueError. Lone surrogates, which orjson refuses, become U+FFFD.

    Integers of more than 64 bits are floats, as orjson reads them.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            return clean(json.loads(body, parse_int=orjson.loads))
        except RecursionError:
            raise ValueError("nested too deeply") from None


def failure_in(response: Any, teacher: Teacher, *, now: float) -> RequestFailure | None:
    """Return the failure inside a response with status 200, or None if it holds an answer."""
    if not isinstance(response, Mapping):
        return RequestFailure("bad_json", None, detail="the answer is not a JSON object")
    choice = _choice(response)
    error = error_of(response) or error_of(choice)
    if isinstance(choice.get("message"), Mapping) and not error:
        return None
    cost = cost_of(response, teacher)[0]
    if error:
        # Work had begun, so the cost of such an error is unknown unless the response has it.
        kind = from_status(error_code({"error": error}) or 0, {}, {"error": error}, bills_errors=True, now=now).kind
        kind = "error_in_answer" if kind.startswith("server_") else kind
        return RequestFailure(kind, cost, detail=error_text({"error": error}))
    return RequestFailure("empty_choices", cost)


def read(response: Mapping[str, Any], teacher: Teacher, known_tools: Collection[str]) -> TeacherAnswer:
    """Read an answer and decide whether it counts as a vote."""
    choice = _choice(response)
    message = choice["message"]
    action, problem = action_of(message)
    served, provider = str(response.get("model") or ""), str(response.get("provider") or "")
    cost, source = cost_of(response, teacher)
    status = (
        _route_problem(teacher, served, provider)
        or _finish_problem(choice, message)
        or problem
        or _action_problem(action, known_tools)
        or VOTED
    )
    return TeacherAnswer(
        status=status,
        # Unchanged, except that content in parts becomes text, which readers of assistant messages expect.
        message={**message, "content": text_in(message)} if isinstance(message.get("content"), list) else message,
        action=action if status == VOTED else None,
        usage=response.get("usage") if isinstance(response.get("usage"), Mapping) else {},  # type: ignore[arg-type]
        counted=usage_of(response),
        cost=cost,
        cost_source=source,
        served_model=served,
        provider=provider or teacher.server,
        request_id=str(response.get("id") or ""),
    )


def _choice(response: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = response.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, Mapping) else {}


def action_of(message: Mapping[str, Any]) -> tuple[Message, str]:
    """Return the answer as a `Message`, and "invalid_args" if the arguments of a call are not a JSON object."""
    calls, problem, listed = [], "", message.get("tool_calls") or ()
    if not isinstance(listed, (list, tuple)):
        return Message("assistant", text_in(message)), "invalid_args"
    for call in listed:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return Message("assistant", text_in(message)), "invalid_args"
        arguments = _arguments(function.get("arguments"))
        if not isinstance(arguments, dict):
            problem = "invalid_args"
        calls.append(ToolCall(function["name"], arguments, str(call.get("id") or "")))
    return Message("assistant", text_in(message), tuple(calls)), problem


def _arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return parse_body(arguments.encode("utf-8", "replace")) if arguments.strip() else {}
    except ValueError:
        return arguments


def text_in(message: Mapping[str, Any]) -> str:
    """Return the text of an assistant message, which some providers give in parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _finish_problem(choice: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    reason = choice.get("finish_reason")
    if reason in ("length", "max_tokens"):
        return "length"
    if reason in ("content_filter", "refusal") or message.get("refusal"):
        return "refusal"
    return ""


def _action_problem(action: Message, known_tools: Collection[str]) -> str:
    if not action.tool_calls:
        return "text_only" if action.content.strip() else "empty"
    if known_tools and any(call.name not in known_tools for call in action.tool_calls):
        return "unknown_tool"
    return ""


# ------------------------------------------------------------------------------------------------------------ route


def _route_problem(teacher: Teacher, served: str, provider: str) -> str:
    names = (teacher.model, *teacher.serves)
    if served and not any(same_model(name, served) for name in names):
        return "route_mismatch"
    if teacher.server and provider and _plain(provider) != _plain(teacher.server):
        return "route_mismatch"
    return ""


def same_model(asked: str, served: str) -> bool:
    """Return whether two ids name the same model, whatever their vendor, order of words, date and revision.

    `anthropic/claude-opus-4.7` and `claude-4.7-opus-20260401` are one model, `gpt-5` and `gpt-5-mini` are two.
    """
    return asked == served or _name_parts(asked) == _name_parts(served)


def _name_parts(model: str) -> list[str]:
    name = re.split(r"[:@]", model.lower().rstrip("/"))[0].rsplit("/", 1)[-1]
    return sorted(word for word in re.split(r"[-._\s]+", name) if word and not re.fullmatch(r"\d{4}|\d{6}|\d{8}", word))


def _plain(provider: str) -> str:
    # "Novita AI" and "novita", "Google Vertex" and "google-vertex"
    return re.sub(r"[^a-z0-9]|ai$", "", provider.lower().split("/")[0])


# ------------------------------------------------------------------------------------------------------------- cost


def usage_of(response: Mapping[str, Any]) -> TokenCounts:
    """Read token counts in the shapes of OpenAI, OpenRouter, DeepSeek and Anthropic."""
    usage = response.get("usage")
    if not isinstance(usage, Mapping):
        return TokenCounts()
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, Mapping) else {}
    cached = [details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"), usage.get("cache_read_input_tokens")]
    written = [details.get("cache_write_tokens"), usage.get("cache_creation_input_tokens")]
    prompt = _count(usage.get("prompt_tokens"))
    num_cached = next((c for c in map(_count, cached) if c), 0)
    return TokenCounts(
        prompt,
        _count(usage.get("completion_tokens")),
        num_cached if prompt is None else min(num_cached, prompt),
        next((c for c in map(_count, written) if c), 0),
    )


def cost_of(response: Mapping[str, Any], teacher: Teacher) -> tuple[int | None, str]:
    """Return the cost and its source: the endpoint's cost, its estimate, or its tokens at the stamped price."""
    usage = response.get("usage")
    if not isinstance(usage, Mapping):
        return None, "worst_case"
    if (cost := from_usd(usage.get("cost"))) is not None:
        details = usage.get("cost_details")
        # If the user brings a key of the provider, `cost` is only the router's fee.
        if usage.get("is_byok") and isinstance(details, Mapping):
            cost += from_usd(details.get("upstream_inference_cost")) or 0
        return cost, "usage"
    if (cost := from_usd(usage.get("estimated_cost"))) is not None:
        return cost, "estimated"
    counted = usage_of(response)
    if counted.prompt_tokens is None or counted.output_tokens is None:
        return None, "worst_case"
    cost = teacher.price.cost(
        counted.prompt_tokens, counted.output_tokens, cached=counted.cached_tokens, written=counted.written_tokens
    )
    return cost, "price"


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_TOKENS_SEEN:
        return None
    return int(value)
