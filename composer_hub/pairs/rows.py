"""A pair as it is published: a step and the chosen answer -> a `Pair` row for `DPOTrainer`.

A pair holds the action alone: the calls are compared and trained on, the words beside them are in separate columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from composer_hub.actions.arguments import parsed_arguments
from composer_hub.actions.schemas import inferred
from composer_hub.actions.tools import family_of_tool
from composer_hub.options import option
from composer_hub.pairs.policy import Policy
from composer_hub.pairs.prompts import as_object, read_prompt
from composer_hub.pairs.windows import MAX_TOKENS, counter, is_supported, window_of
from composer_hub.records import Message, Pair, Step, ToolCall, Trace, stable_id

TEST_SHARE = 0.05
ASIDE = ("unsupported", "student_did_later", "bookkeeping")
"""Why a pair is left out, unless it is asked for."""


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How votes become pairs."""

    policy: Policy | None = None  # None: the policy that the votes were collected for
    with_prose: bool = option(False, "Keep the words beside the calls in chosen and rejected.")
    max_tokens: int = option(MAX_TOKENS, "Window of prompt, tools and answer, in tokens (0: whole prompts).")
    tokenizer: Any = None  # of transformers, which counts by its chat template; None: an estimate
    keep: tuple[str, ...] = option(
        (), "Keep pairs that are left out otherwise; their column says why. May be given again.", choices=ASIDE
    )

    def facts(self) -> dict[str, Any]:
        """Return the fields that a manifest has besides the policy."""
        tokenizer = getattr(self.tokenizer, "name_or_path", "")
        return {"with_prose": self.with_prose, "max_tokens": self.max_tokens, "tokenizer": tokenizer, "keep": self.keep}


def reason_aside(pair: Pair, keep: Collection[str] = ()) -> str:
    """Return why a pair is left out, "" if it is not."""
    reasons = (not pair.supported, pair.student_did_later, pair.bookkeeping)
    return next((name for name, holds in zip(ASIDE, reasons, strict=True) if holds and name not in keep), "")


def pair_row(
    trace: Trace,
    step: Step,
    answer: Message,
    *,
    tools: tuple[dict[str, Any], ...],
    options: PairOptions,
    **origin: Any,
) -> Pair:
    """Return the pair that prefers an answer over the student's action, with the window of its prompt.

    `origin` are the fields of the answer's origin.
    """
    student = trace.messages[step.action]
    chosen = published_action(answer, with_prose=options.with_prose)
    rejected = published_action(student, with_prose=options.with_prose)
    answers, limit, count = (chosen, rejected), options.max_tokens, counter(options.tokenizer)
    prompt = read_prompt(trace, step)
    window = window_of(prompt, answers, tools, lambda view, used: not limit or count(view, used, answers) <= limit)
    sites = sorted(step.error_sites, key=lambda site: site.blame != "model")
    return Pair(
        pair_id=pair_id_of(trace.trace_id, step.step_id, (chosen,), (rejected,)),
        trace_id=trace.trace_id,
        step_id=step.step_id,
        index=step.index,
        num_steps=len(trace.steps),
        prompt=window.messages,
        chosen=(chosen,),
        rejected=(rejected,),
        tools=window.tools,
        source_model=step.model or trace.model,
        source_family=step.family or trace.family,
        error_kind=sites[0].kind if sites else "",
        after_error=_follows_error(trace, step),
        resolved=trace.resolved,
        chosen_text=answer.content,
        rejected_text=student.content,
        license=trace.license,
        repository=trace.repository,
        num_left_out=window.num_left_out,
        num_tokens=count(window.messages, window.tools, answers),
        num_shortened=window.num_shortened,
        supported=is_supported(window.messages, chosen, prompt),
        bookkeeping=any(map(keeps_books, answers)),
        **origin,
    )


def keeps_books(action: Message) -> bool:
    """Return whether an action only keeps lists."""
    calls = action.tool_calls
    return bool(calls) and all(family_of_tool(call.name, call.arguments) == "bookkeeping" for call in calls)


def pair_id_of(trace_id: str, step_id: str, chosen: Sequence[Message], rejected: Sequence[Message]) -> str:
    """Return the id of a pair: a preference at a step keeps its id, whichever teachers voted for it."""
    return stable_id("pair", trace_id, step_id, list(chosen), list(rejected))


def published_action(action: Message, *, with_prose: bool = False) -> Message:
    """Return an action as both sides of a pair carry it: no thinking, objects as arguments, ids that reveal nothing."""
    calls = tuple(
        # Providers write ids in their own style; the strictest template takes nine letters and digits.
        ToolCall(call.name, parsed_arguments(call) or {}, stable_id("call", number)[:9])
        for number, call in enumerate(action.tool_calls)
    )
    return Message("assistant", action.content if with_prose else "", calls)


def published_prompt(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return a prompt without thinking and with an object as arguments of every call, as chat templates want it."""
    return tuple(_published_message(message) for message in messages)


def _published_message(message: Message) -> Message:
    calls = tuple(
        call if isinstance(call.arguments, dict) else replace(call, arguments=as_object(call))
        for call in message.tool_calls
    )
    if not message.reasoning_content and calls == message.tool_calls:
        return message
    return replace(message, reasoning_content="", tool_calls=calls)


def published_tools(trace: Trace) -> tuple[dict[str, Any], ...]:
    """Return the tools as schemas; a tool of which only the name is known gets one made from its calls."""
    listed: dict[str, Mapping[str, Any]] = {}
    for tool in trace.tools:
        function = tool.get("function", tool)
        if function.get("name"):
            listed.setdefault(function["name"], function)
    seen: dict[str, list[Mapping[str, Any]]] = {}
    for call in (call for message in trace.messages for call in message.tool_calls):
        seen.setdefault(call.name, []).append(parsed_arguments(call) or {})
    recorded = trace.tools_source == "recorded"
    return tuple(
        _tool(name, listed.get(name, {}), seen.get(name, []), recorded) for name in list(listed) or sorted(seen)
    )


def _tool(name: str, function: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], recorded: bool) -> dict[str, Any]:
    parameters = function.get("parameters") or function.get("input_schema")
    if isinstance(parameters, str):
        parameters = json.loads(parameters)
    # Traces of earlier versions list tools that were only called with an empty schema.
    if not parameters or not (recorded or parameters.get("properties")):
        parameters = inferred(calls)
    about = {"name": name, "description": function.get("description") or "", "parameters": dict(parameters)}
    return {"type": "function", "function": about}


def _follows_error(trace: Trace, step: Step) -> bool:
    """Return whether the action that the student read last before this step had gone wrong."""
    read = (index for start, stop in reversed(step.prompt) for index in range(stop - 1, start - 1, -1))
    last = next((index for index in read if trace.messages[index].role == "assistant"), None)
    return any(before.action == last and before.error_sites for before in trace.steps)


def duplicate_key(pair: Pair) -> str:
    """Return a digest of prompt, chosen and rejected: two pairs that share it would train the same thing twice."""
    return stable_id(pair.prompt, pair.chosen, pair.rejected)


def split_of(row: Trace | Pair, *, test_share: float = TEST_SHARE) -> str:
    """Return train or test, the same for all rows of a repository (or of a trace that has none)."""
    key = row.repository or getattr(row, "parent_trace_id", "") or row.trace_id
    place = int.from_bytes(hashlib.sha256(f"split:{key}".encode("utf-8", "surrogatepass")).digest()[:8], "big")
    return "test" if place < test_share * 2**64 else "train"
