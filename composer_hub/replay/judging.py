"""How the cascade compares actions: by the normal forms that pairs are made of.

In: a trace. Out: a `Judge` whose verdicts are those of `pairs.py`: teachers agree at L2, and an answer repeats the
student where it is the same at L3 or leaves the same files behind. So a step that the cascade ends early could not have
become a pair by that answer.
"""

from __future__ import annotations

from composer_hub.actions.context import contexts
from composer_hub.actions.forms import NormalForm, normalise, same
from composer_hub.records import Message, Step, Trace
from composer_hub.replay.cascade import Judge

AGREE_LEVEL, REPEAT_LEVEL = "L2", "L3"


def by_normal_form(trace: Trace) -> Judge:
    """Return the judge of one trace; each action is normalised once."""
    context_of = {step.step_id: context for step, context in contexts(trace)}
    forms: dict[tuple[str, int], tuple[Message, NormalForm]] = {}

    def form(step: Step, action: Message) -> NormalForm:
        # The action is kept beside its form, so that no other can get its id meanwhile.
        place = (step.step_id, id(action))
        if place not in forms:
            forms[place] = (action, normalise(action, context_of[step.step_id]))
        return forms[place][1]

    def agree(step: Step, one: Message, other: Message) -> bool:
        # An answer that no vote can come of agrees with nothing, or the cascade would stop on a pair that never is.
        return not form(step, one).problem and same(form(step, one), form(step, other), AGREE_LEVEL)

    def repeats(step: Step, student: Message, action: Message) -> bool:
        one, other = form(step, student), form(step, action)
        return same(one, other, REPEAT_LEVEL) or bool(other.results and one.results == other.results)

    return Judge(agree, repeats, lambda step, action: form(step, action).text)
