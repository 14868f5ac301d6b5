"""What a run acts in, by name: environments of the package, import paths, OpenEnv servers and Harbor task folders.

In: `desk`, `pkg.module:Class`, `openenv:URL` or `openenv:image`, `harbor:folder` or `harbor:owner/name@revision`. Out:
a `World`, which has what a trainer takes: a factory of environments, reward functions, and tasks where they come with
the environment. Nothing is fetched or started before `open_world`, so that a wrong name is told first.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub import exits
from composer_hub.environments.guard import guarded, score

if TYPE_CHECKING:
    from composer_hub.hub import Destination

ENVIRONMENTS = {"desk": ("composer_hub.environments.desk:Desk", "composer_hub.environments.desk:tasks")}
"""Name -> the environment and the function that makes its tasks."""


class RewardError(exits.ComposerError, ValueError):
    """A reward function that does not work."""


@dataclass(frozen=True)
class World:
    """What a trainer acts in and is scored by."""

    name: str = ""
    factory: Callable[[], Any] | None = None
    rewards: tuple[Callable[..., Any], ...] = ()
    rows: Sequence[dict[str, Any]] | None = None  # tasks that come with the environment
    task_function: str = ""  # or the function that makes them
    owns_prompts: bool = False  # or `reset` says what to do
    pin: str = ""  # the same name with every input at its commit


@dataclass(frozen=True)
class WorldOptions:
    """How environments are reached."""

    timeout_s: float | None = 300.0
    harbor_agent: str = "bash"
    harbor_environment: str = "docker"
    openenv_reward: str = "last"


def shown_name(name: str) -> str:
    """Return an environment's name without a folder of this machine: names are published."""
    kind, _, rest = name.partition(":")
    is_path = kind == "harbor" and (rest.startswith(("/", "~", ".")) or Path(rest).is_dir())
    return f"harbor:{Path(rest).name}" if is_path else name


def check_environment(name: str | None) -> None:
    """Refuse a name that cannot mean an environment, and one whose package is not installed."""
    kind, _, rest = (name or "").partition(":")
    if kind == "openenv":
        from composer_hub.environments import openenv

        openenv.check(rest)
    elif kind == "harbor":
        from composer_hub.environments import harbor

        harbor.check(rest)
    elif name:
        _class_of(name)


def open_world(
    name: str | None, rewards: Sequence[str] | None = None, *, where: Destination, options: WorldOptions
) -> World:
    """Return what a run acts in; its environments are guarded against hanging and raising."""
    own = tuple(rewards_of(rewards))
    kind, _, rest = (name or "").partition(":")
    if not name:
        return World(rewards=own)
    if kind == "openenv":
        from composer_hub.environments import openenv

        factory = openenv.factory_of(rest, reward=options.openenv_reward, timeout_s=options.timeout_s)
        world = World(name, factory, owns_prompts=True, pin=name)
    elif kind == "harbor":
        from composer_hub.environments import harbor

        world = harbor.world_of(rest, where, agent=options.harbor_agent, environment=options.harbor_environment)
    else:
        world = World(name, _class_of(name), task_function=ENVIRONMENTS.get(name, ("", ""))[1], pin=name)
    assert world.factory is not None
    return World(
        name,
        guarded(world.factory, shown_name(name), timeout_s=options.timeout_s),
        (*(one_by_one(reward) for reward in world.rewards), *own),
        world.rows,
        world.task_function,
        world.owns_prompts,
        world.pin,
    )


def _class_of(name: str) -> Any:
    if name not in ENVIRONMENTS and ":" not in name:
        raise exits.UsageError(
            f"There is no environment {name!r}: {', '.join(ENVIRONMENTS)}, pkg.module:Class, openenv:URL or "
            "harbor:folder."
        )
    found = load_object(ENVIRONMENTS[name][0] if name in ENVIRONMENTS else name, "environment")
    if not callable(found):
        raise exits.UsageError(f"The environment {name} is {found!r}: name a class, or a function that returns one.")
    return found


def load_object(name: str, what: str) -> Any:
    """Import `pkg.module:attribute`."""
    module, _, attribute = name.partition(":")
    if not attribute:
        raise exits.UsageError(f"{name!r} names no {what}: write it as pkg.module:name.")
    # A run's own environments and rewards often lie beside its script.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise exits.UsageError(
            f"The {what} {name} cannot be imported: {error}. Is its folder on PYTHONPATH?"
        ) from error


# ------------------------------------------------------------------------------------------------------------- rewards


def rewards_of(names: Sequence[str] | None) -> list[Callable[..., Any]]:
    """Return the reward functions; one that raises or gives NaN ends the run with its name."""
    return [checked_reward(load_object(name, "reward function"), name) for name in names or ()]


def checked_reward(reward: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a reward function so that what it does wrong is said, not averaged away."""
    if not callable(reward):
        raise exits.UsageError(f"The reward function {name} is {reward!r}: name a function.")

    def failed(error: Exception) -> RewardError:
        return RewardError(
            f"The reward function {name} raised {type(error).__name__}: {error}. Mend it and go on with --resume true."
        )

    def checked_values(values: Any, given: dict[str, Any]) -> list[float | None]:
        try:
            numbers = [None if value is None else float(value) for value in values]
        except (TypeError, ValueError) as error:
            raise RewardError(
                f"The reward function {name} returned {str(values)[:80]}: return a number or None for each completion."
            ) from error
        if any(number is not None and math.isnan(number) for number in numbers):
            raise RewardError(
                f"The reward function {name} returned NaN. Return None where it does not apply, a number elsewhere."
            )
        if len(numbers) != len(given.get("completions", numbers)):
            raise RewardError(
                f"The reward function {name} returned {len(numbers)} rewards for {len(given['completions'])} "
                "completions: return one for each."
            )
        return numbers

    @functools.wraps(reward)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            values = reward(*args, **kwargs)
        except Exception as error:
            raise failed(error) from error
        return checked_values(values, kwargs)

    @functools.wraps(reward)
    async def checked_later(*args: Any, **kwargs: Any) -> Any:
        try:
            values = await reward(*args, **kwargs)
        except Exception as error:
            raise failed(error) from error
        return checked_values(values, kwargs)

    # TRL looks at the function itself to see whether it must be awaited.
    return checked_later if _is_async(reward) else checked


def one_by_one(reward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an environment's own reward function, so that an episode it cannot score is lost alone."""

    @functools.wraps(reward)
    def asked(environments: Sequence[Any], **_: Any) -> list[float | None]:
        return [score(one, lambda one: reward(environments=[one])[0]) for one in environments]

    return asked


def _is_async(reward: Callable[..., Any]) -> bool:
    # A class instance carries the `async` on its `__call__`.
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)
