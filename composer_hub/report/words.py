"""How the report writes numbers, dates and names for people."""

from __future__ import annotations

import datetime
import re

NONE = "\u2013"


def count(number: float) -> str:
    """Return a rounded number with commas: 12,345."""
    return f"{number:,.0f}"


def tokens(number: float) -> str:
    """Return a number of tokens, short: 950, 12.3 k, 4.5 M, 1.2 G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 0.9995 * size:  # which three digits round up
            return f"{number / size:.3g} {unit}" if number < 1000 * size else f"{number / size:,.0f} {unit}"
    return f"{number:.0f}"


def percent(share: float | None) -> str:
    """Return a share in per cent; small ones keep a digit."""
    if share is None:
        return NONE
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %" if value >= 0.05 else "< 0.1 %"


def rate(value: float | None) -> str:
    """Return a rate with one digit, and a dash if it is None, which means too few calls."""
    return NONE if value is None else f"{value:.1f}"


_DATED = re.compile(r"-20\d{6}$")


def model_name(model: str) -> str:
    """Return a model's name without its date."""
    return _DATED.sub("", model)[:40]


def day(at: float, zone: datetime.tzinfo | None = None) -> str:
    """Return a Unix time as 5 Jan 2026, in local time if `zone` is None; "undated" for 0."""
    when = datetime.datetime.fromtimestamp(at, zone)
    return f"{when.day} {when:%b %Y}" if at else "undated"


def minute(at: float, zone: datetime.tzinfo | None = None) -> str:
    """Return a Unix time as 5 Jan 2026, 14:07, in local time if `zone` is None; "undated" for 0."""
    return f"{day(at, zone)}, {datetime.datetime.fromtimestamp(at, zone):%H:%M}" if at else "undated"


def week_name(monday: str) -> str:
    """Return the ISO date of a Monday as 5 Jan."""
    when = datetime.date.fromisoformat(monday)
    return f"{when.day} {when:%b}"
