"""The numbers that people read in the output of a command, looked for in its JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def only_people_read(human: str, machine: str) -> set[str]:
    """Return the numbers of human output that the JSON of the same command lacks, however it rounds them."""
    return {text.rstrip(",") for text in _NUMBER.findall(human)} - {*_spelled(json.loads(machine))}


def _spelled(value: Any) -> Iterator[str]:
    """Yield every number of a JSON value as it may be printed."""
    if isinstance(value, dict | list):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _spelled(item)
    elif isinstance(value, str):
        yield from _NUMBER.findall(value)
    elif value is not None:
        yield from (f"{value:{form}}" for form in (",.4g", ",.0f", ",.2f", ",.4f"))
