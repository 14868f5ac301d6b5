"""Times as options write them: 30s, 10m, 2h."""

from __future__ import annotations

from composer_hub import exits


def seconds_of(text: str, option: str) -> float:
    """Read a time such as 30s, 10m or 2h."""
    number, unit = text[:-1], text[-1:]
    if text.isdigit():
        number, unit = text, "s"
    if unit not in "smh" or not number.replace(".", "", 1).isdigit():
        raise exits.UsageError(f"{option} {text}: write a time as 30s, 10m or 2h.")
    return float(number) * {"s": 1, "m": 60, "h": 3600}[unit]
