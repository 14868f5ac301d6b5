"""HTML elements from values: everything is escaped here, and nowhere else.

`h("p", text, cls="quiet")` gives `Html`. A plain `str` child is data: it is escaped, and characters that a reader
cannot see are shown by name (`characters.py`).

The Space has this file as well (`space/inspector/elements.py` is a link to it), so it imports nothing of the package
but its neighbor, which is also there.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from .characters import visible

_VOID = {"input", "br", "hr", "img", "meta", "link"}


class Html(str):
    """Markup that was made here, so that it is not escaped again."""

    __slots__ = ()


def esc(value: Any) -> Html:
    """Return a value as markup: `Html` as it is, anything else escaped."""
    return value if isinstance(value, Html) else Html(html.escape(visible(str(value)), quote=True))


def h(tag: str, /, *children: Any, **attributes: Any) -> Html:
    """Return an element; None children and None or False attributes are left out, `cls` is `class`."""
    words = "".join(_attribute(name, value) for name, value in attributes.items() if value not in (None, False))
    if tag in _VOID:
        return Html(f"<{tag}{words}>")
    return Html(f"<{tag}{words}>{join(children)}</{tag}>")


def _attribute(name: str, value: Any) -> str:
    name = {"cls": "class", "for_": "for"}.get(name, name.replace("_", "-"))
    return f" {name}" if value is True else f' {name}="{esc(value)}"'


def join(children: Iterable[Any]) -> Html:
    """Return children one after the other; nested iterables are walked."""
    return Html("".join(_flat(children)))


def _flat(children: Iterable[Any]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, (list, tuple)) or hasattr(child, "__next__"):
            yield from _flat(child)
        else:
            yield esc(child)
