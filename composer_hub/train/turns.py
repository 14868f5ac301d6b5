"""Where a live rollout went wrong: its turns, and the error site of each turn that has one.

In: what TRL's tool loop leaves (messages, token ids, tool mask). Out: `Turn`s with their token spans, and `TurnError`s
of the taxonomy that ingest uses, from four sources: error messages of tools, tool markup that did not parse, what the
environment said (text, exit codes), and results that were dropped because they were too long.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from composer_hub.environments.guard import loss_in
from composer_hub.errors.find import Outcome, excerpt, site_of
from composer_hub.records import ErrorSite, ToolCall

_MARKUP = ("<tool_call>", "<function=", "[TOOL_CALLS]", "<|tool_call")
_WRONG_ARGUMENTS = ("positional argument", "unexpected keyword argument", "validation error")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout as the tool loop left it."""

    prompt_ids: list[int]
    completion_ids: list[int]
    tool_mask: list[int]  # 1 on tokens the model sampled
    messages: Sequence[dict[str, Any]]  # of the completion: assistant and tool messages
    rounds_used_up: bool = False  # the loop ended because no further round of tools was allowed
    cut_off: bool = False  # the last turn ran out of tokens


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant message of a rollout: its tokens and what came back."""

    number: int
    start: int  # span of `completion_ids`
    stop: int
    message: dict[str, Any]
    results: tuple[dict[str, Any], ...]
    is_last: bool


@dataclass(frozen=True, slots=True)
class TurnError:
    """An error site in a turn, and the call it belongs to where there is one."""

    turn: Turn
    site: ErrorSite
    call: ToolCall | None = None


def turns(rollout: Rollout) -> list[Turn]:
    """Pair each assistant message with its span: the n-th run of sampled tokens is the n-th assistant message."""
    spans = _runs(rollout.tool_mask)
    starts = [number for number, message in enumerate(rollout.messages) if message["role"] == "assistant"]
    found = []
    for number, (position, (start, stop)) in enumerate(zip(starts, spans, strict=False)):
        following = starts[number + 1] if number + 1 < len(starts) else len(rollout.messages)
        results = tuple(rollout.messages[position + 1 : following])
        is_last = number + 1 == len(starts)
        found.append(Turn(number, start, stop, rollout.messages[position], results, is_last))
    return found


def turn_errors(rollout: Rollout, decode: Any, *, text_rules: bool = True) -> Iterator[TurnError]:
    """Yield the error sites of a rollout in the order of its turns; `decode` turns token ids into text."""
    named = calls_of(rollout.messages)
    for turn in turns(rollout):
        calls = named[turn.number]
        if not calls:
            if turn.is_last and rollout.cut_off:
                continue  # a call that ran out of tokens is not one that was written wrongly
            text = decode(rollout.completion_ids[turn.start : turn.stop])
            if any(mark in text for mark in _MARKUP):
                yield TurnError(turn, _malformed(text))
        elif turn.is_last and not turn.results and not rollout.rounds_used_up:
            yield TurnError(turn, _dropped(calls[0]), calls[0])
        for call, result in _answered(calls, turn.results):
            site = _of_result(call, str(result.get("content", "")), text_rules)
            if site is not None:
                yield TurnError(turn, site, call)


def num_rounds(messages: Sequence[dict[str, Any]]) -> int:
    """Count the rounds of tools that were answered."""
    return sum(
        message["role"] == "tool" and messages[index - 1]["role"] == "assistant"
        for index, message in enumerate(messages)
    )


def said(rollout: Rollout) -> str:
    """Return what the model said in words."""
    return " ".join(str(message.get("content") or "") for message in rollout.messages if message["role"] == "assistant")


def _runs(mask: Sequence[int]) -> list[tuple[int, int]]:
    edges = [i for i in range(len(mask) + 1) if (mask[i - 1] if i else 0) != (mask[i] if i < len(mask) else 0)]
    return list(zip(edges[::2], edges[1::2], strict=True))


def tool_call_of(call: Mapping[str, Any]) -> ToolCall:
    """Read a call as TRL's parser leaves it."""
    function = call.get("function") or call
    return ToolCall(str(function.get("name", "")), function.get("arguments") or {}, str(call.get("id") or ""))


def calls_of(messages: Sequence[Mapping[str, Any]]) -> list[list[ToolCall]]:
    """Return the calls of each assistant message; TRL keeps no call ids, so each call gets its place as its id."""
    numbers = itertools.count(1)
    said = (message.get("tool_calls") or () for message in messages if message["role"] == "assistant")
    return [[replace(tool_call_of(call), call_id=f"call_{next(numbers)}") for call in calls] for calls in said]


def _answered(calls: list[ToolCall], results: Sequence[dict[str, Any]]) -> Iterator[tuple[ToolCall, dict[str, Any]]]:
    """Pair results with calls by name: results have no call ids, and answers of asynchronous tools come last."""
    waiting = list(calls)
    for result in results:
        call = next((call for call in waiting if call.name == result.get("name")), None)
        if call is not None:
            waiting.remove(call)
            yield call, result


def _of_result(call: ToolCall, content: str, text_rules: bool) -> ErrorSite | None:
    raised = _raised(content)
    if raised is None:
        return site_of(Outcome(call, content), text_rules=text_rules)
    lost = loss_in(raised)
    if lost is not None:
        return ErrorSite(lost, "env", "flag", 0.97, "rollout.environment_lost", call.name, call.call_id, raised)
    kind = "runtime_exception"
    if raised == f"Tool {call.name} not found.":
        kind = "tool_not_found"
    elif any(words in raised for words in _WRONG_ARGUMENTS):
        kind = "schema_validation"
    return ErrorSite(kind, "model", "flag", 0.97, f"rollout.{kind}", call.name, call.call_id, excerpt(raised))


def _raised(content: str) -> str | None:
    """Return the error that the tool loop wrote for an exception, or None where the tool itself answered."""
    if not content.startswith("{'error': "):
        return None
    try:
        value = ast.literal_eval(content)
    except (ValueError, SyntaxError):
        return None
    return str(value["error"]) if isinstance(value, dict) and set(value) == {"error"} else None


def _malformed(text: str) -> ErrorSite:
    # TRL takes such a turn for plain text: no tool message, no failure counted, and the rollout ends.
    return ErrorSite("json_decode", "model", "anchor", 0.9, "rollout.malformed_call", message=excerpt(text))


def _dropped(call: ToolCall) -> ErrorSite:
    said = f"The result of {call.name} did not fit into the rollout and was dropped."
    return ErrorSite("output_limit", "model", "flag", 0.9, "rollout.dropped_result", call.name, call.call_id, said)
