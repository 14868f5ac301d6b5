r"""Replace spans of a text and leave the structure around them as it is.

In: a text and spans. Out: the text with a placeholder for each. Finders and known values look at words, and a word may
take along the quotation mark that ends it, a brace, or half an escape: `"key": "abc"}` split at spaces gives `"abc"}`.
Here, where replacements are made, a span is cut down to what is inside the quotation or JSON literal that it begins in.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

What = TypeVar("What")
Place = TypeVar("Place", "_Mark", "_Token", "_Document")

MAX_DEPTH = 6
"""JSON documents inside JSON strings that are read."""
MAX_OPEN = 40
"""Quotations inside quotations that are followed."""
MAX_FAILED = 1_000_000
"""Characters that are read after braces that begin no document; then no more are tried."""
REACH = 400
"""Characters before a span in which a bracket may be open."""

_PLAIN = re.compile(r"(?=.*[^\W\d_truefalsnE])[^\"'`\\{}\[\]()]*", re.DOTALL)
"""A span that crosses no structure: it has no mark, and is no number, true, false or null, which JSON holds bare."""
_MARK = re.compile(r"(?<!\\)(\\*)([\"'`])")
_DOUBLE = re.compile(r'(?<!\\)(\\*)"')
_OPENS = re.compile(r"(?<![\w)}\]])(?:[bfruBFRU]{1,2})?\Z")  # f"..." opens a quotation, the apostrophe in don't none
_DOCUMENT = re.compile(r"\{(?=\s*\")|\[(?=\s*[\"{\[])|(?m:^)\[(?=\s*[-\dtfn])")  # list[0] in a line is none
_BARE = re.compile(r"\\+[nrt]|(?P<v>[\w.+-]+)")
_SILENT = re.compile(r"(?:\x1b\[[\d;]*[A-Za-z]|[\W_])*")
_COLON = re.compile(r"(?:\s|\\+[nrt])*:")
_ESCAPED = re.compile(r"(\\+)(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_QUOTES = ('"', "'", "`")
_ESCAPES = (*_QUOTES, "n", "r", "t")
_LONGEST_ESCAPE = len("u0000")
_DEEP = 10_000  # characters that a document too deep to be read counts for
_CLOSES = {")": "(", "]": "[", "}": "{"}
_DECODER = json.JSONDecoder(strict=False)


class Slot(NamedTuple):
    """A part of a span that may be replaced."""

    start: int
    end: int
    quote: str = ""  # to write around the placeholder, because it takes the place of a bare number


class _Token(NamedTuple):
    start: int
    end: int
    kind: str  # text, key, bare (a number or a word), or document: a text that holds one
    level: int  # of escaping


class _Mark(NamedTuple):
    start: int
    end: int
    mate: tuple[int, int]  # the other mark of the quotation


class _Document(NamedTuple):
    start: int
    end: int
    tokens: list[_Token]


def replaced(text: str, spans: Iterable[tuple[int, int, What]], place: Callable[[What, str], str]) -> str:
    """Replace each span, in order and without overlaps, by what `place` returns for it and its text."""
    structure = Structure(text)
    pieces: list[str] = []
    last = 0
    for start, end, what in spans:
        for part in structure.parts(start, end):
            value = text[part.start : part.end]
            placed = place(what, value)
            quote = part.quote if placed != value else ""
            pieces += [text[last : part.start], quote, placed, quote]
            last = part.end
    return "".join([*pieces, text[last:]]) if pieces else text


def values_in(text: str, value: str) -> list[str]:
    """Return the replaceable parts of a value at its first occurrence, as it is or as JSON spells it."""
    for spelling in (value, json.dumps(value)[1:-1]):
        if (at := text.find(spelling)) >= 0:
            found = [text[part.start : part.end] for part in Structure(text).parts(at, at + len(spelling))]
            return found if spelling == value else [json.loads(f'"{part}"', strict=False) for part in found]
    return [value]


class Structure:
    """The quotations and JSON documents of a text, read only if a span may cross them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._documents: list[_Document] | None = None
        self._lines: dict[int, list[_Mark]] = {}

    def parts(self, start: int, end: int) -> Iterator[Slot]:
        """Yield the replaceable parts of a span; the rest belongs to the structure around it."""
        text = self._text
        if "\\" not in text[max(0, start - _LONGEST_ESCAPE) : start] and _PLAIN.fullmatch(text, start, end):
            yield Slot(start, end)
            return
        last = start
        for document in _overlapping(self._read_documents(), start, end):
            if last < document.start:
                yield from self._in_quotations(last, document.start)
            yield from self._in_document(document, max(start, document.start), min(end, document.end))
            last = document.end
        if last < end:
            yield from self._in_quotations(last, end)

    # ---------------------------------------------------------------------------------------------- quotations

    def _in_quotations(self, start: int, end: int) -> Iterator[Slot]:
        marks = list(self._marks(start, end))
        cuts = [mark[:2] for mark in marks if mark.start < start or mark.end > end]
        cuts += [mark[:2] for mark in marks if mark[:2] not in cuts and not start <= mark.mate[0] < mark.mate[1] <= end]
        edges = [start, *(edge for mark in sorted(cuts) for edge in mark), end]
        quoted = {mark.start: (mark.end, *mark.mate) for mark in marks if mark.start < mark.mate[0]}
        pieces = [pair for pair in zip(edges[::2], edges[1::2], strict=True) if pair[0] < pair[1]]
        parts = [Slot(*self._trimmed(*piece, quoted)) for piece in pieces]
        # Between two quotations there is often nothing but commas, and after the last one the end of a color.
        speaking = [part for part in parts if not _SILENT.fullmatch(self._text, *part[:2])]
        yield from speaking or parts

    def _trimmed(self, start: int, end: int, quoted: Mapping[int, Sequence[int]]) -> tuple[int, int]:
        """Cut the marks at the ends of a span that belong to the text around it, or that surround all of it."""
        text = self._text
        while end - start > 1:
            first, last = text[start], text[end - 1]
            if start in quoted and _SILENT.fullmatch(text, min(quoted[start][2], end), end):
                start, end, _ = quoted[start]
            elif (
                (last in _QUOTES and text.count(last, start, end) % 2)
                or (last == "\\" and text[end : end + 1] in _ESCAPES)
                or (last in _CLOSES and self._closes_earlier(last, start, end))
            ):
                end -= 1
            elif first in _QUOTES and text.count(first, start, end) % 2:
                start += 1
            else:
                break
        return start, end

    def _closes_earlier(self, closing: str, start: int, end: int) -> bool:
        """Return whether a bracket at the end of a span closes one that was opened before the span."""
        opening = _CLOSES[closing]
        if self._text.count(opening, start, end) >= self._text.count(closing, start, end):
            return False
        before = max(0, start - REACH)
        return self._text.count(opening, before, start) > self._text.count(closing, before, start)

    def _marks(self, start: int, end: int) -> Iterator[_Mark]:
        """Yield the quotation marks in a span, and those that it cuts in two."""
        at = self._text.rfind("\n", 0, start) + 1
        while at < end:
            stop = self._text.find("\n", at)
            stop = len(self._text) if stop < 0 else stop
            if at not in self._lines:
                pairs = _pairs(self._text, at, stop)
                self._lines[at] = sorted(_Mark(*one, other) for pair in pairs for one, other in (pair, pair[::-1]))
            yield from _overlapping(self._lines[at], start, end)
            at = stop + 1

    # ----------------------------------------------------------------------------------------------- documents

    def _read_documents(self) -> list[_Document]:
        if self._documents is None:
            self._documents = list(_documents(self._text))
        return self._documents

    def _in_document(self, document: _Document, start: int, end: int) -> Iterator[Slot]:
        tokens, done = document.tokens, start
        for token in _overlapping(tokens, start, end):
            is_inside = token.start <= start and end <= token.end
            if token.end <= done:
                continue
            if token.kind == "document":
                if start <= token.start and token.end <= end:
                    yield Slot(token.start, token.end)
                    done = token.end
            elif token.kind == "bare":
                if is_inside:
                    yield Slot(token.start, token.end, "\\" * (2**token.level - 1) + '"')
            elif token.kind == "text" or is_inside:
                for part in self._in_quotations(max(start, token.start), min(end, token.end)):
                    first = self._edge(part.start, token, is_start=True)
                    last = self._edge(part.end, token, is_start=False)
                    if first < last:
                        yield Slot(first, last)

    def _edge(self, at: int, token: _Token, *, is_start: bool) -> int:
        """Move the edge of a span out of an escape, which then stays."""
        begin = self._text.rfind("\\", max(token.start, at - _LONGEST_ESCAPE), at) + 1
        if not begin:
            return at
        begin = token.start + len(self._text[token.start : begin].rstrip("\\"))
        escape = _ESCAPED.match(self._text, begin, token.end)
        if escape is None or not begin < at < escape.end():
            return at
        unit = 2 ** (token.level + 1)  # backslashes that spell one
        last = escape.end(1) - len(escape[1]) % unit  # the start of a letter's escape
        if at > last:
            return at if last == escape.end(1) else escape.end() if is_start else last
        cut = (at - begin) % unit
        return at if not cut else at - cut + unit if is_start else at - cut


def _overlapping(places: Sequence[Place], start: int, end: int) -> Iterator[Place]:
    """Yield those of ordered places that share a character with a span."""
    for at in range(max(0, bisect_right(places, start, key=lambda place: place.start) - 1), len(places)):
        if places[at].start >= end:
            return
        if places[at].end > start:
            yield places[at]


def _pairs(text: str, start: int, end: int) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the two marks of each quotation on a line; a mark closes the last one with the same escape."""
    opened: list[tuple[str, tuple[int, int]]] = []
    for mark in _MARK.finditer(text, start, end):
        begin, stop = mark.span()
        same = next((i for i in reversed(range(len(opened))) if opened[i][0] == mark[0]), -1)
        is_letter = mark[2] == "'" and text[begin - 1 : begin].isalnum() and text[stop : stop + 1].isalnum()
        if same >= 0 and not is_letter:
            yield opened[same][1], (begin, stop)
            del opened[same:]
        elif mark[2] == '"' or _OPENS.search(text, max(start, begin - 3), begin):
            opened = [*opened[-MAX_OPEN:], (mark[0], (begin, stop))]


def _documents(text: str) -> Iterator[_Document]:
    """Yield the JSON documents in a text."""
    at = failed = 0
    while failed < MAX_FAILED and (match := _DOCUMENT.search(text, at)):
        at = match.start()
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            # The error counts the lines before it.
            failed += at // 1_000 + (error.pos - at if isinstance(error, json.JSONDecodeError) else _DEEP)
            at += 1
            continue
        yield _Document(at, end, list(_tokens(text, at, end, 0)))
        at = end


def _tokens(text: str, start: int, end: int, level: int) -> Iterator[_Token]:
    """Yield the values and keys of a document that is escaped `level` times."""
    # n backslashes before a quotation mark are k escaped backslashes and the mark's own: 1 at level 1, 3 at level 2.
    own, unit = 2**level - 1, 2 ** (level + 1)
    marks = [mark for mark in _DOUBLE.finditer(text, start, end) if len(mark[1]) % unit == own]
    last = start
    for opening, closing in zip(marks[::2], marks[1::2], strict=False):
        yield from _bare(text, last, opening.start(), level)
        first, stop, last = opening.end(), closing.end() - 1 - own, closing.end()
        if _COLON.match(text, last, end):
            yield _Token(first, stop, "key", level)
        elif level < MAX_DEPTH and _holds_document(text[first:stop], level):
            yield _Token(first, stop, "document", level)
            yield from _tokens(text, first, stop, level + 1)
        else:
            yield _Token(first, stop, "text", level)
    yield from _bare(text, last, end, level)


def _bare(text: str, start: int, end: int, level: int) -> Iterator[_Token]:
    return (_Token(*match.span(), "bare", level) for match in _BARE.finditer(text, start, end) if match["v"])


def _holds_document(raw: str, level: int) -> bool:
    if "{" not in raw and "[" not in raw:
        return False
    try:
        for _ in range(level + 1):
            raw = json.loads(f'"{raw}"', strict=False)
        return isinstance(json.loads(raw, strict=False), (dict, list))
    except (ValueError, TypeError, RecursionError):
        return False
