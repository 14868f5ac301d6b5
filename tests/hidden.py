"""Characters that nobody sees, for tests of every place that shows text of others."""

from __future__ import annotations

from composer_hub.local_hub.characters import visible

# tests/local_hub/test_characters.py compares the function with an independent source.
HIDDEN = "".join(char for char in map(chr, range(0x110000)) if char not in "\n\t" and visible(char) != char)
NO_HALVES = "".join(char for char in HIDDEN if not "\ud800" <= char <= "\udfff")  # what a file in UTF-8 can hold
FEW = "\u202egnp\u2066\u00ad\u034f\u115f\u180e\u200b\u2028\u2800\u3164\uffa0\u200d\u200d\ufe0f\x85\U000e0041\U000e0100"
"""Some of every kind, short enough for each field of a data set."""


def hidden_in(text: str) -> list[str]:
    """Return the hidden characters in what a place shows; line ends and tabs are layout."""
    return sorted(set(HIDDEN) & set(text))
