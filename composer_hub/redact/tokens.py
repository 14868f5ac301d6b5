"""Numbers that spell a text: where redaction changed the text, they go, since they would give it back.

In: a trace before and after redaction. Out: the trace without its token ids, masks and log-probs if its text differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from composer_hub.records import Trace

COUNT = "token_columns_dropped"
"""In `Trace.counts`: how many lists of numbers went."""
DIGEST = "tokenizer"
"""In `Trace.provenance`: under which tokenizer the ids mean something; without ids it means nothing."""


def without_tokens_of_changed_text(before: Trace, after: Trace) -> Trace:
    """Return the redacted trace; if what the model read or said was changed, every list of numbers in it is empty."""
    if (before.messages, before.tools, before.steps) == (after.messages, after.tools, after.steps):
        return after
    emptied, number = _emptied(after.provenance)
    if not number:
        return after
    # The keys stay, so that all rows have the same; without a tokenizer the messages are tokenised anew.
    provenance = {**emptied, **({DIGEST: ""} if DIGEST in emptied else {})}
    return replace(after, provenance=provenance, counts={**after.counts, COUNT: number})


def _emptied(value: Any) -> tuple[Any, int]:
    """Return a JSON value with its lists of numbers emptied, and how many these were."""
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
        return [], 1  # a list of spans is one column, not as many as it has spans
    return [part for part, _ in pairs], number
