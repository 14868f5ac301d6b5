"""Options of a stage: a field of its dataclass, with the help text and spelling that a command line gives it."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str, **words: Any) -> Any:
    """Return a dataclass field that a command line offers as an option.

    `flag` is its spelling if that is not the name of the field, `metavar` the word for its value in the help,
    `choices` the values that it takes, and `min` and `max` are the ends of its range (without `min` if `min_open`).
    """
    return field(default=default, metadata={"help": help, **words})
