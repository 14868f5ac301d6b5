"""A trace as arrays: where its atoms are, what each is made of, and what is beside it.

In: the texts of a session, each with the words of the call that printed it. Out: `Atoms`, one row per atom. An atom is
a run of characters without space, quotation mark, bracket or one of `= : , ; & @ / \\ |`. All texts are in one buffer,
so that numpy sees a session once: a loop over its 150,000 atoms per MB would cost more than all rules together.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from composer_hub.redact.data import lines

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

MAX_ABOUT = 240
"""Characters of a call that are read before what it printed."""
CHUNK = 1 << 16
"""Characters after which a buffer ends; arrays of this size stay in the processor's cache."""
MAX_ATOM = 4096
START, BODY = "\x02", "\x03"
"""Around the words of the call, in the buffer."""

_SEPARATORS = " \t\r\n\"'`<>()[]{},;|=:&@/\\\0\x02\x03\u00a0\u2028\u2029"
_SEPARATOR, _LOWER, _UPPER, _DIGIT, _DASH, _DOT, _SIGN, _OTHER = range(8)
_PRIME = np.uint64(0x9E3779B97F4A7C15 | 1)
_INVERSE = np.uint64(pow(int(_PRIME), -1, 1 << 64))
_PACKED = tuple(
    np.array([1 << 16 * ((kind - 1) % 4) if kind and kind // 5 == half else 0 for kind in range(8)], np.uint64)
    for half in (0, 1)
)
_LENGTHS = np.array([2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 33, 40, 41, 64, 65, 128])


@functools.cache
def _classes() -> tuple[NDArray[np.int8], NDArray[np.uint32]]:
    """Return the class and the lower case of each code point below 65,536."""
    kinds = np.full(1 << 16, _OTHER, np.int8)
    lowered = np.arange(1 << 16, dtype=np.uint32)
    for code in range(1 << 16):
        letter = chr(code)
        if letter.islower():
            kinds[code] = _LOWER
        elif letter.isupper():
            kinds[code] = _UPPER
            lowered[code] = ord(letter.lower()[0])
    kinds[ord("0") : ord("9") + 1] = _DIGIT
    kinds[[ord(sign) for sign in "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~"]] = _SIGN
    kinds[[ord("-"), ord("_")]] = _DASH
    kinds[ord(".")] = _DOT
    kinds[[ord(sign) for sign in _SEPARATORS]] = _SEPARATOR
    return kinds, lowered


@functools.cache
def _pairs() -> Ints:
    """Return for each pair of letters its bits, and above 20 binary digits a one; 0 for other characters."""
    table = np.zeros((27, 27), np.int64)
    table[1:, 1:] = [[int(digit) + (1 << 20) for digit in row[:26]] for row in lines("letter_pairs.txt")]
    return table.ravel()


def mixed(*parts: Ints | Hashes) -> Hashes:
    """Return a hash of the columns, row by row."""
    out = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        out = (out ^ part.astype(np.uint64)) * np.uint64(0xC2B2AE3D27D4EB4F)
        out ^= out >> np.uint64(29)
    return out


@dataclass(frozen=True)
class Atoms:
    """The atoms of a session, in order; every field has one entry per atom."""

    buffer: str
    start: Ints
    end: Ints
    text: Ints  # index of its text
    is_about: NDArray[np.bool_]  # of the call rather than of the text
    line: Ints
    low: Hashes  # of the atom in lower case
    head: Hashes  # of its first part: `api` of apiKey
    tail: Hashes  # of its last part: `key`
    flags: Ints  # the classes of characters in it
    length: Ints  # bucket
    digits: Ints
    uppers: Ints
    signs: Ints
    surprise: NDArray[np.float32]  # bits per pair of letters
    switches: NDArray[np.float32]  # share of neighbors of different classes
    left: Hashes  # the notation before it
    right: Hashes
    is_key: NDArray[np.bool_]  # a colon or an equals sign follows
    prefix: Hashes  # its first four code points, mixed
    shape: Ints  # the classes of its first eight characters

    def __len__(self) -> int:
        return len(self.start)

    def word(self, row: int) -> str:
        return self.buffer[self.start[row] : self.end[row]]


def atoms_of(texts: Sequence[tuple[str, str]]) -> Iterator[Atoms]:
    """Cut texts, each with the words of its call, into atoms, some texts at a time."""
    parts: list[str] = []
    size = 0
    for about, text in texts:
        about, text = (part.replace(START, " ").replace(BODY, " ") for part in (about[:MAX_ABOUT], text))
        parts.append(f"{START}{about}{BODY}\n{text}\n")
        size += len(parts[-1])
        if size > CHUNK:
            yield _atoms("".join(parts))
            parts, size = [], 0
    if parts:
        yield _atoms("".join(parts))


@functools.lru_cache(maxsize=2)
def _powers(size: int) -> tuple[Hashes, Hashes]:
    """Return the powers of a prime, and of its inverse, modulo 2 ** 64."""
    ones = np.ones(1, np.uint64)
    up = np.cumprod(np.concatenate([ones, np.full(size, _PRIME)]))
    down = np.cumprod(np.concatenate([ones, np.full(size, _INVERSE)]))
    return up, down


def _summed(column: NDArray[Any]) -> NDArray[Any]:
    """Return the sums of everything before each place, which wrap, as differences may."""
    out = np.zeros(len(column) + 1, column.dtype)
    np.cumsum(column, out=out[1:])
    return out


def _atoms(buffer: str) -> Atoms:
    buffer += "\0" * 8
    codes = np.frombuffer(buffer.encode("utf-32-le", "surrogatepass"), np.uint32)
    size = len(codes)
    kinds_of, lowered_of = _classes()
    small = np.minimum(codes, 0xFFFF)
    kinds = kinds_of[small]
    lowered = lowered_of[small]
    edges = np.flatnonzero(np.diff((kinds != _SEPARATOR).view(np.int8), prepend=np.int8(0), append=np.int8(0)))
    start, end = edges[::2], edges[1::2]
    end = np.minimum(end, start + MAX_ATOM)
    length = end - start

    # A polynomial hash of any part of the buffer is a difference of two sums.
    up, down = _powers(max(1 << 18, 1 << size.bit_length()))
    sums = _summed((lowered + np.uint32(1)) * up[:size])

    def hashed(begin: Ints, stop: Ints) -> Hashes:
        return (sums[stop] - sums[begin]) * down[begin]

    # Seven counts, of 16 bits each, in two sums.
    first_counts, other_counts = (_summed(table[kinds]) for table in _PACKED)
    packed = (first_counts[end] - first_counts[start], other_counts[end] - other_counts[start])
    counts = {
        kind: ((packed[kind // 5] >> np.uint64(16 * ((kind - 1) % 4))) & np.uint64(0xFFFF)).astype(np.int64)
        for kind in range(_LOWER, _OTHER + 1)
    }
    is_hex_sign = (kinds == _DIGIT) | ((lowered >= ord("a")) & (lowered <= ord("f")))
    hexes = _summed(is_hex_sign.astype(np.int32))
    flags = functools.reduce(
        np.bitwise_or, ((number > 0).astype(np.int64) << (kind - 1) for kind, number in counts.items())
    )
    is_title = (kinds[start] == _UPPER) & (counts[_UPPER] == 1) & (counts[_LOWER] > 0)
    is_hex = (hexes[end] - hexes[start] == length) & (length >= 6)
    flags |= (is_title.astype(np.int64) << 7) | (is_hex.astype(np.int64) << 8)

    # A new part begins at a change of class, except at the second letter of a capitalized word.
    changes = np.ones(size, np.bool_)
    changes[1:] = (kinds[1:] != kinds[:-1]) & ~((kinds[:-1] == _UPPER) & (kinds[1:] == _LOWER))
    letters = (kinds == _LOWER) | (kinds == _UPPER)
    begins = np.append(np.flatnonzero(changes & letters), size - 1)
    borders = np.append(np.flatnonzero(changes), size)

    def part(begin: Ints) -> Hashes:
        begin = np.minimum(np.maximum(begin, start), end)
        return hashed(begin, np.minimum(borders[np.searchsorted(borders, begin, "right")], end))

    inner = _summed(changes.astype(np.int32))
    alphabet = np.where((lowered >= 97) & (lowered <= 122), lowered - np.uint32(96), np.uint32(0))
    pairs = _summed(_pairs()[alphabet[:-1] * np.uint32(27) + alphabet[1:]])
    stop = np.maximum(end - 1, start)
    bits = pairs[stop] - pairs[start]
    surprise = (bits & 0xFFFFF) / np.maximum(bits >> 20, 1)
    switches = (inner[end] - inner[np.minimum(start + 1, end)]) / np.maximum(length - 1, 1)

    marks = np.searchsorted(np.flatnonzero(codes == ord(START)), start)
    bodies = np.searchsorted(np.flatnonzero(codes == ord(BODY)), start)
    # A letter two places away belongs to another word; only signs are notation.
    notation = np.where(kinds == _SEPARATOR, codes, np.uint32(1)).astype(np.uint64)
    before = [notation[np.maximum(start - k, 0)] for k in (1, 2, 3)]
    after = [notation[np.minimum(end + k, size - 1)] for k in (0, 1, 2)]
    gap = np.minimum(start - np.append(0, end[:-1]), 4)
    joints = np.zeros(128, np.bool_)
    joints[[ord(":"), ord("=")]] = True
    near, next_but_one = (joints[np.minimum(one, 127).astype(np.int64)] for one in after[:2])
    shape = functools.reduce(
        np.bitwise_or,
        (
            np.where(start + k < end, kinds[np.minimum(start + k, size - 1)], 0).astype(np.int64) << (3 * k)
            for k in range(8)
        ),
    )
    return Atoms(
        buffer,
        start,
        end,
        marks - 1,
        marks > bodies,
        np.searchsorted(np.flatnonzero(codes == ord("\n")), start),
        hashed(start, end),
        part(begins[np.searchsorted(begins, start)]),
        part(begins[np.maximum(np.searchsorted(begins, end) - 1, 0)]),
        flags,
        np.searchsorted(_LENGTHS, length, "right"),
        counts[_DIGIT],
        counts[_UPPER],
        counts[_SIGN] + counts[_DASH] + counts[_DOT],
        surprise.astype(np.float32),
        switches.astype(np.float32),
        mixed(*before, gap),
        mixed(*after),
        near | (next_but_one & (after[0] != ord("\n"))),
        hashed(start, np.minimum(start + 4, end)),
        shape,
    )
