"""Pieces that every section of the page has."""

from __future__ import annotations


def section(name: str, title: str, why: str, content: str) -> str:
    """Return a section of the page; all arguments are HTML, escaped by the caller."""
    return f'<section id="{name}">\n<h2>{title}</h2>\n<p class="why">{why}</p>\n{content}\n</section>'


def short_text(text: str, max_chars: int) -> str:
    """Return at most `max_chars` characters; a text that was cut ends with `…`. Nothing is escaped."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"
