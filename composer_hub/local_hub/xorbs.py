"""The formats of Xet: a xorb is packed chunks one after another, a shard lists the chunks of each file. No storage.

In: bytes from a client or from disk. Out: offsets and lengths of chunks, their plain bytes, the files of a shard.
Everything that does not add up raises `Malformed`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from composer_hub.local_hub.errors import LocalHubError

_RECORD = 48
_END = b"\xff" * 32
_HAS_VERIFICATION, _HAS_METADATA = 0x80000000, 0x40000000
HEADER = 8
HOLE = b"\0\1\0\0\0\0\0\0\0"
"""In place of a chunk that no file names any more: a chunk that unpacks to nothing."""
_PLAIN, _LZ4, _GROUPED_LZ4 = range(3)

Term = tuple[str, int, int, int]
"""(xorb, unpacked length, first chunk, chunk after the last)"""


class Malformed(LocalHubError, ValueError):
    """A xorb or a shard that does not hold what its own numbers say."""


@dataclass(frozen=True, slots=True)
class Pack:
    """The layout of a xorb: chunk `i` is the bytes from `offsets[i]` to `offsets[i + 1]`."""

    offsets: list[int]
    lengths: list[int]

    def trimmed(self, first: int, stop: int, start: int, end: int) -> tuple[int, int, int]:
        """Cut chunks to those that hold the bytes from `start` to `end` of them.

        Return how many bytes go before the first one that is left, and the first and the one after the last.
        """
        before = 0
        while first < stop and before + self.lengths[first] <= start:
            before += self.lengths[first]
            first += 1
        last, after = first, before
        while last < stop and after < end:
            after += self.lengths[last]
            last += 1
        return before, first, last

    def without(self, unused: Collection[int]) -> Pack:
        """Return the pack with holes for these chunks; the others keep their numbers, which clients remember."""
        sizes = [after - before for before, after in itertools.pairwise(self.offsets)]
        sizes = [len(HOLE) if number in unused else size for number, size in enumerate(sizes)]
        lengths = [0 if number in unused else length for number, length in enumerate(self.lengths)]
        return Pack([0, *itertools.accumulate(sizes)], lengths)


def pack_of(file: BinaryIO, size: int) -> Pack:
    """Read the places of the chunks of a xorb; they must fill it exactly, up to an optional footer."""
    found = list(chunks(file, size))
    if not found:
        raise Malformed("The xorb holds no chunk.")
    return Pack([0, *(offset for offset, _ in found)], [length for _, length in found])


def chunks(file: BinaryIO, size: int) -> Iterator[tuple[int, int]]:
    """Yield (offset after it, unpacked length) of every chunk of a xorb."""
    at = 0
    while at < size:
        file.seek(at)
        head = file.read(HEADER)
        if head.startswith(b"XETBLOB"):
            return
        packed, unpacked = int.from_bytes(head[1:4], "little"), int.from_bytes(head[5:8], "little")
        at += HEADER + packed
        if len(head) < HEADER or at > size or not packed:
            raise Malformed("A chunk of the xorb reaches beyond its end.")
        yield at, unpacked


def unpacked(chunk: memoryview) -> bytes | memoryview:
    """Return the plain bytes of one chunk with its header."""
    scheme, length = chunk[4], int.from_bytes(chunk[5:8], "little")
    if int.from_bytes(chunk[1:4], "little") != len(chunk) - HEADER:
        raise Malformed("The header of a chunk gives another length.")
    if scheme == _PLAIN:
        plain: bytes | memoryview = chunk[HEADER:]
    elif scheme in (_LZ4, _GROUPED_LZ4):
        plain = _from_lz4(chunk[HEADER:], length)
        plain = _ungrouped(plain) if scheme == _GROUPED_LZ4 else plain
    else:
        raise Malformed(f"A chunk is packed by the unknown scheme {scheme}.")
    if len(plain) != length:
        raise Malformed(f"A chunk holds {len(plain)} bytes, not {length}.")
    return plain


def _from_lz4(packed: memoryview, length: int) -> bytes:
    # pyarrow takes a moment to load, and uncompressed chunks do not need it.
    import pyarrow

    try:
        # `pyarrow.decompress` would fill up a short chunk with whatever was in memory before.
        with pyarrow.CompressedInputStream(pyarrow.py_buffer(packed), "lz4") as stream:
            return bytes(stream.read(length + 1))
    except (OSError, ValueError) as error:
        raise Malformed(f"A chunk is not valid LZ4 ({error}).") from error


def _ungrouped(grouped: bytes) -> bytes:
    """Undo the grouping of numbers by their first, second, third and fourth bytes."""
    plain, start = bytearray(len(grouped)), 0
    for place in range(4):
        count = (len(grouped) - place + 3) // 4
        plain[place::4] = grouped[start : start + count]
        start += count
    return bytes(plain)


def parse_shard(body: bytes) -> Iterator[tuple[str, str, list[Term]]]:
    """Yield (hash, sha256, terms) of every file in a shard."""
    at = _RECORD
    while (record := _record(body, at))[:32] != _END:
        name, (flags, num_terms) = _hex(record), struct.unpack_from("<II", record, 32)
        at += _RECORD
        if num_terms > (len(body) - at) // _RECORD:
            raise Malformed("A file of the shard has more terms than the shard has bytes.")
        terms = []
        for i in range(num_terms):
            term = _record(body, at + i * _RECORD)
            _, length, first, stop = struct.unpack_from("<4I", term, 32)
            terms.append((_hex(term), length, first, stop))
        at += num_terms * _RECORD * (2 if flags & _HAS_VERIFICATION else 1)
        sha256 = ""
        if flags & _HAS_METADATA:
            sha256 = _hex(_record(body, at))
            at += _RECORD
        yield name, sha256, terms


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that touch: hf_xet expects to find each term whole in exactly one of the places to fetch from."""
    joined: list[tuple[int, int]] = []
    for first, stop in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((first, stop))
    return joined


def _record(body: bytes, at: int) -> bytes:
    record = body[at : at + _RECORD]
    if len(record) < _RECORD:
        raise Malformed("The shard ends within a record.")
    return record


def _hex(record: bytes) -> str:
    """Write a hash as Xet does: four little-endian words."""
    return "".join(f"{word:016x}" for word in struct.unpack_from("<4Q", record))
