"""Find many known strings in a text at once, in time that does not grow with their number.

In: strings. Out: `Needles`, which yields the offsets at which they begin in a text. Their first characters
are one regular expression; the rest is looked up by length.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

_SEED = 4
"""First characters of a string that the expression holds."""

Accept = Callable[[int, int], bool]
"""Tell whether the string between these places counts."""


class Needles:
    """Strings to find; a longer one wins over a shorter one at the same place."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._strings = frozenset(strings)
        seeds = {string[:_SEED] for string in self._strings}
        lengths: dict[str, set[int]] = defaultdict(set)
        for string in self._strings:
            for size in range(1, min(_SEED, len(string)) + 1):
                lengths[string[:size]].add(len(string))
        self._lengths = {seed: sorted(lengths[seed], reverse=True) for seed in seeds}
        self._shorter = {
            seed: [seed[:size] for size in range(len(seed) - 1, 0, -1) if seed[:size] in seeds] for seed in seeds
        }
        self._pattern = re.compile(trie(seeds)) if seeds else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def find(self, text: str, accept: Accept = lambda start, end: True) -> Iterator[tuple[int, str]]:
        """Yield the place and the string of every accepted occurrence; two of them do not overlap."""
        at = 0
        while self._pattern is not None and (seed := self._pattern.search(text, at)):
            start = seed.start()
            found = self._at(text, start, seed[0], accept)
            if found:
                yield start, found
            at = start + max(1, len(found))

    def _at(self, text: str, start: int, seed: str, accept: Accept) -> str:
        for begin in (seed, *self._shorter[seed]):
            for length in self._lengths[begin]:
                string = text[start : start + length]
                if string in self._strings and accept(start, start + length):
                    return string
        return ""


def trie(seeds: Iterable[str]) -> str:
    """Return an expression for the seeds, the longest first, that shares their beginnings."""
    by_first: dict[str, list[str]] = defaultdict(list)
    ordered = sorted(seeds)
    for seed in ordered:
        if seed:
            by_first[seed[0]].append(seed[1:])
    last = [first for first, rests in by_first.items() if rests == [""]]
    branches = [re.escape(first) + trie(rests) for first, rests in by_first.items() if rests != [""]]
    if last:
        branches.append(re.escape(last[0]) if len(last) == 1 else f"[{''.join(map(re.escape, last))}]")
    whole = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
    return f"(?:{whole})?" if "" in ordered else whole
