"""The contrastive hint: a token counts by the share of its divergence that a control hint does not make.

The control has the shape of the hint and names a random word. A token at which both move the teacher alike teaches
nothing about the hint.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.ablation.world import control_text
from composer_hub.train.batch import HintSite, hint_tensors
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.terms import Notes

_READ = ("teacher_ids", "teacher_lengths")


class ContrastTrainer(RunTrainer):
    """Weighs each token's divergence by max(0, 1 - divergence under the control / divergence under the hint)."""

    rng = random.Random(0)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        sites = [[self._controlled(site) for site in row] for row in self._sites]
        tensors = hint_tensors(sites, output["completion_mask"], padding=self._tokenizer.pad_token_id)
        return output | {f"control_{name}": tensors[name] for name in _READ}

    def _controlled(self, site: HintSite) -> HintSite:
        hint = replace(site.hint, text=control_text(site.hint.text, self.rng), writer="control")
        placed = self.hinter.place(hint, site.prefix_ids, site.action_ids, ())
        assert placed is not None
        return replace(placed, step=site.step, span=site.span)

    def _hint_values(self, inputs: dict[str, Any], hidden: Tensor) -> tuple[Tensor, Notes]:
        values, notes = super()._hint_values(inputs, hidden)
        with torch.no_grad():
            control, _ = super()._hint_values(inputs | {name: inputs[f"control_{name}"] for name in _READ}, hidden)
        share = (1.0 - control / values.detach().clamp(min=1e-9)).clamp(min=0.0)
        return values * share, notes
