"""Options of a stage: a field of its dataclass, with the help text and spelling of a command line; and times."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from composer_hub import exits


def option(default: Any, help: str, **words: Any) -> Any:
    """Return a dataclass field that a command line offers as an option.

    `flag` is its spelling if that is not the name of the field, `metavar` the word for its value in the help,
    `choices` the values that it takes, and `min` and `max` are the ends of its range (without `min` if `min_open`).
    """
    return field(default=default, metadata={"help": help, **words})


def parsed_seconds(text: str, name: str) -> float:
    """Read a time such as `90`, `30s`, `45m`, `6h` or `1d`; `name` is the option in the error."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)([smhd]?)", text.strip())
    if match is None:
        raise exits.UsageError(f"{name} {text}: write a time as 30s, 10m, 2h or 1d.")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
