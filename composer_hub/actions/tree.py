"""The tree of a shell command: lists, pipelines, commands and words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Part(NamedTuple):
    """A piece of a word: `lit` text, or something that the shell would still expand."""

    kind: str  # lit, glob, tilde, null, raw; var, sub, arith, and in double quotes dvar, dsub, darith
    value: str | tuple[Item, ...]  # the commands of a substitution, else text


class Word(NamedTuple):
    """One word of a command before the shell expands it, as adjacent pieces."""

    parts: tuple[Part, ...]
    bare: bool = True  # nothing in it was quoted: it may be a keyword
    assignment: str = ""  # `NAME=` if the word starts with one

    @property
    def literal(self) -> str | None:
        """The text of the word, None if the shell would change it."""
        if any(part.kind != "lit" for part in self.parts):
            return None
        return "".join(str(part.value) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection; `fd` and `op` as written, so `fd` may be empty."""

    fd: str
    op: str
    target: Word
    body: str = ""  # of a heredoc
    expands: bool = False  # the shell expands the heredoc's body


@dataclass(frozen=True, slots=True)
class Simple:
    """A call of one program, or assignments alone."""

    assignments: tuple[Word, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`( … )` in a subshell, or `{ …; }` in this process."""

    subshell: bool
    body: tuple[Item, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Compound:
    """A loop or an `if`: its lists of commands, with the keyword before each."""

    words: tuple[Word, ...]  # `NAME in WORD …` of a `for`
    bodies: tuple[tuple[str, tuple[Item, ...]], ...]
    redirects: tuple[Redirect, ...]


Command = Simple | Group | Compound


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by pipes, or one command alone; `negated` by a `!` before it."""

    negated: bool
    commands: tuple[Command, ...]
    pipes: tuple[str, ...]  # "|" or "|&", one fewer than the commands


@dataclass(frozen=True, slots=True)
class Item:
    """One and-or list: pipelines, the operators between them, and whether it runs in the background."""

    pipelines: tuple[Pipeline, ...]
    operators: tuple[str, ...]
    background: bool = False
