"""Preference pairs, tokenised, with published reference log-probs: an endless, seeded, sharded, resumable stream.

The order of pairs in epoch e is a permutation made from (seed, e); rank r of w takes every w-th pair. The cursor is one
number, saved with each checkpoint, so a resumed run sees the pairs that the uninterrupted one would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from composer_hub import exits


class PairError(exits.ComposerError, ValueError):
    """Pairs that cannot be trained on."""


@dataclass(frozen=True, slots=True)
class TokenPair:
    """One pair as tokens, and what the reference thinks of it."""

    prompt_ids: tuple[int, ...]
    chosen_ids: tuple[int, ...]
    rejected_ids: tuple[int, ...]
    ref_chosen: float  # log p of the whole answer at temperature 1
    ref_rejected: float


@dataclass(frozen=True, slots=True)
class PairBatch:
    """Chosen rows, then rejected rows, padded on the right."""

    input_ids: Tensor  # (2 * pairs, time)
    attention_mask: Tensor  # (2 * pairs, time)
    answer_mask: Tensor  # (2 * pairs, time) bool
    ref_chosen: Tensor  # (pairs,)
    ref_rejected: Tensor  # (pairs,)

    def to(self, device: torch.device) -> PairBatch:
        return PairBatch(*(getattr(self, name).to(device) for name in self.__slots__))


@dataclass
class PairLoader:
    """The stream of one rank. `position` counts the pairs this rank has handed out."""

    pairs: Sequence[TokenPair]
    batch_size: int
    padding: int
    seed: int = 0
    rank: int = 0
    num_ranks: int = 1
    position: int = 0
    _epoch: int = field(default=-1, repr=False)
    _order: list[int] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if not self.pairs:
            raise PairError("There are no pairs to train on: publish some, or set beta_replay to 0.")

    def next_batch(self) -> PairBatch:
        """Return the next pairs of this rank, starting the next epoch where one ends."""
        batch = [self._next() for _ in range(self.batch_size)]
        rows = [(pair.prompt_ids, pair.chosen_ids) for pair in batch] + [
            (pair.prompt_ids, pair.rejected_ids) for pair in batch
        ]
        ids = [torch.tensor([*prompt, *answer]) for prompt, answer in rows]
        answers = [torch.tensor([False] * len(prompt) + [True] * len(answer)) for prompt, answer in rows]
        return PairBatch(
            input_ids=pad_sequence(ids, batch_first=True, padding_value=self.padding),
            attention_mask=pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
            answer_mask=pad_sequence(answers, batch_first=True),
            ref_chosen=torch.tensor([pair.ref_chosen for pair in batch]),
            ref_rejected=torch.tensor([pair.ref_rejected for pair in batch]),
        )

    def state(self) -> dict[str, int]:
        """Return what a checkpoint must remember."""
        return {"position": self.position, "seed": self.seed, "num_pairs": len(self.pairs), "num_ranks": self.num_ranks}

    def restore(self, state: dict[str, int]) -> None:
        """Go on where a checkpoint was taken."""
        if (state["num_pairs"], state["seed"]) != (len(self.pairs), self.seed):
            raise PairError(
                f"The checkpoint was made with {state['num_pairs']} pairs and seed {state['seed']}, this run has "
                f"{len(self.pairs)} and {self.seed}: resume with the same pairs revision, or start anew."
            )
        # With another number of ranks the pairs seen so far are counted over all of them.
        self.position = state["position"] * state["num_ranks"] // self.num_ranks

    def _next(self) -> TokenPair:
        epoch, place = divmod(self.position * self.num_ranks + self.rank, len(self.pairs))
        if epoch != self._epoch:
            self._order = list(range(len(self.pairs)))
            random.Random(f"{self.seed}-{epoch}").shuffle(self._order)
            self._epoch = epoch
        self.position += 1
        return self.pairs[self._order[place]]
