"""The report for a terminal: the sentence, who was to blame, the first kinds, and lines to copy."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from composer_hub.errors.vocabulary import BLAMES, kind_words
from composer_hub.output import plural
from composer_hub.report import sentences
from composer_hub.report.evidence import View
from composer_hub.report.lines import fresh_lines, title_of

MAX_KINDS, MAX_LINES = 3, 5


def summary(view: View, *, width: int = 80) -> str:
    """Return the summary, wrapped to a width."""
    return "\n".join(_lines(view, max(40, min(width, 100))))


def _lines(view: View, width: int) -> Iterator[str]:
    numbers = view.numbers
    sessions = plural(numbers.num_sessions, "session")
    projects = plural(len(set(numbers.projects.values())), "project")
    yield f"{sentences.period(numbers, view.zone)} · {sessions} · {projects}"
    yield ""
    yield from textwrap.wrap(f"{sentences.headline(numbers)} {sentences.lead(numbers)}", width)
    if view.change:
        yield from textwrap.wrap(sentences.news(view.change, numbers, view.zone), width)
    by_blame = numbers.by_blame
    if by_blame:
        yield ""
        counts = " · ".join(f"{words} {by_blame[blame]:,}" for blame, words in BLAMES.items() if by_blame[blame])
        yield from textwrap.wrap(f"Failed calls: {counts}", width, subsequent_indent="  ")
    if kinds := numbers.kinds("model"):
        shown = [f"{kind_words(kind)} {number:,}" for kind, number in kinds[:MAX_KINDS]]
        rest = sum(number for _, number in kinds[MAX_KINDS:])
        counts = " · ".join([*shown, *([f"others {rest:,}"] if rest else [])])
        yield from textwrap.wrap(f"The agent's own: {counts}", width, subsequent_indent="  ")
    lines = (
        [] if view.share else [pair for found in fresh_lines(view.cleaner, numbers.lessons).values() for pair in found]
    )
    lines.sort(key=lambda pair: -pair[0].num_sessions)
    if lines:
        yield ""
        yield "To copy into AGENTS.md:"
        many = len({lesson.project for lesson, _ in lines}) > 1
        for lesson, line in lines[:MAX_LINES]:
            place = f"  [{title_of(view.names, lesson.project)}]" if many else ""
            yield from textwrap.wrap(line + place, width, subsequent_indent="  ", break_long_words=False)
            if lesson.quote:
                told = f"Wrong in {lesson.quote}"
                yield from textwrap.wrap(told, width, initial_indent="  ", subsequent_indent="  ")
        if len(lines) > MAX_LINES:
            yield f"  and {len(lines) - MAX_LINES} more on the page"
