"""Values as markup and as text: blocks of text, numbers, amounts, JSON, labels."""

from __future__ import annotations

import json
import math
from typing import Any

from inspector.characters import spelled_out
from inspector.elements import Html, h

MAX_CHARS = 4_000  # of one block of text; the rest is fetched on demand


def block(text: str, *, more: str = "", limit: int = MAX_CHARS, cls: str = "") -> Html:
    """Return a text block, cut at `limit`; `more` is the address of the rest."""
    rest = len(text) - limit
    if rest <= 0:
        return h("pre", text, cls=f"text {cls}", tabindex="0" if len(text) > 600 else None)
    button = h("button", f"Show {rest:,} more characters", type="button", cls="more", data_more=more, data_at=limit)
    tail = button if more else h("p", f"{rest:,} more characters are in the dataset.", cls="quiet")
    return h("div", h("pre", text[:limit], cls=f"text {cls}", tabindex="0"), tail)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number for reading: 12,345, 0.0123, or a dash."""
    if value is None:
        return "-"
    is_whole = float(value).is_integer() or abs(value) >= 10 ** (digits - 1)  # `g` would write 1.2e+02
    return f"{value:,.0f}" if is_whole else f"{value:.{digits}g}"


def usd(value: float | None) -> str:
    """Return an amount of money."""
    if value is None:
        return "-"
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"


def pretty(value: Any) -> str:
    """Return a value as text for reading: strings as they are, the rest as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def as_json(value: Any) -> str:
    """Return a value as JSON text for a program; a text in it is cut to what a tool's answer can bear."""
    return spelled_out(json.dumps(_bearable(value), ensure_ascii=False, allow_nan=False, default=str))


def _bearable(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= MAX_CHARS else value[:MAX_CHARS] + f"… ({len(value):,} characters)"
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _bearable(item) for key, item in value.items()}
    return [_bearable(item) for item in value] if isinstance(value, (list, tuple)) else value


def parsed(value: Any) -> Any:
    """Return a JSON column's value; text that is not JSON stays text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def badge(text: str, kind: str = "", title: str | None = None) -> Html:
    """Return a small label."""
    return h("span", short(text), cls=f"badge {kind}".strip(), title=title and short(title))


def short(value: Any, limit: int = 300) -> Any:
    """Return a name cut to what a line can bear: anyone may have written it, at any length. Markup stays as it is."""
    return (
        f"{value[: limit - 1]}…"
        if isinstance(value, str) and not isinstance(value, Html) and len(value) > limit
        else value
    )


def words(text: str) -> str:
    """Return an identifier as words: `edit_no_match` becomes `edit no match`."""
    return text.replace("_", " ")
