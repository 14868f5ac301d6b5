"""Reward functions by name, wrapped so that every failure names the function at fault."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from composer_hub import exits
from composer_hub.environments.guard import score
from composer_hub.environments.world import load_object


class RewardError(exits.ComposerError, ValueError):
    """A reward function that does not work."""


def rewards_of(names: Sequence[str] | None) -> list[Callable[..., Any]]:
    """Return the reward functions; one that raises or gives NaN ends the run with its name."""
    return [checked_reward(load_object(name, "reward function"), name) for name in names or ()]


def checked_reward(reward: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a reward function so that its failures are reported instead of averaged away."""
    if not callable(reward):
        raise exits.UsageError(f"The reward function {name} is {reward!r}. Name a function.")

    @functools.wraps(reward)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            values = reward(*args, **kwargs)
        except Exception as error:
            raise _failure(name, error) from error
        return _checked_values(name, values, kwargs)

    @functools.wraps(reward)
    async def checked_async(*args: Any, **kwargs: Any) -> Any:
        try:
            values = await reward(*args, **kwargs)
        except Exception as error:
            raise _failure(name, error) from error
        return _checked_values(name, values, kwargs)

    # TRL inspects the function itself to find out if it must be awaited.
    return checked_async if _is_async(reward) else checked


def one_by_one(reward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an environment's own reward function so that an episode it cannot score is lost alone."""

    @functools.wraps(reward)
    def score_each(environments: Sequence[Any], **_: Any) -> list[float | None]:
        return [score(one, lambda one: reward(environments=[one])[0]) for one in environments]

    return score_each


def _failure(name: str, error: Exception) -> RewardError:
    return RewardError(
        f"The reward function {name} raised {type(error).__name__}: {error}. Fix it and continue with --resume true."
    )


def _checked_values(name: str, values: Any, given: dict[str, Any]) -> list[float | None]:
    try:
        numbers = [None if value is None else float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise RewardError(
            f"The reward function {name} returned {str(values)[:80]}. Return a number or None for each completion."
        ) from error
    if bad := [number for number in numbers if number is not None and not math.isfinite(number)]:
        shown = "NaN" if math.isnan(bad[0]) else bad[0]
        raise RewardError(
            f"The reward function {name} returned {shown}. Return None if it does not apply, and a finite number "
            "otherwise."
        )
    if len(numbers) != len(given.get("completions", numbers)):
        raise RewardError(
            f"The reward function {name} returned {len(numbers)} rewards for {len(given['completions'])} "
            "completions. Return one for each."
        )
    return numbers


def _is_async(reward: Callable[..., Any]) -> bool:
    # A class instance carries the `async` on its `__call__`.
    return inspect.iscoroutinefunction(reward) or inspect.iscoroutinefunction(type(reward).__call__)
