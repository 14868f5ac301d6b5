"""Find what an action depends on, and whether a prompt shows it.

In: a message with calls, and texts. Out: `needs_of` lists the texts that an action replaces and the files that it
names, `names_of` the other names, paths and values in it, and `Need.span` finds one in a text. Any prompt must show
the needs. A name must be shown if the session showed it before: otherwise the model made it up, as it should.

Listings number their lines, and edits are often indented otherwise, so a text is found line by line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from composer_hub.actions.arguments import parsed_arguments
from composer_hub.actions.call_forms import replacements
from composer_hub.actions.calls import command_of, paths_of
from composer_hub.actions.commands import commands_in
from composer_hub.actions.edits import parse_patch
from composer_hub.actions.scripts import calls_in
from composer_hub.actions.tools import family_of_tool, known_tool
from composer_hub.records import Message, ToolCall, strings_in

# Before a line of a listing or of a patch: `  12→def f():`, `12:def f():`, `+def f():`.
_MARK = re.compile(r"\s*\d+\s?[→\t:|-]\s?|\+")
_FILE_WORD = re.compile(r"[\w.@~+/-]*[\w@+-]\.[A-Za-z]\w{0,7}")  # folders and branches look alike
_WORD = re.compile(r"\w[\w-]+\w")
_NAME = re.compile(r"\d|_|[a-z][A-Z]")  # in `MAX_AGE`, `isStale`, `u64`, `2554`; not in words of a language
_ROOTED = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[/\\][\w.@+-]+){2,}")  # /repo/src, C:\repo\src; not ./src
_MAKERS = frozenset(("mkdir", "touch", "tee"))  # every path is made
_MOVERS = frozenset(("cp", "mv", "ln", "install"))  # the last path is made


@dataclass(frozen=True, slots=True)
class Need:
    """The lines of a text that is replaced, without blanks around them, or one word: a name, a value."""

    lines: tuple[str, ...]
    is_word: bool = False

    def span(self, text: str) -> tuple[int, int] | None:
        """Return the span of its last occurrence in a text, None if there is none."""
        if not all(line in text for line in self.lines):
            return None  # which spares most texts the work below
        if self.is_word:
            word = re.escape(self.lines[0])  # first, because the engine skips to it, and then what is before it
            found = list(re.finditer(rf"{word}(?<!\w{word})(?<!\w-{word})(?![\w-])", text))
            return found[-1].span() if found else None
        shown = [(plain, start, stop) for plain, start, stop in _lines(text) if plain]
        for at in range(len(shown) - len(self.lines), -1, -1):
            if self._begins([plain for plain, _, _ in shown[at : at + len(self.lines)]]):
                return shown[at][1], shown[at + len(self.lines) - 1][2]
        return None

    def _begins(self, shown: Sequence[str]) -> bool:
        """Return whether the lines are shown; an edit may begin and end in the middle of a line."""
        first, *inner = self.lines
        if not inner:
            return first in shown[0]
        *inner, last = inner
        return shown[0].endswith(first) and shown[-1].startswith(last) and list(shown[1:-1]) == inner


def needs_of(action: Message) -> list[Need]:
    """Return the needs that a prompt must show for an action, each once."""
    calls = [inner for call in action.tool_calls for inner in calls_in(call)]
    return list(dict.fromkeys(need for call in calls for need in _needs(call)))


def names_of(action: Message) -> list[Need]:
    """Return the names, values and parts of absolute paths in the arguments of an action, each once."""
    names: dict[str, None] = {}
    for text in itertools.chain.from_iterable(map(texts_in, action.tool_calls)):
        names |= dict.fromkeys(word for word in _WORD.findall(text) if _NAME.search(word))
        for path in _ROOTED.findall(text):
            names |= dict.fromkeys(filter(None, re.split(r"[/\\]", path)))
    return [Need((name,), is_word=True) for name in names]


def texts_of(message: Message) -> Iterator[str]:
    """Yield the text of a message and every text in the arguments of its calls, also of calls that a script makes."""
    yield message.content
    for call in message.tool_calls:
        yield from texts_in(call)


def texts_in(call: ToolCall) -> Iterator[str]:
    """Yield every text in the arguments of a call and, if it is a script, of the calls that it makes."""
    yield from strings_in(call.arguments)
    for inner in calls_in(call):
        if inner is not call:
            yield from strings_in(inner.arguments)


def _needs(call: ToolCall) -> Iterator[Need]:
    arguments = parsed_arguments(call) or {}
    known = known_tool(call.name, arguments)
    kind = known[0].kind if known else ""
    if known and kind == "patch":
        for change in parse_patch(str(known[1]["patch"])) or ():
            if change.act != "add":
                yield from _names(change.path)
            for hunk in change.hunks:
                yield from _text("\n".join(hunk.old))
        return
    if known and kind == "edit":
        for edit in replacements(known[1]) or ():
            yield from _text(edit.old)
    if family_of_tool(call.name, arguments) == "shell":
        yield from _in_shell(command_of(call))
    elif kind != "write":  # which makes its file
        for path in paths_of(call):
            yield from _names(path)


def _in_shell(command: str) -> Iterator[Need]:
    made = set(re.findall(r">\s*([^\s;&|<>]+)", command))
    for simple in commands_in(command):
        words = [word for word in simple.words[1:] if _FILE_WORD.fullmatch(word) and ".." not in word]
        words = [word for word in words if word not in made]
        if simple.program in _MAKERS:
            words = []
        elif simple.program in _MOVERS:
            words = words[:-1]
        for word in words:
            yield from _names(word)


def _names(path: str) -> Iterator[Need]:
    """Yield the name of a file, and of an absolute path also the folders, which cannot be guessed."""
    *folders, name = re.split(r"[/\\]", path.rstrip("/\\"))
    for part in [*folders, name] if _ROOTED.match(path) else [name]:
        if re.search(r"\w", part):
            yield Need((part,), is_word=True)


def _text(old: str) -> Iterator[Need]:
    if lines := tuple(line for one in old.split("\n") if (line := one.strip())):
        yield Need(lines)


def _lines(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each line without its number and the blanks around it, with its place."""
    start = 0
    for line in text.split("\n"):
        yield _MARK.sub("", line, count=1).strip() if _MARK.match(line) else line.strip(), start, start + len(line)
        start += len(line) + 1
