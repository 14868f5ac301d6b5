"""Apply an edit: a file's text and the arguments of an edit call -> the resulting text.

Two edits are the same if they leave the same text. If the trace does not hold the file, they are the same only if
they say the same, every space counted. A patch is read in the `*** Begin Patch` form of Codex.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Replacement:
    """One edit: a text of the file and another in its place; of a patch, one hunk."""

    old: str
    new: str
    replace_all: bool = False
    anchors: tuple[str, ...] = ()  # lines somewhere before it, as a patch names them


@dataclass(frozen=True, slots=True)
class Hunk:
    """Consecutive lines of the file, and the lines that replace them."""

    anchors: tuple[str, ...]  # lines to find first, from `@@ …`
    old: tuple[str, ...]
    new: tuple[str, ...]
    at_end: bool = False


@dataclass(frozen=True, slots=True)
class FileChange:
    """The change of one file in a patch; an update may also move the file."""

    act: Literal["add", "update", "delete"]
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
    """Insert text after a line, counted from 1; 0 is the start of the file."""
    lines = text.splitlines(keepends=True)
    if not 0 <= line <= len(lines):
        return None
    if line and not lines[line - 1].endswith("\n"):
        return None
    return "".join([*lines[:line], new if new.endswith("\n") else f"{new}\n", *lines[line:]])


_BLOCK = re.compile(r"<{5,9} SEARCH\n(?::start_line:\d+\n-+\n)?(.*?)\n?={5,9}\n(.*?)\n?>{5,9} REPLACE\s*", re.DOTALL)


def searched_blocks(diff: str) -> list[Replacement] | None:
    """Read blocks of `SEARCH` and `REPLACE`; None if any of the text is something else."""
    if _BLOCK.sub("", diff).strip():
        return None
    return [Replacement(f"{old}\n", f"{new}\n" if new else "") for old, new in _BLOCK.findall(diff)] or None


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
    """Apply hunks, each at the first place after the last one; None if the file lacks its exact lines."""
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


# --------------------------------------------------------------------------------------------- without the file's text

_GAP = "\n\0\n"
_DEFINES = re.compile(r"\s*(?:export |async |pub |public |private |static )*(def|class|func|fn|function|impl|struct)\b")
_MAX_COMMON = 20_000


def same_changes(one: Sequence[Replacement], other: Sequence[Replacement]) -> bool:
    """Return whether two edits of an unknown file leave the same text, provided that both apply."""
    if tuple(one) == tuple(other):
        return True
    texts = results_of_both(one, other)
    return texts is not None and texts[0] == texts[1]


def results_of_both(one: Sequence[Replacement], other: Sequence[Replacement]) -> tuple[str, str] | None:
    """Return how two edits change the part of a file that both quote; None if they cannot be compared.

    An edit applies only if its old text occurs once, so a longer old text around the same change means the
    same place. The old texts of both edits are joined at their overlaps, and each edit is applied to the
    result.
    """
    if not one or not other or sum(len(edit.old) + len(edit.new) for edit in (*one, *other)) > _MAX_COMMON:
        return None
    if in_two_places(one, other):
        return None
    pieces: list[str] = []
    for edits in (one, other):
        for at, edit in enumerate(edits):
            if not edit.old or not edit.old.strip():
                return None
            if not any(edit.old in before.new for before in edits[:at]):
                _join(pieces, edit.old)
    # An edit of every occurrence differs from an edit of one, so its old text appears once more.
    again = [edit.old for edit in (*one, *other) if edit.replace_all]
    text = _GAP.join([*sorted(pieces), *again])
    first, second = replaced(text, one), replaced(text, other)
    return None if first is None or second is None else (first, second)


def in_two_places(one: Sequence[Replacement], other: Sequence[Replacement]) -> bool:
    """Return whether the anchors of two patches contradict each other."""
    return not (_one_place(one, other) and _one_place(other, one))


def _join(pieces: list[str], text: str) -> None:
    """Add a text to the pieces of a file; those that it overlaps become one piece."""
    for at, piece in enumerate(pieces):
        if text in piece:
            return
        merged = text if piece in text else _overlapped(piece, text) or _overlapped(text, piece)
        if merged:
            del pieces[at]
            _join(pieces, merged)
            return
    pieces.append(text)


def _overlapped(first: str, second: str) -> str:
    """Return two texts as one, if a whole line at the end of one begins the other, else ""."""
    for size in range(min(len(first), len(second)) - 1, 0, -1):
        if first.endswith(second[:size]) and len(second[:size].strip()) > 3:
            return first + second[size:]
    return ""


def _one_place(one: Sequence[Replacement], other: Sequence[Replacement]) -> bool:
    """Return whether the anchors of a patch do not contradict the context of another edit."""
    anchors = {anchor for edit in one for anchor in edit.anchors}
    known = {anchor for edit in other for anchor in edit.anchors}
    lines = [line.strip() for edit in other for line in edit.old.split("\n")]
    for anchor in anchors - known - set(lines):
        kind = _DEFINES.match(anchor)
        rivals = [*known - anchors, *lines]
        if kind and any((found := _DEFINES.match(line)) and found[1] == kind[1] for line in rivals):
            return False
        if not kind and known - anchors:
            return False
    return True
