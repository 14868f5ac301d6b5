"""A tiny world: an environment with one tool, and its tasks. A model that acts in it is in `train.tiny`."""

from __future__ import annotations

import random
from typing import Any

HIGHEST = 9
UNKNOWN_TOOL = "{'error': 'Tool plus not found.'}"
REMINDER = "Reminder: Available tools are: `add`. Use one of these."


class Desk:
    """An environment with one tool. Public methods are tools; `reset` starts an episode; `get_reward` scores it."""

    def reset(self, a: int = 0, b: int = 0, **_: Any) -> None:
        self.wanted, self.solved = (int(a), int(b)), False

    def add(self, a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: First.
            b: Second.
        """
        self.solved = (int(a), int(b)) == self.wanted
        return str(int(a) + int(b))

    def get_reward(self) -> float:
        return float(self.solved)


def tasks(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return task rows as `GRPOTrainer` takes them: a prompt and what `Desk.reset` wants. None is a held-out task."""
    return _rows(random.Random(seed).choices([pair for pair in _PAIRS if not _is_held_out(*pair)], k=count))


def held_out(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    """Return tasks that `tasks` never returns, each at most once."""
    pairs = [pair for pair in _PAIRS if _is_held_out(*pair)]
    return _rows(random.Random(seed).sample(pairs, min(count, len(pairs))))


_PAIRS = tuple((a, b) for a in range(HIGHEST + 1) for b in range(HIGHEST + 1))


def _is_held_out(a: int, b: int) -> bool:
    return (a + 2 * b) % 5 < 2  # 40 of 100, four with each first number


def _rows(pairs: list[tuple[int, int]]) -> list[dict[str, Any]]:
    return [{"prompt": [{"role": "user", "content": f"{a}+{b}"}], "a": a, "b": b} for a, b in pairs]
