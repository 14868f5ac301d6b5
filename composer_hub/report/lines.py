"""The lines to copy, cleaned: lessons in, lessons with text that may be shown out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from composer_hub.local_hub.characters import is_plain
from composer_hub.report.cleaner import Cleaner, is_redacted
from composer_hub.report.lessons import MAX_LINES, Lesson


def title_of(names: Mapping[str, str], project: str) -> str:
    """Return the name of a project, or the words for lines that are true in all of them."""
    return names.get(project) or "All projects"


def clean_lines(cleaner: Cleaner, lessons: Sequence[Lesson]) -> list[tuple[Lesson, str]]:
    """Return each lesson with its line; one that would show a secret or a person, or hide a character, is left out."""
    # A line is pasted into the instructions of agents, so it must not hold anything that is not visible.
    lessons = [lesson for lesson in lessons if is_plain(lesson.counted)]
    cleaned = cleaner.pairs([(lesson.counted, lesson.quote) for lesson in lessons])
    return [
        (dataclasses.replace(lesson, quote=quote), line)
        for lesson, (line, quote) in zip(lessons, cleaned, strict=True)
        if not is_redacted(line)
    ]


def fresh_lines(cleaner: Cleaner, lessons: Sequence[Lesson]) -> dict[str, list[tuple[Lesson, str]]]:
    """Return the lines to copy of each project, the most frequent first."""
    found: dict[str, list[tuple[Lesson, str]]] = {}
    for lesson, line in clean_lines(cleaner, [one for one in lessons if not one.is_written]):
        found.setdefault(lesson.project, []).append((lesson, line))
    return {project: lines[:MAX_LINES] for project, lines in found.items()}


def one_per_line(lines: Sequence[tuple[Lesson, str]]) -> str:
    """Return the cleaned lines as one text, without their lessons."""
    return "\n".join(line for _, line in lines)
