"""Options that belong together: the command gets one value that is made of them.

sharding_options = grouped("spread", Spread)
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import click

from composer_hub.cli.paths import FILE_OR_FOLDER

Command = Callable[..., Any]
_RANGES = {int: click.IntRange, float: click.FloatRange}


def stacked(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several; --help shows their options in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def options_of(kind: type, **changes: Mapping[str, Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a dataclass: the fields that `composer_hub.options.option` made.

    Type, default and help are those of the field; `changes` are further words for `click.option`, by field.
    """
    hints = typing.get_type_hints(kind)
    options = [one for one in dataclasses.fields(kind) if "help" in one.metadata]
    return stacked(*(_option(one, hints[one.name], changes.get(one.name, {})) for one in options))


def _option(field: dataclasses.Field[Any], hint: Any, changes: Mapping[str, Any]) -> Callable[[Command], Command]:
    words = {"default": field.default, "multiple": field.default == (), **field.metadata, **changes}
    if words.get("required"):
        del words["default"]  # even None would be a value
    kind = next((one for one in typing.get_args(hint) if one is not NoneType), hint)
    name = field.name.replace("_", "-")
    is_switch = kind is bool and field.default is not False
    flag = words.pop("flag", f"--{name}/--no-{name}" if is_switch else f"--{name}")
    limits = {end: words.pop(end) for end in ("min", "max", "min_open") if end in words}
    if "choices" in words:
        kind = click.Choice(words.pop("choices"))
    elif limits:
        kind = _RANGES[kind](**limits)
    elif kind is Path:
        kind = FILE_OR_FOLDER
    return click.option(flag, field.name, **{"type": kind, "is_flag": kind is bool, **words})


def grouped(
    name: str,
    kind: Callable[..., Any],
    /,
    *options: Callable[[Command], Command],
    make: Callable[..., Any] | None = None,
    **changes: Mapping[str, Any],
) -> Callable[[Command], Command]:
    """Return a decorator that adds options and passes `make(…)`, which is `kind(…)` by default, as `name`.

    The parameters of `kind` are the options. If it is a dataclass, those of its fields come first.
    """
    keys = inspect.signature(kind).parameters
    of_fields = (options_of(kind, **changes),) if isinstance(kind, type) else ()

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            given = {key: kwargs.pop(key) for key in keys if key in kwargs}
            return command(*args, **{name: (make or kind)(**given)}, **kwargs)

        return stacked(*of_fields, *options)(wrapped)

    return decorate
