"""Tokenized preference pairs with published reference log-probs, as an endless stream of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from composer_hub.train.stream import Stream
from composer_hub.train.uplift import right_padded


@dataclass(frozen=True, slots=True)
class TokenPair:
    """One pair as tokens, with the reference's log-probs."""

    prompt_ids: Sequence[int]
    chosen_ids: Sequence[int]
    rejected_ids: Sequence[int]
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
class PairLoader(Stream[TokenPair]):
    """The pairs of one rank."""

    padding: int = 0

    what: ClassVar[str] = "pairs"
    weight: ClassVar[str] = "beta_replay"

    def next_batch(self) -> PairBatch:
        """Return the next pairs of this rank."""
        batch = self.take()
        rows = [(pair.prompt_ids, pair.chosen_ids) for pair in batch]
        rows += [(pair.prompt_ids, pair.rejected_ids) for pair in batch]
        ids, attention, answers = right_padded(rows, padding=self.padding)
        return PairBatch(
            input_ids=ids,
            attention_mask=attention,
            answer_mask=answers,
            ref_chosen=torch.tensor([pair.ref_chosen for pair in batch]),
            ref_rejected=torch.tensor([pair.ref_rejected for pair in batch]),
        )
