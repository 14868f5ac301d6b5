"""Environments, tasks and rewards that do not do what they should."""

from __future__ import annotations

import os
import signal
from typing import Any

from composer_hub.environments.desk import Desk


def rows_without_prompts(count: int, *, seed: int) -> list[dict[str, str]]:
    return [{"question": "1+1"}] * count


def nothing() -> list[dict[str, Any]]:
    return []


def too_few(completions: list[Any], **_: Any) -> list[float]:
    return [1.0]


def rings(completions: list[Any], **_: Any) -> list[float]:
    os.kill(os.getpid(), signal.SIGTERM)
    return [0.0] * len(completions)


class NoDocs:
    def reset(self, **_: Any) -> None: ...

    def add(self, a: int, b: int) -> str:
        return str(a + b)

    def get_reward(self) -> float:
        return 0.0


class Container(Desk):
    """Stands for a container, which outlives the process unless it is released."""

    num_running = 0

    def __init__(self) -> None:
        Container.num_running += 1

    def __del__(self) -> None:
        Container.num_running -= 1
