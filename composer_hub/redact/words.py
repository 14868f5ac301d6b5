"""Tell which of the words that matter a text holds, looking at each distinct word once.

In: texts. Out: for each, the triggers in it, or the long words worth a closer look. Sessions say the same words over
and over, so what was seen in a word is remembered, in this process and as long as it lives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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

    A trigger may stand within a word (`dbpassword` holds `passw`); one of `whole` is a word of its own (`az`), or
    stands behind the letter of an escape (`\\naz`).
    """

    def __init__(self, triggers: Iterable[str], whole: Iterable[str] = ()) -> None:
        self._whole = {(escape + word).encode(): word for word in whole for escape in ("", "n", "t")}
        self._triggers = [(trigger.encode(), trigger) for trigger in sorted(set(triggers))]
        self._any = re.compile(b"|".join(re.escape(trigger) for trigger, _ in self._triggers))
        self._without: set[bytes] = set()
        self._with: dict[bytes, set[str]] = {}

    def of(self, text: str) -> set[str]:
        """Return the triggers that the text holds, in any case."""
        found: set[str] = set()
        for word in {*text.encode("utf-8", "surrogatepass").translate(_LETTERS).split()} - self._without:
            held = self._with.get(word)
            found |= self._learn(word) if held is None else held
        return found

    def _learn(self, word: bytes) -> set[str]:
        held = {self._whole[word]} if word in self._whole else set()
        if self._any.search(word):
            held.update(trigger for spelling, trigger in self._triggers if spelling in word)
        if len(self._with) + len(self._without) >= MAX_KNOWN:
            self._with.clear()
            self._without.clear()
        if len(word) <= MAX_REMEMBERED:
            if held:
                self._with[word] = held
            else:
                self._without.add(word)
        return held


class LongWords:
    """The words in which no token was found, so that each is searched once."""

    def __init__(self) -> None:
        self._without: set[str] = set()

    def unknown(self, text: str) -> Iterator[str]:
        """Yield each distinct long word of the text that is not known to hold nothing."""
        yield from {word for word in text.split() if len(word) >= MIN_LONG} - self._without

    def holds_nothing(self, word: str) -> None:
        """Remember that there is no token in the word."""
        if len(self._without) >= MAX_KNOWN:
            self._without.clear()
        if len(word) <= MAX_REMEMBERED:
            self._without.add(word)
