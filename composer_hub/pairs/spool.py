"""Items in a temporary file, so that memory does not grow with their number.

A `Spool` holds anything; `SpooledPairs` holds the pairs of a set as rows to publish, and without prompts to report on.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

from composer_hub.records import Pair, from_row

T = TypeVar("T")
_BATCH = 64


class Spool(Collection[T]):
    """A list on disk: append to it, then read it as often as needed. It ends with this object."""

    def __init__(self) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="composer-hub-", suffix=".rows")  # noqa: SIM115
        self._pending: list[T] = []
        self._num_items = 0

    def append(self, item: T) -> None:
        """Add an item."""
        self._pending.append(item)
        self._num_items += 1
        if len(self._pending) == _BATCH:
            self._flush()

    def __len__(self) -> int:
        return self._num_items

    def __iter__(self) -> Iterator[T]:
        self._flush()
        with open(self._file.name, "rb") as file:
            left = self._num_items
            while left:
                batch = pickle.load(file)
                left -= len(batch)
                yield from batch

    def __contains__(self, item: object) -> bool:
        return any(item == other for other in self)

    def _flush(self) -> None:
        if self._pending:
            pickle.dump(self._pending, self._file, pickle.HIGHEST_PROTOCOL)
            self._file.flush()
            self._pending = []


class SpooledPairs(Collection[Pair]):
    """The pairs of a set."""

    def __init__(self) -> None:
        self.rows: Spool[dict[str, Any]] = Spool()  # of the `default` config, with their split
        self.outlines: Spool[Pair] = Spool()  # without prompt and tools

    def append(self, row: dict[str, Any], outline: Pair) -> None:
        """Add a pair as its row and its outline."""
        self.rows.append(row)
        self.outlines.append(outline)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Pair]:
        return (from_row(Pair, row) for row in self.rows)

    def __contains__(self, item: object) -> bool:
        return any(item == pair for pair in self)
