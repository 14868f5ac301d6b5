"""Tasks in, episodes with rewards out.

An `Environment` is any object with `reset` and `get_reward` whose other public methods are tools. `open_world` opens
one by name, and `guarded` wraps a factory of them so that calls that hang or raise lose one episode and not the run.
"""

from composer_hub.environments.guard import (
    Broken,
    EnvironmentFailed,
    EpisodeCounts,
    count_episodes,
    guarded,
    is_lost,
    loss_in,
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

__all__ = [
    "Broken",
    "Environment",
    "EnvironmentFactory",
    "EnvironmentFailed",
    "EpisodeCounts",
    "RewardError",
    "World",
    "WorldOptions",
    "check_environment",
    "count_episodes",
    "guarded",
    "is_lost",
    "load_object",
    "loss_in",
    "open_world",
    "release",
    "rewards_of",
    "shown_name",
    "tools_of",
]
