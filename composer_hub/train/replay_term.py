"""The replay term: a preference loss on published pairs, against published reference log-probs.

In: a loader of tokenized pairs. Out: one value per pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from composer_hub.train.answers import answer_tensors
from composer_hub.train.losses import Preference, preference_loss
from composer_hub.train.pair_loader import PairLoader, TokenPair
from composer_hub.train.terms import Notes, Term, TermModel


class ReplayTerm(Term):
    """The preference for what teachers agreed on, over what the student did."""

    name = "replay"

    def __init__(self, args: Any, loader: PairLoader) -> None:
        super().__init__(args.beta_replay, loader=loader)
        self.how = Preference(args.replay_strength, args.replay_nll_weight)
        self.padding = loader.padding

    def tensors(self, rollouts: Sequence[TokenPair]) -> dict[str, Tensor]:
        pairs = rollouts
        rows = [(pair.prompt_ids, pair.chosen_ids) for pair in pairs]
        rows += [(pair.prompt_ids, pair.rejected_ids) for pair in pairs]
        return answer_tensors(rows, padding=self.padding) | {
            "ref_chosen": torch.tensor([pair.ref_chosen for pair in pairs]),
            "ref_rejected": torch.tensor([pair.ref_rejected for pair in pairs]),
        }

    def count(self, rows: Mapping[str, Tensor]) -> Tensor:
        return torch.tensor(len(rows["ref_chosen"]))

    def values(self, model: TermModel, rows: Mapping[str, Tensor], hidden: Tensor | None) -> tuple[Tensor, Notes]:
        logps, lengths, entropies = model.answer_logps(rows)
        (chosen, rejected), length = logps.chunk(2), lengths.chunk(2)[0]
        terms = preference_loss(chosen, rejected, rows["ref_chosen"], rows["ref_rejected"], length, self.how)
        return terms.losses, {
            "accuracy": terms.correct.float(),
            "margin": terms.margins,
            "chosen_drift": terms.chosen_drift,
            "length": length.float(),
            "entropy": entropies[: int(length.sum())],  # rows are in order, chosen ones first
        }
