"""Tokenized preference pairs with published reference log-probs, as an endless stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from composer_hub.train.stream import Stream


@dataclass(frozen=True, slots=True)
class TokenPair:
    """One pair as tokens, with the reference's log-probs."""

    prompt_ids: Sequence[int]
    chosen_ids: Sequence[int]
    rejected_ids: Sequence[int]
    ref_chosen: float  # log p of the whole answer at temperature 1
    ref_rejected: float


@dataclass
class PairLoader(Stream[TokenPair]):
    """The pairs of one rank."""

    padding: int = 0

    what: ClassVar[str] = "pairs"
    weight: ClassVar[str] = "beta_replay"
