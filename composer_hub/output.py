"""The output of commands: data on stdout in one of five formats, progress and notes on stderr.

The formats are those of the `hf` command: `auto` is `agent` if an agent runs the command, else `human`; `json` prints
one JSON value per command; `quiet` prints ids only. Unlike `hf`, the environment alone decides who runs the command:
asking the Hub for its list of agents costs a call, and up to 3 s per command without a network.

Names, messages and errors come from files of others, so everything printed goes through `visible`: no character turns a
line around, moves the cursor or hides. JSON spells such characters as escapes, so its values stay exact.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from composer_hub.local_hub.characters import spelled_out, visible

FORMATS = ("auto", "human", "agent", "json", "quiet")
AGENT_VARIABLES = (
    "AI_AGENT", "AGENT", "CLAUDECODE", "CLAUDE_CODE", "CODEX_SANDBOX", "CODEX_THREAD_ID", "CURSOR_AGENT", "GEMINI_CLI",
    "OPENCODE", "AUGMENT_AGENT", "COPILOT_CLI",
)  # fmt: skip
TIED = "\xa0"  # lines are not broken here, so a name stays with its number


def plural(number: int, noun: str) -> str:
    """Return a number with its noun: 1 pair, 2 pairs, 1,000 pairs."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class Range(NamedTuple):
    """Two numbers that a table shows as "1 to 2", and JSON as a list."""

    low: float
    high: float


class Output:
    """The output of one command."""

    def __init__(self, format: str = "auto", columns: int = 0) -> None:
        self.format = format
        self.mode = _resolve(format)
        self.columns = columns  # for the human format (0: ask the terminal)
        self._facts: dict[str, Any] = {}  # of notes, for the next record

    def record(self, values: Mapping[str, Any], *, id_key: str) -> None:
        """Print one result: aligned `key: value` lines, a JSON object, or in quiet mode the value of `id_key`."""
        if self.mode == "json":
            _show(_json({**values, **self._facts}, indent=2))
            self._facts = {}
        elif self.mode == "quiet":
            _show(values[id_key])
        elif self.mode == "agent":
            _show("\n".join(f"{key}={_cell(value)}" for key, value in values.items()))
        else:
            _show(_listed(list(values), [_cell(value, TIED) for value in values.values()], self._room()))

    def table(
        self, rows: Sequence[Mapping[str, Any]], *, id_key: str, empty: str = "Nothing to show.", **facts: Any
    ) -> None:
        """Print rows: a table that fits the terminal, tab-separated lines, a JSON list, or one id per line.

        With `facts`, JSON is an object of them and the `rows`; a note gives them to people.
        """
        if self.mode == "json":
            _show(_json({"rows": list(rows), **facts} if facts else list(rows), indent=2))
        elif self.mode == "quiet":
            for row in rows:
                _show(row[id_key])
        elif not rows:
            _show(empty)
        else:
            head = list(rows[0])
            cells = [[_cell(row.get(key)) for key in head] for row in rows]
            if self.mode == "agent":
                _show("\n".join("\t".join(line) for line in [head, *cells]))
            else:
                numeric = [_all_numbers(rows, key) for key in head]
                _show(_aligned(head, cells, numeric, self._room()))

    def text(self, text: str) -> None:
        """Print free text that is part of the result; JSON and quiet leave it out."""
        if self.mode in ("human", "agent"):
            _show(text)

    def note(self, text: str, **facts: Any) -> None:
        """Print a note on stderr; JSON has its numbers, as `facts`, in the next record, and quiet leaves it out."""
        self._facts |= facts
        if self.mode in ("human", "agent"):
            _show(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        """Print a note that no format may leave out, such as a changed price, on stderr."""
        _show(text, file=sys.stderr)

    def _room(self) -> int:
        return self.columns or shutil.get_terminal_size((80, 24)).columns

    @contextlib.contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Progress]:
        """Show a live line on stderr while the block runs, on a terminal only."""
        bar = Progress(label, total, shown=self.mode == "human" and sys.stderr.isatty())
        try:
            yield bar
        finally:
            bar.close()


class Progress:
    """One line on stderr: label, count, time left, and facts that the caller adds."""

    def __init__(self, label: str, total: int | None, *, shown: bool) -> None:
        self.label, self.total, self.shown = label, total, shown
        self.done = 0
        self._start = self._drawn = time.monotonic()

    def advance(self, amount: int = 1, **facts: Any) -> None:
        """Count work done; the line is redrawn at most ten times a second."""
        self.done += amount
        now = time.monotonic()
        if self.shown and now - self._drawn >= 0.1:
            self._drawn = now
            self._draw(now, facts)

    def close(self) -> None:
        if self.shown:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)

    def _draw(self, now: float, facts: Mapping[str, Any]) -> None:
        rate = self.done / max(now - self._start, 1e-9)
        parts = [f"{self.label} {self.done:,}"]
        if self.total:
            # A total may be an estimate that turns out too low.
            parts[0] += f"/{self.total:,} ({min(self.done / self.total, 1):.0%})"
            left = max(self.total - self.done, 0) / max(rate, 1e-9)
            parts.append(f"{int(left // 60)}:{int(left % 60):02d} left")
        parts += [f"{key} {_cell(value)}" for key, value in facts.items()]
        print("\r\x1b[2K" + " · ".join(parts), end="", file=sys.stderr, flush=True)


def size(num_bytes: float) -> str:
    """Format a number of bytes: 640 B, 12.3 kB, 4.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.95:  # above, one decimal would make it 1000.0
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


def _resolve(format: str) -> str:
    if format != "auto":
        return format
    return "agent" if any(os.environ.get(name) for name in AGENT_VARIABLES) else "human"


def _show(text: Any, file: TextIO | None = None) -> None:
    print(visible(str(text)), file=file)


def _json(value: Any, indent: int | None = None) -> str:
    return spelled_out(json.dumps(value, indent=indent, ensure_ascii=False, default=str))


def _cell(value: Any, space: str = " ") -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, Range):
        return " to ".join(_cell(float(f"{end:.3g}")) for end in value)
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(item) for item in value) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{_cell(key)}{space}{_cell(item)}" for key, item in value.items()) or "-"
    return visible(str(value)).replace("\n", "␊").replace("\t", "␉")  # a cell is one line


def _all_numbers(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return all(isinstance(row.get(key), (int, float)) and not isinstance(row.get(key), bool) for row in rows)


def _aligned(head: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool], room: int) -> str:
    """Return a table that fits the width: cells wrap between words; if that is not enough, rows become lists."""
    names = [name.upper().replace("_", " ") for name in head]
    widths = _fitted([names, *cells], room)
    if widths is None:
        return "\n\n".join(_listed(names, line, room) for line in cells)
    lines = []
    for line in [names, ["-" * width for width in widths], *cells]:
        wrapped = [_wrapped(text, width) for text, width in zip(line, widths, strict=True)]
        for parts in itertools.zip_longest(*wrapped, fillvalue=""):
            aligned = [
                text.rjust(width) if right else text.ljust(width)
                for text, width, right in zip(parts, widths, numeric, strict=True)
            ]
            lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _fitted(lines: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return the widths of the columns, the widest narrowed until all fit; None if a word would be cut."""
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for text in column for word in text.split() or [""]) for column in columns]
    too_much = sum(widths) + 2 * (len(widths) - 1) - room
    for _ in range(too_much):
        widest = max(range(len(widths)), key=lambda i: widths[i] if widths[i] > least[i] else -1)
        if widths[widest] <= least[widest]:
            return None
        widths[widest] -= 1
    return widths


def _listed(names: Sequence[str], line: Sequence[str], room: int) -> str:
    """Return a row as `NAME  value` lines; a long value continues below its beginning."""
    indent = max(map(len, names)) + 2
    parts = []
    for name, text in zip(names, line, strict=True):
        first, *rest = _wrapped(text, max(room - indent, 20))
        parts += [f"{name:<{indent}}{first}".rstrip(), *(" " * indent + more for more in rest)]
    return "\n".join(parts)


def _wrapped(text: str, width: int) -> list[str]:
    lines = [text]
    if len(text) > width:
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [line.replace(TIED, " ") for line in lines]
