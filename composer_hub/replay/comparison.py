"""Comparison of actions in the cascade, by the normal forms and the policy of `pairs`.

In: a trace and a policy. Out: a `Comparison` with the same verdicts as `pairs`. A step that the cascade ends early
could therefore not have become a pair by that answer.
"""

from __future__ import annotations

from composer_hub.actions.context import contexts
from composer_hub.actions.forms import NormalForm, normalize
from composer_hub.pairs.consensus import LATER, did_later
from composer_hub.pairs.policy import Policy
from composer_hub.records import Message, Step, Trace
from composer_hub.replay.cascade import Comparison


def by_normal_form(trace: Trace, policy: Policy) -> Comparison:
    """Return the comparison for one trace; each action is normalized once."""
    context_of = {step.step_id: context for step, context in contexts(trace)}
    forms: dict[tuple[str, int], tuple[Message, NormalForm]] = {}

    def form(step: Step, action: Message) -> NormalForm:
        # Keeping the action prevents another one from getting its id.
        place = (step.step_id, id(action))
        if place not in forms:
            forms[place] = (action, normalize(action, context_of[step.step_id]))
        return forms[place][1]

    def later_than(step: Step) -> list[NormalForm]:
        return [form(one, trace.messages[one.action]) for one in trace.steps[step.index + 1 : step.index + 1 + LATER]]

    return Comparison(
        agree=lambda step, one, other: policy.agree(form(step, one), form(step, other)),
        repeats=lambda step, student, action: bool(policy.veto(form(step, student), form(step, action))),
        did_later=lambda step, action: did_later(step, form(step, action), later_than(step), policy),
        normal_form=lambda step, action: form(step, action).text,
    )
