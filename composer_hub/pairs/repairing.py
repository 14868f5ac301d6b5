"""Pairs without teachers: the student's own later action proves what was right.

In: traces with error sites. Out: pairs of the context before a failure, the call that worked later, and the call that
failed. The proof is the one of hindsight hints (`errors/corrections.py`): the environment names what is wrong, the
later call lacks it and is otherwise alike, and nothing in between made the failed call right. More is asked here than
for a hint: the later call must do all that the failed one was for, and name no path that was learned only later. It
costs nothing. A failed step without a pair has one of these reasons:

    several_calls: the message has several calls, and no later call proves all of them
    no_call_failed: the message itself failed, or a call that a script made
    no_proof: no later call proves what was right
    another_purpose: the later call does not do all that the failed one was for
    learned_later: the later call names a path that no earlier message shows
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from composer_hub.actions.action import Action, Actions, actions_of
from composer_hub.actions.calls import command_of
from composer_hub.errors.context import context_of
from composer_hub.errors.corrections import Correction, correction_of
from composer_hub.pairs.evidence import texts_in, texts_of
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
    """Yield the repairs of each trace."""
    for trace in traces:
        pairs, drops = repairs(trace, options)
        if pairs or drops:
            keyed = {bytes.fromhex(duplicate_key(pair)): pair for pair in pairs}
            yield finished(trace, keyed, drops, [BallotSummary(trace.trace_id, ())], options)


def _repaired(trace: Trace, position: int, step: Step, actions: Actions) -> tuple[Message | None, str]:
    """Return the student's message with the call that worked in place of the one that failed, or why there is none."""
    student = trace.messages[step.action]
    sites = [site for site in step.error_sites if site.blame == "model"]
    if not sites or not student.tool_calls:
        return None, ""
    if len(student.tool_calls) > 1:
        return None, "several_calls"  # the others may be wrong: no call of the session proves the whole
    context = context_of(trace, position, sites[0], actions)
    (failed,) = student.tool_calls
    if context.call != failed:
        return None, "no_call_failed"  # the message as a whole did, or a call inside of a script
    found = correction_of(context)
    right = found.call if found else None
    # A call that a script makes is not the student's action.
    if found is None or right is None or not any(right in trace.messages[one.action].tool_calls for one in trace.steps):
        return None, "no_proof"
    before = [trace.messages[at] for start, stop in step.prompt for at in range(start, stop)]
    if not _keeps_purpose(found, failed, right, before):
        return None, "another_purpose"
    if not _could_be_known(failed, right, before):
        return None, "learned_later"
    return replace(student, content="", tool_calls=(replace(right, call_id=failed.call_id),)), ""


def _keeps_purpose(found: Correction, failed: ToolCall, right: ToolCall, before: Sequence[Message]) -> bool:
    """Return whether the later call does what the failed one was for: nothing but the mistake is gone."""
    if found.what == "read":
        # A file that was read before has changed since, and not by the student: not its fault.
        path = Action(failed, None).path
        return not any(Action(call, None).path == path for message in before for call in message.tool_calls)
    if command := command_of(failed):
        return _words(command) - _words(found.wrong) <= _words(command_of(right))
    return found.what in ("text", "path", "tool") or failed.name == right.name


def _could_be_known(failed: ToolCall, right: ToolCall, before: Sequence[Message]) -> bool:
    """Return whether the context or the failed call shows each path of the later one."""
    shown = [*texts_in(failed), *(text for one in before for text in texts_of(one))]
    paths = {word for text in texts_in(right) for word in _words(text) if "/" in word}
    return all(any(path in text for text in shown) for path in paths)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\s'\"`;|&()<>,]+", text))
