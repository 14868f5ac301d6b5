"""Pairs without teachers: where the student's own later action proves what was right.

In: traces with error sites. Out: pairs of the context before a failure, the call that worked later, and the call that
failed. The proof is the one of hindsight hints (`hints/corrections.py`): the environment names what is wrong, the later
call lacks it and is otherwise alike, and nothing in between made the failed call right. It costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from composer_hub.actions.action import Actions, actions_of
from composer_hub.hints.context import SiteContext, context_of
from composer_hub.hints.corrections import correction_of
from composer_hub.pairs.parts import TracePairs, finished
from composer_hub.pairs.report import BallotSummary
from composer_hub.pairs.rows import PairOptions, duplicate_key, pair_row, published_tools
from composer_hub.records import Message, Pair, Step, ToolCall, Trace

KIND = "own_repair"


def repairs(trace: Trace, options: PairOptions | None = None) -> tuple[list[Pair], Counter[str]]:
    """Return the pairs that a trace proves by itself, and why the student's other failures gave none.

    It leaves none aside: `make_repairs` does.
    """
    pairs: dict[str, Pair] = {}
    drops: Counter[str] = Counter()
    tools, actions = published_tools(trace), actions_of(trace)
    for position, step in enumerate(trace.steps):
        chosen, reason = _repaired(trace, position, step, actions)
        if chosen is None:
            drops.update([reason] if reason else [])
            continue
        pair = pair_row(trace, step, chosen, tools=tools, options=options or PairOptions(), kind=KIND)
        if duplicate_key(pair) in pairs:
            drops["duplicate"] += 1
        pairs.setdefault(duplicate_key(pair), pair)
    return list(pairs.values()), drops


def repair_parts(traces: Iterable[Trace], options: PairOptions) -> Iterator[TracePairs]:
    """Yield what each trace gives."""
    for trace in traces:
        pairs, drops = repairs(trace, options)
        if pairs or drops:
            keyed = {bytes.fromhex(duplicate_key(pair)): pair for pair in pairs}
            yield finished(trace, keyed, drops, [BallotSummary(trace.trace_id, ())], options)


def _repaired(trace: Trace, position: int, step: Step, actions: Actions) -> tuple[Message | None, str]:
    """Return the student's message with the call that worked in place of each that failed, or why there is none."""
    student = trace.messages[step.action]
    faults = [site for site in step.error_sites if site.blame == "model"]
    if not faults or not student.tool_calls:
        return None, ""
    calls = {call.call_id: call for call in student.tool_calls}
    for site in faults:
        context = context_of(trace, position, site, actions)
        right = _call_that_worked(trace, context)
        if context.call is None or calls.get(context.call.call_id) != context.call:
            return None, "no_call_failed"  # the message as a whole did, or a call inside of a script
        if right is None:
            return None, "no_proof"
        calls[context.call.call_id] = replace(right, call_id=context.call.call_id)
    if tuple(calls.values()) == student.tool_calls:
        return None, "same_call_again"
    return replace(student, content="", tool_calls=tuple(calls[call.call_id] for call in student.tool_calls)), ""


def _call_that_worked(trace: Trace, context: SiteContext) -> ToolCall | None:
    found = correction_of(context)
    if found is None or found.call is None:
        return None
    # A call that a script makes is no action of the student's.
    made = (call for step in trace.steps for call in trace.messages[step.action].tool_calls)
    return found.call if any(call is found.call or call == found.call for call in made) else None
