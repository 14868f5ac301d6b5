"""An endless, seeded and resumable stream of rows, for the loaders of pairs and hint sites.

The order of rows in epoch e is a permutation made from (seed, e); `split_dataset_by_node` gives each rank its part of
the endless order. The cursor is one number, saved with each checkpoint, so a resumed run sees the rows that the
uninterrupted one would have seen.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node

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
    _places: Iterator[dict[str, int]] | None = field(default=None, repr=False)

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
        if self._places is None:
            whole = IterableDataset.from_generator(
                _order,
                gen_kwargs={"num_rows": len(self.rows), "seed": self.seed, "start": self.position * self.num_ranks},
            )
            # By rows, not by shards: the ranks of a step then see the rows that one process would have seen.
            mine = split_dataset_by_node(whole, self.rank, self.num_ranks, strategy="examples")
            self._places = iter(mine)
        self.position += self.batch_size
        return [self.rows[next(self._places)["place"]] for _ in range(self.batch_size)]

    def seek(self, position: int) -> None:
        """Continue at another position."""
        self.position, self._places = position, None

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
        self.seek(state["position"] * state["num_ranks"] // self.num_ranks)


def _order(num_rows: int, seed: int, start: int) -> Iterator[dict[str, int]]:
    """Yield the places of all rows, epoch after epoch, from the `start`-th one on."""
    epoch, done = divmod(start, num_rows)
    while True:
        places = array("q", range(num_rows))
        random.Random(f"{seed}-{epoch}").shuffle(places)
        yield from ({"place": place} for place in places[done:])
        epoch, done = epoch + 1, 0
