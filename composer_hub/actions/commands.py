"""The simple commands of a shell line, in order, whatever surrounds them: for rules that ask which programs ran.

`parse_shell` builds the tree of a text that it understands as a whole. This reads the same words and operators in one
flat pass, so that loops, tests and broken quotes hide nothing. Heredoc bodies, redirections and assignments are
left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from composer_hub.actions import programs
from composer_hub.actions.shell import IO_NUMBER, KEYWORDS, OPERATORS, REDIRECTS, WORD_END, ShellReader, Unparsable

MAX_SUBSTITUTIONS = 3  # inside each other
MAX_SHELL_CHARS = 20_000  # a longer text is a file in a heredoc; its head names the programs

_ASSIGNMENT = re.compile(r"\w+=")
_QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'""", re.DOTALL)
_QUOTING = re.compile(r"""\\\n|["'\\]""")
_UNTIL_BLANK = re.compile(r"[^\s|&;()<>]*")


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command of a shell line: its words without quotes, and whether its output goes into a pipe."""

    words: tuple[str, ...]
    piped: bool = False

    @property
    def program(self) -> str:
        """Return the program's name without its folder."""
        return self.words[0].rsplit("/", 1)[-1] if self.words else ""


def commands_in(text: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands of a shell text, without the wrappers (`sudo`, `timeout 30`) before a program."""
    return _commands_in(text[:MAX_SHELL_CHARS])


@functools.lru_cache(maxsize=512)  # many rules ask about the same call
def _commands_in(text: str) -> tuple[SimpleCommand, ...]:
    return tuple(command for command in _scan(ShellReader(text)) if command.words)


def _scan(reader: ShellReader, depth: int = 0) -> Iterator[SimpleCommand]:
    words: list[str] = []
    tags: list[str] = []  # of the heredocs that begin after this line
    while char := reader.peek():
        number = IO_NUMBER.match(reader.text, reader.pos)
        start = number.end() if number else reader.pos
        operator = next((op for op in OPERATORS if reader.text.startswith(op, start)), "")
        if char == "\n":
            reader.pos += 1
            yield SimpleCommand(_without_wrappers(words))
            words = []
            for tag in tags:
                _skip_heredoc(reader, tag)
            tags = []
        elif operator in REDIRECTS:
            reader.pos = start + len(operator)
            target = _word(reader)
            if operator in ("<<", "<<-"):
                tags.append(target)
        elif operator in ("(", ")"):
            reader.pos += 1
        elif operator:
            reader.pos += len(operator)
            yield SimpleCommand(_without_wrappers(words), piped=operator in ("|", "|&"))
            words = []
        else:
            begin = reader.pos
            words.append(_word(reader))
            if "$(" in (raw := reader.text[begin : reader.pos]) and depth < MAX_SUBSTITUTIONS:
                for inner in _substitutions(raw):
                    yield from _scan(ShellReader(inner), depth + 1)
    yield SimpleCommand(_without_wrappers(words))


def _substitutions(word: str) -> Iterator[str]:
    """Yield the shell text of each `$(…)` in a word; text in single quotes is not run."""
    pos = 0
    quoted = False  # by double quotes, in which a single quote means nothing
    while pos < len(word):
        if word[pos] == "'" and not quoted:
            end = word.find("'", pos + 1)
            pos = end + 1 if end > 0 else len(word)
        elif word.startswith("$(", pos) and not word.startswith("$((", pos):
            end = _closed(word, pos + 2) or len(word)
            yield word[pos + 2 : end]
            pos = end + 1
        else:
            quoted ^= word[pos] == '"'
            pos += 2 if word[pos] == "\\" else 1


def _closed(word: str, pos: int) -> int:
    """Return the place of the bracket that closes a substitution, or 0."""
    depth = 1
    while pos < len(word):
        if word[pos] == "\\":
            pos += 1
        elif word[pos] in "()":
            depth += 1 if word[pos] == "(" else -1
            if not depth:
                return pos
        pos += 1
    return 0


def _word(reader: ShellReader) -> str:
    """Read a word without its quotes; one that the parser does not understand ends at the next blank or operator."""
    reader.peek()
    text, start, depth = reader.text, reader.pos, reader.depth
    try:
        word = reader.word()
        if word is None:
            return ""
        if word.literal is not None:
            return word.literal
    except (Unparsable, RecursionError):
        reader.text, reader.pos, reader.depth = text, _end_of_word(text, start), depth
    return _QUOTING.sub("", reader.text[start : reader.pos])


def _end_of_word(text: str, start: int) -> int:
    pos, depth = start, 0
    while pos < len(text):
        if quoted := _QUOTED.match(text, pos):
            pos = quoted.end()
        elif text[pos] == "\\":
            pos += 2
        elif text.startswith("$(", pos) or (depth and text[pos] == "("):
            depth += 1
            pos += 2 if text[pos] == "$" else 1
        elif depth and text[pos] == ")":
            depth -= 1
            pos += 1
        elif not depth and text[pos] in WORD_END:
            return pos
        else:
            pos += 1
    if depth:
        # The substitution is never closed.
        blank = _UNTIL_BLANK.match(text, start)
        return max(blank.end() if blank else start, start + 1)
    return len(text)


def _skip_heredoc(reader: ShellReader, tag: str) -> None:
    end = re.compile(rf"^[ \t]*{re.escape(tag)}[ \t]*$", re.MULTILINE).search(reader.text, reader.pos)
    reader.pos = end.end() if end else len(reader.text)


def _without_wrappers(words: Sequence[str]) -> tuple[str, ...]:
    """Drop what comes before the program: `FOO=1 sudo timeout 30 uv run pytest` runs pytest."""
    rest = words
    while rest:
        if rest[0] in programs.LAUNCHERS or rest[0] in KEYWORDS or rest[0] == "in" or _ASSIGNMENT.match(rest[0]):
            rest = rest[programs.after_own(rest, 1) :]
        elif " ".join(rest[:2]) in programs.RUNNERS:
            rest = rest[programs.after_own(rest, 2) :]  # `uv run --frozen pytest` and `mise exec -- pytest` run pytest
        else:
            break
    return tuple(rest)
