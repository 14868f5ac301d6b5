"""The contrastive hint: a token counts by the share of its divergence that a control hint does not make.

The control has the shape of the hint and names a random word. A token at which both move the teacher alike teaches
nothing about the hint.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.ablation.world import control_text
from composer_hub.train.batch import HintSite, hint_tensors
from composer_hub.train.hint_term import HintTerm
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.terms import Notes, Rollouts, TermModel

_READ = ("teacher_ids", "teacher_lengths")


class ContrastTerm(HintTerm):
    """Weighs each token's divergence by max(0, 1 - divergence under the control / divergence under the hint)."""

    rng = random.Random(0)

    def tensors(self, rollouts: Rollouts) -> dict[str, Tensor]:
        hinted = super().tensors(rollouts)
        sites = [[self._controlled(site) for site in row] for row in self.sites]
        tensors = hint_tensors(sites, rollouts.completion_mask, padding=rollouts.padding)
        return hinted | {f"control_{name}": tensors[name] for name in _READ}

    def _controlled(self, site: HintSite) -> HintSite:
        hint = replace(site.hint, text=control_text(site.hint.text, self.rng), writer="control")
        placed = self.trainer.hinter.place(hint, site.prefix_ids, site.action_ids, ())
        assert placed is not None
        return replace(placed, step=site.step, span=site.span)

    def values(self, model: TermModel, rows: Mapping[str, Any], hidden: Tensor | None) -> tuple[Tensor, Notes]:
        values, notes = super().values(model, rows, hidden)
        with torch.no_grad():
            control, _ = super().values(model, {**rows, **{name: rows[f"control_{name}"] for name in _READ}}, hidden)
        share = (1.0 - control / values.detach().clamp(min=1e-9)).clamp(min=0.0)
        return values * share, notes


class ContrastTrainer(RunTrainer):
    """The trainer of the contrastive arm."""

    hint_term = ContrastTerm
