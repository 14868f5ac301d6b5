"""A reward for solving with little effort, to add to a task's own: `--rewards composer_hub.environments.effort:effort`.

It only ever compares solutions of one task with each other. Giving up is never rewarded, failures are not punished for
trying, and nothing happens where a group solves too little for effort to matter.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

WEIGHT, MOST = 0.2, 0.2
MIN_SOLVED, MIN_SHARE = 2, 0.25
_PER_THOUSAND_CHARS, _PER_CALL = 1.0, 0.5


def effort(
    completions: Sequence[Sequence[Mapping[str, Any]]],
    environments: Sequence[Any] = (),
    task_id: Sequence[str] = (),
    **_: Any,
) -> list[float]:
    """Return 0 or less per rollout: what a solution spent more than the median solution of its task."""
    solved = [bool(environment.get_reward()) for environment in environments]
    return penalties([spent(talk) for talk in completions], solved, task_id or [""] * len(completions))


def spent(talk: Sequence[Mapping[str, Any]]) -> float:
    """Return the effort of a rollout: what the model wrote, what it made tools print, and its calls."""
    chars = sum(len(str(message.get("content") or "")) for message in talk)
    calls = [call for message in talk for call in message.get("tool_calls") or ()]
    chars += sum(len(str(call)) for call in calls)
    return chars / 1000 * _PER_THOUSAND_CHARS + len(calls) * _PER_CALL


def cost(effort_spent: float, *, scale: float = 1.0) -> float:
    """Return a concave cost: the first steps weigh more than the hundredth."""
    return math.log1p(scale * effort_spent) / scale


def penalties(efforts: Sequence[float], solved: Sequence[bool], groups: Sequence[str]) -> list[float]:
    """Return the penalty of every rollout among its group."""
    members: dict[str, list[int]] = defaultdict(list)
    for number, group in enumerate(groups):
        members[group].append(number)
    found = [0.0] * len(efforts)
    for numbers in members.values():
        good = [number for number in numbers if solved[number]]
        share = len(good) / len(numbers)
        if len(good) < MIN_SOLVED or share < MIN_SHARE:
            continue
        usual = statistics.median(cost(efforts[number]) for number in good)
        for number in good:
            found[number] = -min(MOST, WEIGHT * share * max(0.0, cost(efforts[number]) - usual))
    return found
