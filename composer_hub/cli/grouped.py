"""Options that belong together: the command gets one value that is made of them.

sharding_options = grouped("spread", Spread, click.option("--executor"), click.option("--staging"))
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]


def stacked(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several; --help shows their options in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def grouped(
    name: str, make: Callable[..., Any], *options: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """Return a decorator that adds options and passes `make(…)` as `name`; the parameters of `make` are the options."""
    keys = inspect.signature(make).parameters

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            given = {key: kwargs.pop(key) for key in keys if key in kwargs}
            return command(*args, **{name: make(**given)}, **kwargs)

        return stacked(*options)(wrapped)

    return decorate
