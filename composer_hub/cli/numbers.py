"""The range of every option that is a number: at least 0 unless the option names another one, and never `nan`.

The root applies it to each command, so that a new option cannot lack it.
"""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A finite number in a range; `nan` passes every comparison with its ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def bounded(command: click.Command) -> click.Command:
    """Give the numbers of a command, and of those below it, their range."""
    for param in command.params:
        kind = param.type
        if isinstance(kind, click.FloatRange):
            param.type = Number(kind.min, kind.max, kind.min_open, kind.max_open, kind.clamp)
        elif kind is click.FLOAT:
            param.type = Number(0)
        elif kind is click.INT:
            param.type = click.IntRange(0)
    for child in getattr(command, "commands", {}).values():
        bounded(child)
    return command
