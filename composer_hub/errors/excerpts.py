"""Make the texts of results short and plain: without colors and tags, cut between lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_MESSAGE_CHARS = 500
MAX_SCANNED_CHARS = 50_000
CUT = "[…]"

_COLORS = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_TAGS = re.compile(r"\A\s*OBSERVATION:|</?(?:tool_use_error|error|output|returncode)>|\r(?=\n)")


def excerpt(text: str, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Return the text, or its first and last lines if it is too long. A line that is too long is cut between words."""
    if len(text) > 2 * MAX_SCANNED_CHARS:
        text = f"{text[:MAX_SCANNED_CHARS]}\n{text[-MAX_SCANNED_CHARS:]}"
    clean = _TAGS.sub("", without_colors(text)).strip()
    if len(clean) <= max_chars:
        return clean
    lines = clean.split("\n")
    head = _lines_within(lines, max_chars // 2)
    if not head:
        return _words_within(lines[0], max_chars)
    tail = _lines_within(lines[:0:-1], max_chars - len("\n".join(head)) - len(CUT) - 2)
    return "\n".join([*head, CUT, *reversed(tail)])


def _lines_within(lines: Sequence[str], max_chars: int) -> list[str]:
    kept, used = [], -1
    for line in lines:
        used += len(line) + 1
        if used > max_chars:
            break
        kept.append(line)
    return kept


def _words_within(line: str, max_chars: int) -> str:
    if len(line) <= max_chars:
        return line
    cut = line[: max_chars - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut else cut}…"


def without_colors(text: str) -> str:
    """Return a text of a terminal without its escape sequences."""
    return _COLORS.sub("", text) if "\x1b[" in text else text


def clipped(text: str, max_chars: int) -> str:
    """Return the first line of a text, cut between words if it is longer."""
    line = " ".join(text.split("\n", 1)[0].split())
    return line if len(line) <= max_chars and "\n" not in text.strip() else _words_within(f"{line}…", max_chars)
