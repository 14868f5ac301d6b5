"""Rollouts that do not change the state of a training run, for measurements.

In: a trainer. Out: the same trainer in evaluation mode, with fresh environments, metrics and random state, all of which
are restored at the end.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy
import torch

from composer_hub.environments.guard import release

# Attributes that a rollout sets in the trainer; they are restored by name.
_LEFT_BEHIND = (
    "last_rollouts", "last_sites", "_rewards", "rewards_by_function", "_prompts", "shown",
    "environments", "_batch_environments", "_sync_tool_dicts", "_async_tool_dicts", "num_generations_eval",
)  # fmt: skip


@contextlib.contextmanager
def isolated(trainer: Any, num_generations: int) -> Iterator[None]:
    """Let a trainer make some rollouts per prompt without changing the state of its run."""
    left = {name: getattr(trainer, name) for name in _LEFT_BEHIND if hasattr(trainer, name)}
    logs, metrics, was_training = trainer._logs, trainer._metrics, trainer.model.training
    pool = getattr(trainer, "_environment_pool", None)
    trainer._logs, trainer._metrics = copy.deepcopy(logs), {mode: defaultdict(list) for mode in metrics}
    trainer.num_generations_eval = num_generations
    if pool is not None:
        # Environments may have state, so each measurement begins with fresh ones.
        trainer._environment_pool = {name: [] for name in pool}
    trainer.model.eval()
    try:
        with keeping_random_state():
            yield
    finally:
        trainer.model.train(was_training)
        trainer._logs, trainer._metrics = logs, metrics
        if pool is not None:
            release(one for used in trainer._environment_pool.values() for one in used)
            trainer._environment_pool = pool
        for name, value in left.items():
            setattr(trainer, name, value)


@contextlib.contextmanager
def keeping_random_state() -> Iterator[None]:
    """Restore every random state at the end."""
    states = random.getstate(), numpy.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])
