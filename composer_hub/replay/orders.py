"""The orders of asking, on outcomes reduced to codes: which teachers are asked next, and whether a step gives a pair.

A step's outcomes are one code per teacher, in the order of asking: 0 for an abstention, a positive number for an action
that differs from the student's, a negative one for an action that repeats it; equal codes are equal actions. Everything
that an order decides depends on the codes so far, so the same functions drive a run (`cascade`) and play the answers of
a pilot (`planning`).

All orders answer one question: would this step give a pair if every teacher were asked? So an order stops
only if further answers cannot change that, or if it gives up on the step. Two of three that agree are enough,
because the third cannot outvote them; of four teachers three must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from composer_hub.pairs.policy import Policy

Codes = tuple[int, ...]
LATE = 1 / 3  # the last part of a trace, in which the cascade breaks no ties
MIN_LONG = 12  # steps of a trace that has a last part


def num_next(order: str, codes: Codes, num_left: int, policy: Policy, *, late: bool = False) -> int:
    """Return how many of the remaining teachers to ask next; `late`: in the costly last part of a trace."""
    if order == "all":
        return num_left
    if not codes:
        return min(num_left, policy.min_agree if order == "sequential" else 1)
    if order == "cascade" and _gives_up(codes, policy, late=late):
        return 0
    return int(is_open(codes, num_left, policy))


def is_open(codes: Codes, num_left: int, policy: Policy) -> bool:
    """Return whether the answers of the teachers that are left decide about a pair."""
    against = max((size for code, size in _sizes(codes).items() if code > 0), default=0)
    needed = policy.needed(_sizes(codes).total() + num_left)
    return against < needed <= against + num_left


def _gives_up(codes: Codes, policy: Policy, *, late: bool) -> bool:
    """Return whether the cascade leaves a step: a teacher repeats the student, or two differ late in a trace."""
    sizes = _sizes(codes)
    if any(size >= policy.min_agree for code, size in sizes.items() if code > 0):
        return False  # so that a pair is one of all teachers, even if a fourth has to confirm it
    return any(code < 0 for code in sizes) or (late and len(codes) >= policy.min_agree)


def is_late(index: int, num_steps: int) -> bool:
    """Return whether a step is in the part of a trace whose prompts cost more than a further vote is worth."""
    return num_steps >= MIN_LONG and index >= num_steps * (1 - LATE)


def has_pair(codes: Codes, policy: Policy) -> bool:
    """Return whether enough teachers agree on an action that differs from the student's."""
    sizes = _sizes(codes)
    if not sizes:
        return False
    code, size = max(sizes.items(), key=lambda item: item[1])
    return code > 0 and size >= policy.needed(sizes.total())


def num_asked(next_of: Callable[[Codes, int], int], codes: Codes) -> int:
    """Play a step to its end: return how many of its answers are asked for by a rule (codes, teachers left) -> next."""
    at = 0
    while at < len(codes) and (num := next_of(codes[:at], len(codes) - at)):
        at += num
    return at


def _sizes(codes: Codes) -> Counter[int]:
    return Counter(code for code in codes if code)


def canonical(codes: Codes) -> Codes:
    """Number the actions of a step by their first appearance, so that steps can be added up."""
    names: dict[int, int] = {0: 0}
    for code in codes:
        if code not in names:
            number = 1 + sum(one * code > 0 for one in names)
            names[code] = number if code > 0 else -number
    return tuple(names[code] for code in codes)
