"""A tiny world: an environment with one tool, and its tasks. `train.tiny` makes the model that acts in it."""

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
    """Return task rows as `GRPOTrainer` takes them: a prompt and what `Desk.reset` wants."""
    rng = random.Random(seed)
    numbers = [(rng.randint(0, HIGHEST), rng.randint(0, HIGHEST)) for _ in range(count)]
    return [{"prompt": [{"role": "user", "content": f"{a}+{b}"}], "a": a, "b": b} for a, b in numbers]
