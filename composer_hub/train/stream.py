"""An endless, seeded, sharded and resumable stream of rows, for the loaders of pairs and hint sites.

The order of rows in epoch e is a permutation made from (seed, e); rank r of w takes every w-th row. The cursor is one
number, saved with each checkpoint, so a resumed run sees the rows that the uninterrupted one would have seen.
"""

from __future__ import annotations

import math
import random
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
    _epoch: int = field(default=-1, repr=False)
    _order: list[int] = field(default_factory=list, repr=False)

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
        return [self._next() for _ in range(self.batch_size)]

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

    def _next(self) -> T:
        epoch, place = divmod(self.position * self.num_ranks + self.rank, len(self.rows))
        if epoch != self._epoch:
            self._order = list(range(len(self.rows)))
            random.Random(f"{self.seed}-{epoch}").shuffle(self._order)
            self._epoch = epoch
        self.position += 1
        return self.rows[self._order[place]]
