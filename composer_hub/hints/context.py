"""What a hint writer may know about an error site: the call, its answer, the tools, what came later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from composer_hub.actions.action import Actions, action_at
from composer_hub.hints.hindsight import steps_after
from composer_hub.hints.templates import LaterCall, SiteContext
from composer_hub.records import ErrorSite, Step, Trace

MAX_LATER_CALLS = 8


def context_of(trace: Trace, position: int, site: ErrorSite, actions: Actions) -> SiteContext:
    """Collect the facts of a trace about one site of the step at a position."""
    step = trace.steps[position]
    met = action_at(site, actions[position])
    return SiteContext(
        site=site,
        call=met.call if met else None,
        available_tools=_tools_of(trace, position, site.tool),
        tool_schema=_schema_of(trace, site.tool),
        answer=(met.content or "") if met else "",
        later=tuple(_later_calls(trace, position, actions)),
        user_words=_user_words(trace, position) if site.blame == "user" else "",
        trace=trace,
        step=step,
    )


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = tool.get("function")
    return inner if isinstance(inner, Mapping) else tool


def _tools_of(trace: Trace, position: int, failed: str) -> tuple[str, ...]:
    named = [str(_function(tool).get("name") or "") for tool in trace.tools]
    if trace.tools_source != "recorded":  # a name that only a later call shows was not known here
        unseen = set(named)
        for step in islice(
            trace.steps, position
        ):  # most tools are used early: a long session is not read for each site
            unseen.difference_update(call.name for call in trace.messages[step.action].tool_calls)
            if not unseen:
                break
        named = [name for name in named if name not in unseen]
    # Without a recorded tool list, it holds every name that the model called, including the wrong one.
    wrong = failed if trace.tools_source != "recorded" else ""
    return tuple(name for name in dict.fromkeys(named) if name and name != wrong)


def _schema_of(trace: Trace, name: str) -> Mapping[str, Any] | None:
    for tool in map(_function, trace.tools):
        schema = tool.get("parameters") or tool.get("input_schema")
        if tool.get("name") == name and isinstance(schema, Mapping):
            return schema
    return None


def _later_calls(trace: Trace, position: int, actions: Actions) -> Iterator[LaterCall]:
    count = 0
    for step in steps_after(trace, position):
        failed = {(site.call_id, site.tool) for site in step.error_sites}
        for outcome in actions[step.index]:
            ok = outcome.content is not None and (outcome.call.call_id, outcome.call.name) not in failed
            yield LaterCall(outcome.call, ok)
            count += 1
            if count == MAX_LATER_CALLS:
                return


def _user_words(trace: Trace, position: int) -> str:
    following = next(steps_after(trace, position), None)
    if following is None:
        return ""
    after = (trace.messages[index] for index in _indices_after(following, trace.steps[position].action))
    texts = (message.content for message in after if message.role == "user")
    return next((text for text in texts if text and not text.startswith(("[Request interrupted", "<", "Caveat:"))), "")


def _indices_after(step: Step, action: int) -> Iterator[int]:
    ranges = iter(step.prompt)
    for start, stop in ranges:
        if start <= action < stop:
            yield from range(action + 1, stop)
            break
    for start, stop in ranges:
        yield from range(start, stop)
