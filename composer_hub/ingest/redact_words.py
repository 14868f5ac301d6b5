"""Tell which of the words that matter a text holds, looking at each distinct word once.

In: texts. Out: for each, the triggers in it, or the long words worth a closer look. Sessions say the same words over
and over, so what a word does not hold is remembered; a word that holds something is not, as it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

MAX_KNOWN = 100_000
"""Words to remember before beginning anew."""

MIN_LONG = 16
"""Characters from which a word may be a token."""

MAX_REMEMBERED = 256
"""A longer word does not come twice."""

# Lower case, and a space for whatever is part of no name; a dash counts as an underscore.
_LETTERS = bytes(
    ord("_") if c in b"_-" else c + 32 if 65 <= c <= 90 else c if 97 <= c <= 122 or c >= 128 else ord(" ")
    for c in range(256)
)


class Triggers:
    """The words without which no rule can match: one pass over a text says which of them it holds.

    A trigger may stand within a word (`dbpassword` holds `passw`); one of `whole` is a word of its own (`az`).
    """

    def __init__(self, triggers: Iterable[str], whole: Iterable[str] = ()) -> None:
        self._whole = {word.encode(): word for word in whole}
        self._triggers = [(trigger.encode(), trigger) for trigger in sorted(set(triggers))]
        self._any = re.compile(b"|".join(re.escape(trigger) for trigger, _ in self._triggers))
        self._without: set[bytes] = set()

    def of(self, text: str) -> set[str]:
        """Return the triggers that the text holds, in any case."""
        words = {*text.encode("utf-8", "surrogatepass").translate(_LETTERS).split()}
        found = {self._whole[word] for word in words & self._whole.keys()}
        for word in words - self._without:
            if self._any.search(word):
                found.update(trigger for spelling, trigger in self._triggers if spelling in word)
            else:
                _remember(self._without, word)
        return found


class LongWords:
    """The words in which no token was found, so that each is searched once."""

    def __init__(self) -> None:
        self._without: set[str] = set()

    def unknown(self, text: str) -> Iterator[str]:
        """Yield each distinct long word of the text that is not known to hold nothing."""
        yield from {word for word in text.split() if len(word) >= MIN_LONG} - self._without

    def holds_nothing(self, word: str) -> None:
        if len(word) <= MAX_REMEMBERED:
            _remember(self._without, word)


def _remember(words: set[Any], word: Any) -> None:
    if len(words) >= MAX_KNOWN:
        words.clear()
    words.add(word)
