"""The evidence about an error site: the call, its answer, the tools, and the calls that came later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from composer_hub.actions.action import Action, Actions, action_at
from composer_hub.records import ErrorSite, Step, ToolCall, Trace

MAX_LATER_STEPS = 10


@dataclass(frozen=True, slots=True)
class LaterCall:
    """A later call of the session with its result, and whether it succeeded."""

    action: Action
    ok: bool


@dataclass(frozen=True, slots=True)
class SiteContext:
    """An error site and its context, for blame and hints; only the site itself is always set."""

    site: ErrorSite
    call: ToolCall | None = None
    available_tools: tuple[str, ...] = ()
    answer: str = ""  # the whole result of the call; the site's message is an excerpt
    later: tuple[LaterCall, ...] = ()  # the calls of the next steps, in order
    user_words: str = ""  # the user's next message
    trace: Trace | None = None
    step: Step | None = None


def context_of(trace: Trace, position: int, site: ErrorSite, actions: Actions) -> SiteContext:
    """Collect the facts of a trace about one site of the step at a position."""
    step = trace.steps[position]
    met = action_at(site, actions[position])
    return SiteContext(
        site=site,
        call=met.call if met else None,
        available_tools=_tools_of(trace, position, site.tool) if site.kind == "tool_not_found" else (),
        answer=(met.content or "") if met else "",
        later=tuple(_later_calls(trace, position, actions)),
        user_words=_user_words(trace, position) if site.blame == "user" else "",
        trace=trace,
        step=step,
    )


def steps_after(trace: Trace, position: int) -> Iterator[Step]:
    """Yield the later steps whose prompt contains this one, so that rewound branches are left out."""
    action = trace.steps[position].action
    for later in range(position + 1, len(trace.steps)):  # no copy of the rest: a session may have 100,000 steps
        step = trace.steps[later]
        if any(start <= action < stop for start, stop in step.prompt):
            yield step


def next_success(trace: Trace, steps: Iterable[Step]) -> Step | None:
    """Return the first of some steps that made calls and had no error."""
    return next((step for step in steps if trace.messages[step.action].tool_calls and not step.error_sites), None)


def _tools_of(trace: Trace, position: int, failed: str) -> tuple[str, ...]:
    functions = (tool.get("function", tool) for tool in trace.tools)
    named = [str(one.get("name") or "") for one in functions if isinstance(one, Mapping)]
    if trace.tools_source != "recorded":
        # Then the list holds every name that the model ever called: also the wrong one, and later ones.
        unseen = {*named, failed}
        for step in islice(trace.steps, position):  # a long session is not read for each site
            wrong = {site.tool for site in step.error_sites if site.kind == "tool_not_found"}
            unseen.difference_update({call.name for call in trace.messages[step.action].tool_calls} - wrong)
            if unseen <= {failed}:
                break
        named = [name for name in named if name not in unseen and name != failed]
    return tuple(dict.fromkeys(filter(None, named)))


def _later_calls(trace: Trace, position: int, actions: Actions) -> Iterator[LaterCall]:
    for step in islice(steps_after(trace, position), MAX_LATER_STEPS):
        failed = {(site.call_id, site.tool) for site in step.error_sites}
        for action in actions[step.index]:
            ok = action.content is not None and (action.call.call_id, action.call.name) not in failed
            yield LaterCall(action, ok)


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
