"""Do the three channels help a model learn? The world, its warm start, the arms and the report of the ablation."""

from __future__ import annotations


def numbers(text: str) -> list[int]:
    """Read `0,3,10-12`."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
