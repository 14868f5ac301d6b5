"""The value of asking about a step, for a cap that cannot pay for all steps.

In: a trace, and the student's entropy if known. Out: a value per step, and the steps that a budget pays for. The
signals cost nothing. They only decide the order: no step is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from composer_hub.actions.tools import family_of_tool
from composer_hub.records import Step, Trace

NUM_FIRST_STEPS = 2  # most runs that diverge do so in their first two steps


def value_of(trace: Trace, place: int, entropy: Mapping[str, float]) -> float:
    """Return the value of a step, given by its place in the trace; higher values are asked first."""
    step = trace.steps[place]
    value = 3.0 * _has_error(step)
    if place + 1 < len(trace.steps):
        value += 2.0 * _has_error(trace.steps[place + 1])
    value += 1.5 * (place < NUM_FIRST_STEPS)
    value += 1.0 * _writes(trace, step)
    return value + 2.0 * min(entropy.get(step.step_id, 0.0), 3.0) / 3.0


def _has_error(step: Step) -> bool:
    return any(site.blame in ("model", "outcome") for site in step.error_sites)


def _writes(trace: Trace, step: Step) -> bool:
    calls = trace.messages[step.action].tool_calls
    return any(family_of_tool(call.name, call.arguments) in ("edit", "finish") for call in calls)


def threshold(valued: Iterable[tuple[float, int]], budget: int) -> float:
    """Return the lowest value such that its steps and all better ones fit the budget; the best value if none fit."""
    by_value: dict[float, int] = {}
    for value, cost in valued:
        by_value[value] = by_value.get(value, 0) + cost
    least, spent = max(by_value, default=0.0), 0
    for value in sorted(by_value, reverse=True):
        spent += by_value[value]
        if spent > budget:
            break
        least = value
    return least


def at_least(least: float, entropy: Mapping[str, float]) -> Callable[[Trace, Step], bool]:
    """Return a filter that keeps the steps of at least this value."""

    def keep(trace: Trace, step: Step) -> bool:
        # Steps are in the order of their index, which may start anywhere in a trace that was cut.
        place = step.index - trace.steps[0].index
        if not (0 <= place < len(trace.steps) and trace.steps[place] is step):
            place = next(number for number, one in enumerate(trace.steps) if one is step)
        return value_of(trace, place, entropy) >= least

    return keep
