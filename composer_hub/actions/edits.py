"""Apply an edit: a file's text and the arguments of an edit call -> the resulting text.

Two edits are the same if they leave the same text. Where the trace does not hold the file, they are the same only if
they say the same, every space counted. A patch is read in the `*** Begin Patch` form of Codex.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replacement:
    old: str
    new: str
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class Hunk:
    """Consecutive lines of the file, and the lines that replace them."""

    anchors: tuple[str, ...]  # lines to find first, from `@@ …`
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class FileChange:
    act: str  # add, update or delete
    path: str
    content: str = ""  # of an added file
    hunks: tuple[Hunk, ...] = ()
    moved_to: str = ""


def replaced(text: str, edits: Sequence[Replacement]) -> str | None:
    """Apply replacements in order; None if one would fail, because its text is missing or occurs twice."""
    for edit in edits:
        # Every harness refuses an edit that finds nothing or changes nothing.
        count = text.count(edit.old) if edit.old and edit.old != edit.new else 0
        if not count or (count > 1 and not edit.replace_all) or _overlaps(text, edit):
            return None
        text = text.replace(edit.old, edit.new)
    return text


def _overlaps(text: str, edit: Replacement) -> bool:
    """Return whether the text occurs twice with an overlap, which `count` does not see."""
    first = text.find(edit.old)
    return not edit.replace_all and text.find(edit.old, first + 1) >= 0


def inserted(text: str, line: int, new: str) -> str | None:
    """Insert text behind a line, counted from 1; 0 is the start of the file."""
    lines = text.splitlines(keepends=True)
    if not 0 <= line <= len(lines):
        return None
    if line and not lines[line - 1].endswith("\n"):
        return None
    return "".join([*lines[:line], new if new.endswith("\n") else f"{new}\n", *lines[line:]])


def parse_patch(patch: str) -> tuple[FileChange, ...] | None:
    """Read a patch; None if any line of it is not understood."""
    lines = patch.strip().split("\n")
    if len(lines) < 3 or lines[0].strip() != "*** Begin Patch" or lines[-1].strip() != "*** End Patch":
        return None
    changes: list[FileChange] = []
    at = 1
    while at < len(lines) - 1:
        end = next((n for n in range(at + 1, len(lines) - 1) if _is_header(lines[n])), len(lines) - 1)
        change = _file_change(lines[at], lines[at + 1 : end])
        if change is None:
            return None
        changes.append(change)
        at = end
    return tuple(changes)


def _is_header(line: str) -> bool:
    return line.startswith(("*** Add File: ", "*** Update File: ", "*** Delete File: "))


def _file_change(header: str, body: list[str]) -> FileChange | None:
    act, colon, path = header.removeprefix("*** ").partition(" File: ")
    path = path.strip()
    if not colon or not path:
        return None
    if act == "Delete":
        return FileChange("delete", path) if not body else None
    if act == "Add":
        if any(not line.startswith("+") for line in body):
            return None
        return FileChange("add", path, content="".join(f"{line[1:]}\n" for line in body))
    moved_to = ""
    if body and body[0].startswith("*** Move to: "):
        moved_to = body.pop(0).removeprefix("*** Move to: ").strip()
    hunks = _hunks(body)
    return None if act != "Update" or hunks is None else FileChange("update", path, hunks=hunks, moved_to=moved_to)


def _hunks(lines: Sequence[str]) -> tuple[Hunk, ...] | None:
    hunks: list[Hunk] = []
    anchors: list[str] = []
    old: list[str] = []
    new: list[str] = []

    def close(*, at_end: bool = False) -> None:
        if old or new:
            hunks.append(Hunk(tuple(anchors), tuple(old), tuple(new), at_end))
            anchors.clear()
            old.clear()
            new.clear()

    for line in lines:
        if line.startswith("@@"):
            close()
            if anchor := line[2:].strip():
                anchors.append(anchor)
        elif line == "*** End of File":
            close(at_end=True)
        elif line[:1] in (" ", "") or line[0] in "+-":
            sign, text = line[:1] or " ", line[1:]
            if sign != "+":
                old.append(text)
            if sign != "-":
                new.append(text)
        else:
            return None
    close()
    return tuple(hunks)


def patched(text: str, hunks: Sequence[Hunk]) -> str | None:
    """Apply hunks, each at the first place behind the last; None if the file does not contain its lines exactly."""
    lines = text.removesuffix("\n").split("\n")
    start = 0
    for hunk in hunks:
        for anchor in hunk.anchors:
            start = next((n + 1 for n in range(start, len(lines)) if lines[n].strip() == anchor), -1)
            if start < 0:
                return None
        first = len(lines) - len(hunk.old) if hunk.at_end else start
        places = range(max(first, start), len(lines) - len(hunk.old) + 1) if hunk.old else ()
        place = next((n for n in places if tuple(lines[n : n + len(hunk.old)]) == hunk.old), None)
        if place is None:
            return None
        lines[place : place + len(hunk.old)] = hunk.new
        start = place + len(hunk.new)
    return "\n".join(lines) + "\n"


def after_change(change: FileChange, files: Mapping[str, str]) -> str | None:
    """Return the text a change leaves in its file; None if the file is unknown or the change would fail."""
    if change.act == "add":
        return change.content
    return patched(files[change.path], change.hunks) if change.act == "update" and change.path in files else None
