"""Traces and pairs as rows that verl's `RLHFDataset` reads from Parquet.

A trace gives one row per step with a hint; a pair gives one row. The columns are `data_source`, `prompt`, `ability`,
`reward_model` and `extra_info`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from composer_hub.records import Message, Pair, Trace, action_text, prompt_of

if TYPE_CHECKING:
    from datasets import Features

ABILITY = "coding_agent"
# Text fields of `extra_info`: the same in every row, empty if a row has no value for one.
_FIELDS = """
split trace_id step_id pair_id tools error_kind error_message hint hint_writer student_action chosen rejected
"""


def features() -> Features:
    """Return the features of the rows."""
    from datasets import Features, Json, List, Value

    return Features(
        {
            "data_source": Value("string"),
            # A struct would give every message every key, and chat templates ask which keys are there.
            "prompt": List(Json()),
            "ability": Value("string"),
            "reward_model": {"style": Value("string"), "ground_truth": Value("string")},
            "extra_info": {"index": Value("int64"), **{name: Value("string") for name in _FIELDS.split()}},
        }
    )


def site_rows(trace: Trace, split: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each step with a hint: its prompt, the error and the hint."""
    for step in trace.steps:
        prompt = prompt_of(trace, step)
        if not step.hints or not prompt:
            continue
        hint = step.hints[0]
        site = next((s for s in step.error_sites if (s.kind, s.call_id) == (hint.kind, hint.call_id)), None)
        extra = {
            "trace_id": trace.trace_id,
            "step_id": step.step_id,
            "tools": _json(trace.tools),
            "error_kind": hint.kind,
            "error_message": site.message if site else "",
            "hint": hint.text,
            "hint_writer": hint.writer,
            "student_action": action_text(trace.messages[step.action]),
        }
        # The right action is unknown, so the ground truth stays empty.
        yield _row(f"composer_hub/{trace.source}", prompt, "", split, extra)


def pair_row(pair: Pair, split: str) -> dict[str, Any]:
    """Return a pair's row: the teachers' action is the ground truth."""
    extra = {
        "trace_id": pair.trace_id,
        "step_id": pair.step_id,
        "pair_id": pair.pair_id,
        "tools": _json(pair.tools),
        "error_kind": pair.error_kind,
        "student_action": _text(pair.rejected),
        "chosen": _json([message.to_chat() for message in pair.chosen]),
        "rejected": _json([message.to_chat() for message in pair.rejected]),
    }
    return _row("composer_hub/pairs", pair.prompt, _text(pair.chosen), split, extra)


def _row(source: str, prompt: Sequence[Message], truth: str, split: str, extra: dict[str, str]) -> dict[str, Any]:
    return {
        "data_source": source,
        "prompt": [message.to_chat() for message in prompt],
        "ability": ABILITY,
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {**dict.fromkeys(_FIELDS.split(), ""), **extra, "split": split},
    }


def _text(side: Sequence[Message]) -> str:
    return "\n".join(text for message in side if (text := action_text(message)))


def _json(value: Any) -> str:
    # Not sorted: chat templates render a call's arguments in their order.
    return json.dumps(value, ensure_ascii=False)
