"""Find which of the rules' trigger words a text contains, looking at each distinct word once per process.

In: texts. Out: for each, the triggers in it, or its long words that hold something. Sessions repeat their words, so the
answer for a word is remembered.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Set

from composer_hub.redact.match import long_words
from composer_hub.redact.needles import trie

MAX_WORDS = 100_000
"""Words to remember before starting over."""

MAX_KEY = 60
MAX_REMEMBERED = 256
"""Characters of a word that may occur again; longer ones do not."""


class WordsWith:
    """The words in which something is found."""

    def __init__(self, holds: Callable[[str], object], words: Callable[[str], Set[str]] = long_words) -> None:
        self._holds = holds
        self._words = words
        self._without: set[str] = set()

    def of(self, text: str) -> list[str]:
        """Return the distinct words of the text in which it is found."""
        held = []
        for word in self._words(text) - self._without:
            if self._holds(word):
                held.append(word)
            elif len(word) <= MAX_REMEMBERED:
                if len(self._without) >= MAX_WORDS:
                    self._without.clear()
                self._without.add(word)
        return held


# Lower case, and a space for every character that is not part of a name; a dash counts as an underscore.
_LETTERS = bytes(
    ord("_") if c in b"_-" else c + 32 if 65 <= c <= 90 else c if 97 <= c <= 122 or c >= 128 else ord(" ")
    for c in range(256)
)


class Triggers:
    """The words without which no rule can match.

    A trigger may be part of a word (`dbpassword` holds `passw`); one of `whole` is a word by itself (`az`), perhaps
    after the letter of an escape (`\\naz`).
    """

    def __init__(
        self,
        triggers: Iterable[str],
        whole: Iterable[str] = (),
        keys_in: Callable[[str], Collection[str]] = lambda word: (),  # keys in a word, triggers after a \0
    ) -> None:
        self._keys_in = keys_in
        self._whole = {(escape + word).encode(): word for word in whole for escape in ("", "n", "t")}
        self._by_first: dict[int, list[tuple[bytes, str]]] = defaultdict(list)
        for trigger in sorted(set(triggers)):
            self._by_first[trigger.encode()[0]].append((trigger.encode(), trigger))
        spellings = (spelling for pairs in self._by_first.values() for spelling, _ in pairs)
        self._any = re.compile(trie(spelling.decode("latin-1") for spelling in spellings).encode("latin-1"))
        self._without: set[bytes] = set()
        self._with: dict[bytes, set[str]] = {}

    def of(self, text: str) -> set[str]:
        """Return the triggers in the text, in any case."""
        words = {*text.encode("utf-8", "surrogatepass").translate(_LETTERS).split()} - self._without
        new = words.difference(self._with)
        held = set().union(*map(self._with.__getitem__, words - new if new else words))
        for word in new:
            held |= self._learn(word)
        return held

    def _learn(self, word: bytes) -> set[str]:
        held = {self._whole[word]} if word in self._whole else set()
        if self._any.search(word):
            for first in set(word) & self._by_first.keys():
                held.update([trigger for spelling, trigger in self._by_first[first] if spelling in word])
        if len(word) <= MAX_KEY:
            held.update(f"\0{key}" for key in self._keys_in(word.decode("utf-8", "replace").lower()))
        if len(self._with) + len(self._without) >= MAX_WORDS:
            self._with.clear()
            self._without.clear()
        if len(word) <= MAX_REMEMBERED:
            if held:
                self._with[word] = held
            else:
                self._without.add(word)
        return held
