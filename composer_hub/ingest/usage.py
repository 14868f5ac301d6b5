"""The tokens that providers counted, as a proof of prompts: usage in, reasons and an audit out.

A provider reports how many tokens the model read at each step. Between two neighboring steps our prompt grows by some
characters, and the count must grow with it. If it falls instead, the harness edited the context without a record of it,
and prompts are not exact from there to the next compaction (`context_shrank`). Over all other neighbors, tokens per
character are fitted, and `audit_of` counts the prompts that agree with the fit.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from composer_hub.ingest.foreign import as_dict, as_int
from composer_hub.records import Message, Ranges, Step, from_the_end, message_chars
from composer_hub.session import Usage

SHRANK = "context_shrank"
MAX_JITTER = 1000
"""Tokens by which a context may fall without an edit: harnesses put short reminders into it and take them out again."""
MAX_HIDDEN_THINKING = 8000
"""Tokens of thinking in one turn, if neither its text nor a whole count of it is recorded."""
CHARS_PER_TOKEN = 2  # of thinking, so that the estimate is rather too high
MIN_CHARS = 200  # of the growth between two steps, for the fit
MIN_PAIRS = 5  # for a fit
AGREES = (0.5, 2.0, 300)
"""A prompt agrees if it grew by half to twice the fitted tokens, give or take this many."""

_SEPARATE = ("input_tokens", "input")  # these leave out what was read from a cache or written to it
_WHOLE = ("prompt_tokens", "promptTokenCount")
_READ = (
    "cache_read_input_tokens", "cacheRead", "input_tokens_cache_read", "cached_input_tokens", "cachedContentTokenCount",
    "cached",
)  # fmt: skip
_WRITTEN = ("cache_creation_input_tokens", "cacheWrite", "input_tokens_cache_write")
_OUTPUT = ("output_tokens", "completion_tokens", "candidatesTokenCount", "output")


def usage_of(value: Any, *, at: Any = "", is_open: bool = False) -> Usage:
    """Return the usage that a harness or provider recorded, in any of their spellings, and the time of the call."""
    record = as_dict(value)
    when = str(at) if at else ""
    if not record:
        return Usage(at=when)
    output, cache = _first(record, _OUTPUT), as_dict(record.get("cache"))
    details = as_dict(record.get("prompt_tokens_details"))
    read = _first(record, _READ) or _count(cache, "read") or _count(details, "cached_tokens")
    written = _first(record, _WRITTEN) or _count(cache, "write")
    context = _first(record, _WHOLE) or _first(record, _SEPARATE) + read + written
    read = min(read, context)
    written = min(written, context - read)
    hour = min(written, _count(as_dict(record.get("cache_creation")), "ephemeral_1h_input_tokens"))
    return Usage(context, output, read, written - hour, hour, is_open, when)


def _first(record: Mapping[str, Any], names: Sequence[str]) -> int:
    return next((count for name in names if (count := _count(record, name))), 0)


def _count(record: Mapping[str, Any], name: str) -> int:
    return max(0, as_int(record.get(name)) or 0)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two neighboring steps of one model whose provider counted both prompts, the later prompt holding the earlier."""

    later: int
    tokens: int  # by which the context grew; negative if it fell
    chars: int
    thoughts: int  # tokens of thinking that ended with a turn between the two, which providers drop


def checked(
    pool: Sequence[Message], steps: Sequence[Step], usages: Sequence[Usage]
) -> tuple[list[Step], dict[str, int]]:
    """Return the steps with `context_shrank` set if it holds, and an audit of the others (or {})."""
    if not any(usage.context for usage in usages):
        return list(steps), {}
    parents = _parents(steps)
    pairs = {pair.later: pair for pair in _pairs(pool, steps, usages, parents)}
    shrunk: set[int] = set()
    for place in sorted(range(len(steps)), key=lambda at: steps[at].action):
        pair = pairs.get(place)
        if parents[place] in shrunk or (pair and pair.tokens + pair.thoughts < -MAX_JITTER):
            shrunk.add(place)
    marked = [_marked(step) if place in shrunk else step for place, step in enumerate(steps)]
    exact = [
        pair
        for place, pair in pairs.items()
        if marked[place].prefix_exact and not pair.thoughts and pair.chars >= MIN_CHARS
    ]
    return marked, audit_of(exact, sum(bool(usage.context) for usage in usages))


def audit_of(pairs: Sequence[_Pair], num_steps: int) -> dict[str, int]:
    """Return how many steps have usage, the growth that was fitted, and how many prompts agree with the fit."""
    audit = {"num_steps": num_steps, "num_compared": 0, "num_agree": 0, "num_tokens": 0, "num_chars": 0}
    if len(pairs) < MIN_PAIRS:
        return audit
    fitted = statistics.median(pair.tokens / pair.chars for pair in pairs)
    least, most, slack = AGREES
    audit["num_compared"] = len(pairs)
    for pair in pairs:
        expected = fitted * pair.chars
        audit["num_agree"] += least * expected - slack <= pair.tokens <= most * expected + slack
        audit["num_tokens"] += pair.tokens
        audit["num_chars"] += pair.chars
    return audit


def _marked(step: Step) -> Step:
    reasons = dict.fromkeys(filter(None, [*step.prefix_reason.split("; "), SHRANK]))
    return dataclasses.replace(step, prefix_exact=False, prefix_reason="; ".join(reasons))


def _parents(steps: Sequence[Step]) -> list[int]:
    """Return, for each step, the step that its prompt ends with, if it holds all of that step's prompt; else -1."""
    places = {step.action: place for place, step in enumerate(steps)}
    parents = []
    for step in steps:
        last = next((places[index] for index in from_the_end(step.prompt) if index in places), -1)
        parents.append(last if last >= 0 and _holds(step.prompt, steps[last].prompt) else -1)
    return parents


def _pairs(
    pool: Sequence[Message], steps: Sequence[Step], usages: Sequence[Usage], parents: Sequence[int]
) -> Iterator[_Pair]:
    sums = [0, *accumulate(message_chars(message) + len(message.reasoning_content) for message in pool)]
    sizes = [sum(sums[stop] - sums[start] for start, stop in step.prompt) for step in steps]
    known: dict[int, int] = {}  # step -> the last step down to it whose tokens were counted
    thoughts: dict[int, int] = {}  # step -> tokens of thinking in its turn, down to it
    for place in sorted(range(len(steps)), key=lambda at: steps[at].action):
        step, above = steps[place], parents[place]
        ends = above >= 0 and not pool[steps[above].action].tool_calls
        so_far = thoughts[above] if above >= 0 and not ends else 0
        thoughts[place] = max(so_far, MAX_HIDDEN_THINKING) if _hides(step) else so_far
        thoughts[place] += _thinking(pool[step.action], step, usages[place])
        before = known.get(above, -1)
        if usages[place].context:
            known[place] = place
            if before >= 0 and steps[before].model == step.model:
                tokens = usages[place].context - usages[before].context
                dropped = thoughts[above] if ends else 0
                yield _Pair(place, tokens, sizes[place] - sizes[before], dropped)
        elif before >= 0:
            known[place] = before


def _hides(step: Step) -> bool:
    return step.reasoning_status in ("encrypted", "summary")


def _thinking(action: Message, step: Step, usage: Usage) -> int:
    """Return the most tokens of thinking that a step may have written; some logs count only its first words."""
    if step.reasoning_status == "absent":
        return 0
    return max(usage.output, len(action.reasoning_content) // CHARS_PER_TOKEN)


def _holds(prompt: Ranges, earlier: Ranges) -> bool:
    """Return whether a prompt has every message of an earlier one."""
    return all(any(start <= first and last <= stop for start, stop in prompt) for first, last in earlier)
