"""Values that are replaced everywhere in a trace: the publisher's, its users, and secrets that it names somewhere.

In: the texts of one trace. Out: `KnownValues`, which replaces them in each text. Rules see one text at a time; a pass
over a whole session belongs here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import quote

from composer_hub.redact.data import words
from composer_hub.redact.match import PLACEHOLDER, places, same_length_lower

Counts = Counter[tuple[str, str]]
"""Replacements by (kind, rule)."""

MIN_LEARNED = 10
"""Characters from which a secret found by its surroundings is also replaced in the rest of its trace."""

_USERS_THAT_ARE_WORDS = frozenset(words("users that are words"))
_HOMES = ("/home/", "/Users/", "\\Users\\", "-Users-", "-home-", "%2FUsers%2F", "%2Fhome%2F", "/~", " ~", "\n~")
_CODE_BEFORE = re.compile(r"(?:\\[ntr]|\[[0-9;]{0,12}m)\Z")


class KnownValues:
    """Values to replace wherever they occur."""

    def __init__(self, placeholder: Callable[[str, str], str], exact: Iterable[str], users: Iterable[str]) -> None:
        self._placeholder = placeholder  # of (label, value)
        self._values: dict[str, tuple[str, str, str]] = {}
        self._users: dict[str, str] = {}
        self.add_users(users)
        for value in exact:
            for spelling in {value, quote(value, safe=""), json.dumps(value)[1:-1]}:
                self._values.setdefault(spelling, (value, "SECRET", "exact"))

    def add_users(self, users: Iterable[str]) -> None:
        for user in users:
            lowered = user.lower()
            if lowered not in self._users:
                # Harnesses name a session folder after the working directory, with a dash for every sign.
                self._users[lowered] = self._users[re.sub(r"[^a-z0-9]", "-", lowered)] = lowered

    def learn(self, label: str, value: str) -> None:
        """Remember a value that a rule found, if it is long enough to be recognized without its surroundings."""
        if len(value) >= MIN_LEARNED and label in ("SECRET", "NAME") and "\n" not in value:
            self._values.setdefault(value, (value, label, "learned"))

    def without_homes(self, text: str, counts: Counts | None = None) -> str:
        """Replace the names of users in home folders."""
        return self._without_users(text, counts, _names_home)

    def without_values(self, text: str, counts: Counts) -> str:
        """Replace the values, and the names of users everywhere."""
        for spelling in sorted((value for value in self._values if value in text), key=len, reverse=True):
            value, label, rule = self._values[spelling]
            counts[label.lower(), rule] += text.count(spelling)
            text = text.replace(spelling, self._placeholder(label, value))
        return self._without_users(text, counts, _names_user)

    def _without_users(self, text: str, counts: Counts | None, accept: Callable[[str, int, str], bool]) -> str:
        lowered = same_length_lower(text) if self._users else ""
        for spelling in [spelling for spelling in self._users if spelling in lowered]:
            starts = [at for at in _words(lowered, spelling) if accept(text, at, spelling)]
            if starts:
                if counts is not None:
                    counts["user", "home_folder"] += len(starts)
                text = _replaced(text, starts, len(spelling), self._placeholder("USER", self._users[spelling]))
                lowered = same_length_lower(text)
        return text


def _words(text: str, word: str) -> Iterator[int]:
    """Yield the places of a word that ends there."""
    return (at for at in places(text, word) if not text[at + len(word) : at + len(word) + 1].isalnum())


def _replaced(text: str, starts: Sequence[int], length: int, replacement: str) -> str:
    ends = [0, *(at + length for at in starts)]
    return replacement.join(text[start:stop] for start, stop in zip(ends, [*starts, len(text)], strict=True))


def _names_home(text: str, at: int, user: str) -> bool:
    before = text[max(0, at - 40) : at]
    return (before.rstrip("\\") + "\\" if before.endswith("\\") else before).endswith(_HOMES)


def _names_user(text: str, at: int, user: str) -> bool:
    """Tell whether the name of the user is a whole word here; names that are also words go in paths only."""
    begins = at == 0 or not text[at - 1].isalnum() or bool(_CODE_BEFORE.search(text, max(0, at - 12), at))
    return begins and len(user) >= 4 and user not in _USERS_THAT_ARE_WORDS and not _in_placeholder(text, at)


def _in_placeholder(text: str, at: int) -> bool:
    match = PLACEHOLDER.search(text, max(0, at - 32), at + 40)
    return match is not None and match.start() <= at < match.end()
