"""An effort term: calls that a rollout makes after its last one that worked become less likely.

ComposerTrainer(…, terms=[Effort(0.1)])
"""

from composer_hub.train import Term


class Effort(Term):
    """The probability of each token of a wasted call."""

    name = "effort"

    def tensors(self, rollouts):
        return {"effort_mask": rollouts.mask(wasted_calls(rollout) for rollout in rollouts)}

    def values(self, model, rows, hidden):
        probabilities = model.logps(rows["effort_mask"]).exp()
        return probabilities, {"probability": probabilities.detach()}


def wasted_calls(rollout):
    """Return the spans of the calls after the last one that worked."""
    steps, messages = rollout.trace.steps, rollout.trace.messages
    calls = [step for step in steps if step.prefix_exact and messages[step.action].tool_calls]
    last = max((step.index for step in calls if not step.error_sites), default=-1)
    return [rollout.spans[step.index] for step in calls if step.index > last]
