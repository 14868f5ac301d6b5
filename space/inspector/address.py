"""Addresses: everything a visitor sees is named by the query string, with content ids instead of row numbers."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

ORDER = ("dataset", "revision", "base", "view")


def address(place: Mapping[str, str], path: str = "", **changes: str | int | None) -> str:
    """Return the address of a place with some parameters changed; None and "" leave a parameter out."""
    parameters = {**place, **{name: "" if value is None else str(value) for name, value in changes.items()}}
    parameters = {name: value for name, value in parameters.items() if value not in ("", None)}
    first = {name: parameters[name] for name in ORDER if name in parameters}
    return f"{path or './'}?{urlencode(first | parameters)}"


def only(place: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return some parameters of a place, the dataset and its revision first."""
    return {name: place[name] for name in ("dataset", "revision", *names) if place.get(name)}


def whole(text: str | None) -> int:
    """Return a number of the query string, or 0."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 12 else 0
