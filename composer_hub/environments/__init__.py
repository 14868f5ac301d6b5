"""Tasks in, episodes with rewards out.

An `Environment` is any object with `reset` and `get_reward` whose other public methods are tools. `open_world` opens
one by name, and `guarded` wraps a factory of them so that calls that hang or raise lose one episode and not the run.
`open_shelf` and `coding_factory` play coding tasks, `verify` scores a submission, `open_sandbox` runs commands that
are not trusted, and `findings` lists signs of hacks; these load their modules when they are first used.
"""

import importlib
from typing import Any

from composer_hub.environments.guard import (
    Broken,
    EnvironmentFailed,
    EpisodeCounts,
    count_episodes,
    guarded,
    is_lost,
    loss_in,
    notes_of,
    release,
)
from composer_hub.environments.open import check_environment, open_world
from composer_hub.environments.rewards import RewardError, rewards_of
from composer_hub.environments.world import (
    Environment,
    EnvironmentFactory,
    World,
    WorldOptions,
    load_object,
    shown_name,
    tools_of,
)

_HOMES = {
    "CodingOptions": "coding",
    "Limits": "sandbox",
    "Sandbox": "sandbox",
    "TaskShelf": "shelf",
    "Verdict": "verifier",
    "coding_factory": "coding",
    "execute_pairs": "executed",
    "findings": "monitor",
    "open_sandbox": "sandbox",
    "open_shelf": "shelf",
    "verify": "verifier",
}

__all__ = [
    "Broken",
    "CodingOptions",
    "Environment",
    "EnvironmentFactory",
    "EnvironmentFailed",
    "EpisodeCounts",
    "Limits",
    "RewardError",
    "Sandbox",
    "TaskShelf",
    "Verdict",
    "World",
    "WorldOptions",
    "check_environment",
    "coding_factory",
    "count_episodes",
    "execute_pairs",
    "findings",
    "guarded",
    "is_lost",
    "load_object",
    "loss_in",
    "notes_of",
    "open_sandbox",
    "open_shelf",
    "open_world",
    "release",
    "rewards_of",
    "shown_name",
    "tools_of",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
