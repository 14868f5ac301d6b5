"""An endless, seeded and resumable stream of rows, for the loaders of pairs and hint sites.

The order of rows in epoch e is a permutation made from (seed, e), and rank r of n takes the rows r, r + n, r + 2n, … of
the endless order: the ranks of a step see the rows that one process would have seen. The cursor is one number, saved
with each checkpoint, so a resumed run sees the rows that the uninterrupted one would have seen.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from composer_hub import exits

T = TypeVar("T")


class StreamError(exits.ComposerError, ValueError):
    """Rows that cannot be trained on."""


@dataclass
class Stream(Generic[T]):
    """The stream of one rank. `position` counts the rows this rank has handed out."""

    rows: Sequence[T]
    batch_size: int
    seed: int = 0
    rank: int = 0
    num_ranks: int = 1
    position: int = 0
    _order: tuple[int, Sequence[int]] = field(default=(-1, ()), repr=False)  # the newest epoch and its places

    what: ClassVar[str] = "rows"
    weight: ClassVar[str] = ""  # the option that turns the channel off

    def __post_init__(self) -> None:
        if not self.rows:
            raise StreamError(f"There are no {self.what} to train on: publish some, or set {self.weight} to 0.")
        if self.batch_size < 1:
            raise StreamError(f"A micro-batch needs at least one of the {self.what}, not {self.batch_size}.")

    @property
    def batches_an_epoch(self) -> int:
        """Return the number of micro-batches after which every row has been seen."""
        return math.ceil(len(self.rows) / (self.batch_size * self.num_ranks))

    def take(self) -> list[T]:
        """Return the next rows of this rank, across the end of an epoch."""
        first, self.position = self.position, self.position + self.batch_size
        numbers = (place * self.num_ranks + self.rank for place in range(first, self.position))
        return [self.rows[self._place(number)] for number in numbers]

    def _place(self, number: int) -> int:
        """Return the n-th place of the endless order."""
        epoch, place = divmod(number, len(self.rows))
        if epoch != self._order[0]:
            places = array("q", range(len(self.rows)))
            random.Random(f"{self.seed}-{epoch}").shuffle(places)
            self._order = epoch, places
        return self._order[1][place]

    def state(self) -> dict[str, int]:
        """Return the state for a checkpoint."""
        return {"position": self.position, "seed": self.seed, "num_rows": len(self.rows), "num_ranks": self.num_ranks}

    def restore(self, state: dict[str, int]) -> None:
        """Continue from a checkpoint."""
        if (state["num_rows"], state["seed"]) != (len(self.rows), self.seed):
            raise StreamError(
                f"The checkpoint was made with {state['num_rows']} {self.what} and seed {state['seed']}, this run has "
                f"{len(self.rows)} and {self.seed}: resume with the same {self.what} revision, or start a new run."
            )
        # With another number of ranks the rows seen so far are counted over all of them.
        self.position = state["position"] * state["num_ranks"] // self.num_ranks
