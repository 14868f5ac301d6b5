"""Rewrite the texts of a trace, and remove what depends on a text that changes.

In: a trace and a function for texts. Out: the trace with each text rewritten. Ids, roles, types, tool names, argument
names, model names and numbers stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from composer_hub.records import Message, Step, ToolCall, Trace

Rewrite = Callable[[str, str], str]
"""Return the replacement of (text, the JSON key it is under)."""

_DESCRIPTIVE = frozenset(("description", "title", "default", "example", "examples", "const"))
_TEXTLESS = frozenset((int, float, bool, type(None)))
"""Token ids and log-probs come in lists of thousands."""


def map_named(trace: Trace, rewrite: Rewrite) -> Trace:
    """Return the trace with each text rewritten, given the key it is under."""
    return replace(
        trace,
        messages=tuple(_map_message(message, rewrite) for message in trace.messages),
        steps=tuple(_map_step(step, rewrite) for step in trace.steps),
        tools=tuple(_map_schema(tool, rewrite) for tool in trace.tools),
        cwd=rewrite(trace.cwd, ""),
        repository=rewrite(trace.repository, ""),
        provenance=_map_json(trace.provenance, rewrite, ""),
    )


def map_strings(trace: Trace, rewrite: Callable[[str], str]) -> Trace:
    """Return the trace with each text rewritten."""
    return map_named(trace, lambda text, name: rewrite(text))


def _map_message(message: Message, rewrite: Rewrite) -> Message:
    content = rewrite(message.content, "")
    reasoning = rewrite(message.reasoning_content, "") if message.reasoning_content else ""
    calls = tuple(
        ToolCall(call.name, _map_json(call.arguments, rewrite, ""), call.call_id) for call in message.tool_calls
    )
    if content == message.content and reasoning == message.reasoning_content and calls == message.tool_calls:
        return message
    return replace(message, content=content, reasoning_content=reasoning, tool_calls=calls)


def _map_step(step: Step, rewrite: Rewrite) -> Step:
    if not step.error_sites and not step.hints:
        return step
    return replace(
        step,
        error_sites=tuple(replace(site, message=rewrite(site.message, "")) for site in step.error_sites),
        hints=tuple(replace(hint, text=rewrite(hint.text, "")) for hint in step.hints),
    )


def _map_json(value: Any, rewrite: Rewrite, name: str) -> Any:
    if isinstance(value, str):
        return rewrite(value, name)
    if isinstance(value, Mapping):
        return {_map_key(key, rewrite): _map_json(item, rewrite, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not _TEXTLESS.issuperset(map(type, value)):
        return type(value)(_map_json(item, rewrite, name) for item in value)
    return value


def _map_key(key: str, rewrite: Rewrite) -> str:
    """Keep a key that is a name; one that is a path or an address is text."""
    return rewrite(key, "") if any(c in key for c in "/\\@") else key


def _map_schema(schema: Any, rewrite: Rewrite) -> Any:
    """Rewrite the descriptions in the schema of a tool, not its structure."""
    if isinstance(schema, Mapping):
        return {
            key: _map_json(item, rewrite, "")
            if key in _DESCRIPTIVE and not isinstance(item, Mapping)
            else _map_schema(item, rewrite)
            for key, item in schema.items()
        }
    if isinstance(schema, (list, tuple)):
        return type(schema)(_map_schema(item, rewrite) for item in schema)
    return schema


# ---------------------------------------------------------------------------------------------- numbers that spell text

DROPPED_COLUMNS = "token_columns_dropped"
"""Key of `Trace.counts` for the number of lists that were emptied."""
_TOKENIZER = "tokenizer"
"""Key of `Trace.provenance` for the tokenizer of the ids; without ids it means nothing."""


def without_tokens_of_changed_text(before: Trace, after: Trace) -> Trace:
    """Return the redacted trace, without the token ids that would spell the original if a text was changed."""
    if (before.messages, before.tools, before.steps) == (after.messages, after.tools, after.steps):
        return after
    emptied, number = _emptied(after.provenance)
    if not number:
        return after
    # The keys stay, so that all rows have the same columns; without a tokenizer the messages are tokenized again.
    provenance = {**emptied, **({_TOKENIZER: ""} if _TOKENIZER in emptied else {})}
    return replace(after, provenance=provenance, counts={**after.counts, DROPPED_COLUMNS: number})


def _emptied(value: Any) -> tuple[Any, int]:
    """Return a JSON value with its lists of numbers emptied, and their count."""
    if isinstance(value, dict):
        parts = {key: _emptied(item) for key, item in value.items()}
        return {key: part for key, (part, _) in parts.items()}, sum(number for _, number in parts.values())
    if not isinstance(value, (list, tuple)):
        return value, 0
    if any(isinstance(item, (int, float)) for item in value):
        return [], 1
    pairs = [_emptied(item) for item in value]
    number = sum(count for _, count in pairs)
    if number and all(isinstance(item, (list, tuple)) for item in value):
        return [], 1  # a list of spans is one column
    return [part for part, _ in pairs], number
