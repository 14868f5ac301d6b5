"""The chance of a pair after some answers, and what is still asked until it is decided: from the lines of a pilot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from composer_hub.pairs.policy import Policy
from composer_hub.replay.facts import Facts
from composer_hub.replay.orders import Codes, canonical, has_pair, is_open, num_asked

UNKNOWN = 0.5
"""The chance of a pair after codes that no known step has shown."""


def assumed(num_teachers: int) -> dict[Codes, float]:
    """Return lines of codes for teachers that were never asked: they repeat the student, or agree, or all differ."""
    return {
        (-1,) * num_teachers: 6.0,
        (1,) * num_teachers: 2.0,
        tuple(range(1, num_teachers + 1)): 2.0,
    }


def known_lines(facts: Facts, panel: Sequence[str]) -> dict[Codes, float]:
    """Return the lines of codes at the steps that every teacher has answered; without any, what is assumed."""
    return {codes: float(count) for codes, count in facts.seen(panel).items()} or assumed(len(panel))


def after(lines: Mapping[Codes, float], codes: Codes, policy: Policy) -> tuple[float, list[float]]:
    """Return the chance of a pair after some codes, and that of each teacher that is left to be asked."""
    size = len(next(iter(lines)))
    found = {line: weight for line, weight in lines.items() if _begins(line, codes)}
    total = sum(found.values())
    if not total:  # nothing is known: as good as chance, unless a teacher repeats the student
        return (0.0 if any(code < 0 for code in codes) else UNKNOWN), [1.0] * (size - len(codes))
    pairs = sum(weight for line, weight in found.items() if has_pair(line, policy))
    ends = {line: num_asked(lambda before, left: int(is_open(before, left, policy)), line) for line in found}
    asked = [
        sum(weight for line, weight in found.items() if place < ends[line]) / total for place in range(len(codes), size)
    ]
    return pairs / total, asked


def _begins(line: Codes, codes: Codes) -> bool:
    """Return whether a line begins like some codes: which of them are equal, abstain and repeat the student."""
    return canonical(line[: len(codes)]) == canonical(codes)
