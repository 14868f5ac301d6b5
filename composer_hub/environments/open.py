"""Open an environment by name: import paths, OpenEnv servers and Harbor task folders.

In: `desk`, `coding:owner/name@revision` (tasks that `composer-hub tasks` made), `pkg.module:Class`, `openenv:URL` or
`openenv:image`, `harbor:folder` or `harbor:owner/name@revision`. Out:
a `World` with a factory of guarded environments, reward functions, and tasks if the environment brings them.
`check_environment` refuses a wrong name before anything is fetched or started.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from composer_hub import exits
from composer_hub.environments import harbor, openenv
from composer_hub.environments.guard import guarded
from composer_hub.environments.rewards import one_by_one, rewards_of
from composer_hub.environments.world import World, WorldOptions, load_object, shown_name
from composer_hub.output import plural

if TYPE_CHECKING:
    from composer_hub.hub import Destination

ENVIRONMENTS = {"desk": ("composer_hub.environments.desk:Desk", "composer_hub.environments.desk:tasks")}
"""Name -> the environment and the function that makes its tasks."""


def check_environment(name: str | None, harbor_environment: str = "docker") -> None:
    """Refuse a name that cannot be an environment, and one whose package is not installed."""
    kind, _, rest = (name or "").partition(":")
    if kind == "openenv":
        openenv.check(rest)
    elif kind == "harbor":
        harbor.check(rest, harbor_environment)
    elif kind == "coding":
        if not rest:
            raise exits.UsageError("coding: does not name tasks. Write coding:owner/name@revision, or add --tasks.")
        from composer_hub.environments.sandbox import open_sandbox

        open_sandbox()
    elif name:
        _factory_of(name)


def open_world(
    name: str | None, rewards: Sequence[str] | None = None, *, where: Destination, options: WorldOptions
) -> World:
    """Return the named environment, its tasks and rewards; calls that hang or raise cannot stop a run."""
    own = tuple(rewards_of(rewards))
    kind, _, rest = (name or "").partition(":")
    if not name:
        return World(rewards=own)
    if kind == "openenv":
        factory = openenv.factory_of(rest, reward=options.openenv_reward, timeout_s=options.timeout_s)
        world = World(name, factory, owns_prompts=True, pin=name)
    elif kind == "harbor":
        world = harbor.world_of(rest, where, agent=options.harbor_agent, environment=options.harbor_environment)
    elif kind == "coding":
        world = _coding(rest, where, options)
    else:
        world = World(name, _factory_of(name), task_function=ENVIRONMENTS.get(name, ("", ""))[1], pin=name)
    assert world.factory is not None
    return dataclasses.replace(
        world,
        factory=guarded(world.factory, shown_name(name), timeout_s=None if world.limits_itself else options.timeout_s),
        rewards=(*(one_by_one(reward) for reward in world.rewards), *own),
    )


def _coding(rest: str, where: Destination, options: WorldOptions) -> World:
    from composer_hub.environments.coding import CodingOptions, coding_factory
    from composer_hub.environments.shelf import open_shelf

    shelf = open_shelf(rest, where)
    played = shelf if options.allow_unverified else shelf.verified()
    rows = played.rows(options.split)
    verified, total = shelf.coverage(options.split)
    if not rows and total:
        raise exits.Refused(
            f"None of the {plural(total, 'task')} of coding:{rest} (split {options.split}) has a hidden oracle, so "
            "hacks would be rewarded. Make tasks with oracles, or take these with --allow_unverified true."
        )
    if not rows:
        raise exits.UsageError(f"coding:{rest} has no split {options.split!r}. Choose one with --train_split, or all.")
    factory = coding_factory(shelf, CodingOptions(sandbox=options.sandbox))
    return World(f"coding:{rest}", factory, rows=rows, held_out=played.rows, pin=f"coding:{shelf.pin}",
                 oracles=(verified, total, played.coverage(options.split)[1]), limits_itself=True)  # fmt: skip


def _factory_of(name: str) -> Any:
    if name not in ENVIRONMENTS and ":" not in name:
        raise exits.UsageError(
            f"There is no environment {name!r}. Name {', '.join(ENVIRONMENTS)}, coding:owner/name@revision, "
            "pkg.module:Class, openenv:URL or harbor:folder."
        )
    factory = load_object(ENVIRONMENTS[name][0] if name in ENVIRONMENTS else name, "environment")
    if not callable(factory):
        raise exits.UsageError(f"The environment {name} is {factory!r}. Name a class, or a function that returns one.")
    return factory
