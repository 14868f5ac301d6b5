"""The chance of a pair after some answers, and what is still asked until it is decided: from the lines of a pilot."""

from __future__ import annotations

from collections.abc import Mapping

from composer_hub.pairs.policy import Policy
from composer_hub.replay.orders import Codes, canonical, has_pair, is_open, num_asked

UNKNOWN = 0.5
"""The chance of a pair where no step has shown it."""


def after(lines: Mapping[Codes, float], codes: Codes, policy: Policy) -> tuple[float, list[float]]:
    """Return the chance of a pair after some codes, and that of each teacher that is left to be asked."""
    size = len(next(iter(lines)))
    found = {line: weight for line, weight in lines.items() if _begins(line, codes)}
    total = sum(found.values())
    # One step that may go either way, so that few steps do not rule a pair out; none after a repeat of the student.
    prior = 0.0 if any(code < 0 for code in codes) else 1.0
    if not total:
        return prior * UNKNOWN, [1.0] * (size - len(codes))
    pairs = sum(weight for line, weight in found.items() if has_pair(line, policy))
    ends = {line: num_asked(lambda before, left: int(is_open(before, left, policy)), line) for line in found}
    asked = [
        sum(weight for line, weight in found.items() if place < ends[line]) / total for place in range(len(codes), size)
    ]
    return (pairs + prior * UNKNOWN) / (total + prior), asked


def _begins(line: Codes, codes: Codes) -> bool:
    """Return whether a line begins like some codes: which of them are equal, abstain and repeat the student."""
    return canonical(line[: len(codes)]) == canonical(codes)
