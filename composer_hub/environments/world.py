"""The contract of an environment, and the worlds that trainers take: environments, tasks and rewards together."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from composer_hub import exits

NOT_TOOLS = ("reset", "get_reward", "failed")
"""Public methods that the trainer calls itself; every other public method is a tool."""


class Environment(Protocol):
    """One episode after another. Every other public method is a tool that the model may call.

    A tool's name, signature and docstring (with an `Args:` section) become its schema. Any of these methods may be
    `async`. A tool that raises shows the model its error; `reset` and `get_reward` that raise lose the episode.

    An optional method `failed(result: str) -> str | None` returns why the text of a result means a failed
    call: a kind of `errors.rules.KINDS`, or any words.
    """

    def reset(self, **row: Any) -> str | list[Any] | None:
        """Start the episode of a task row; a returned text is appended to the prompt."""

    def get_reward(self) -> float | None:
        """Return the reward of the episode so far; None if there is none."""


EnvironmentFactory = Callable[[], Environment]
"""Makes one environment per concurrent rollout; a class of environments is a factory."""


@dataclass(frozen=True)
class World:
    """Everything that a trainer acts in and is scored by."""

    name: str = ""
    factory: EnvironmentFactory | None = None
    rewards: tuple[Callable[..., Any], ...] = ()
    rows: Sequence[dict[str, Any]] | None = None  # tasks that come with the environment
    task_function: str = ""  # or the function that makes them
    owns_prompts: bool = False  # or `reset` returns the task's text
    held_out: Callable[[str], Sequence[dict[str, Any]]] | None = None  # split -> tasks of the same environment
    pin: str = ""  # the same name with every input at its commit
    oracles: tuple[int, int, int] | None = None  # tasks with a hidden oracle, all tasks, and those that are played
    limits_itself: bool = False  # every call ends by limits that do not depend on the machine's load


@dataclass(frozen=True)
class WorldOptions:
    """How environments are reached."""

    timeout_s: float | None = 300.0  # per call; None for no limit
    harbor_agent: str = "bash"
    harbor_environment: str = "docker"
    openenv_reward: str = "last"
    sandbox: str = "auto"  # of coding tasks
    split: str = "train"  # of coding tasks
    allow_unverified: bool = False  # coding tasks without a hidden oracle


def tools_of(environment: Any) -> dict[str, Callable[..., Any]]:
    """Return the bound methods of an environment that are tools, by name."""
    names = [name for name in dir(environment) if not name.startswith("_") and name not in NOT_TOOLS]
    return {name: method for name in names if inspect.ismethod(method := getattr(environment, name))}


def shown_name(name: str) -> str:
    """Return an environment's name without folders of this machine, because names are published."""
    kind, _, rest = name.partition(":")
    is_path = kind == "harbor" and (rest.startswith(("/", "~", ".")) or Path(rest).is_dir())
    return f"harbor:{Path(rest).name}" if is_path else name


def load_object(name: str, noun: str) -> Any:
    """Import `pkg.module:attribute`."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise exits.UsageError(f"{name!r} is not an import path. Write the {noun} as pkg.module:name.")
    # The environments and rewards of a run are often beside its script.
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise exits.UsageError(
            f"The {noun} {name} cannot be imported: {error}. Is its folder on PYTHONPATH?"
        ) from error
