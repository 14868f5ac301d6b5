"""The rules for every option: its default is shown, and a number is at least 0 unless it names a range, never `nan`.

The root applies them to each command, so that a new option cannot lack them.
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


def uniform(command: click.Command) -> click.Command:
    """Apply the rules to a command and to those below it."""
    for param in command.params:
        kind = param.type
        if isinstance(param, click.Option) and param.show_default is None:
            param.show_default = param.default != ""
        if isinstance(kind, click.FloatRange):
            param.type = Number(kind.min, kind.max, kind.min_open, kind.max_open, kind.clamp)
        elif kind is click.FLOAT:
            param.type = Number(0)
        elif kind is click.INT:
            param.type = click.IntRange(0)
    for child in getattr(command, "commands", {}).values():
        uniform(child)
    return command
