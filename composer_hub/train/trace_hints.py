"""The terms that need no rollouts: hints on sites of published traces, and pairs.

In: the loader of a rank's sites, and the trainer whose student, teacher and options they are read with. Out: the terms
of each micro-batch, hints divided by the hint tokens of the whole optimizer step over all ranks. The metrics of hints
are those of live hints under `channel/hint_traces/`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from composer_hub.train.batch import HintSite
from composer_hub.train.metrics import note_writers
from composer_hub.train.stream import Stream
from composer_hub.train.teacher import head_of, keeping_hidden, without_dropout
from composer_hub.train.terms import Notes, replay_losses, token_values
from composer_hub.train.uplift import SiteUplift, right_padded

if TYPE_CHECKING:
    from composer_hub.train.trainer import ComposerTrainer

NAME = "channel/hint_traces"


class TraceLoader(Stream[HintSite]):
    """The hinted steps of one rank."""

    what: ClassVar[str] = "hinted steps"
    weight: ClassVar[str] = "alpha_sdpo"


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One micro-batch, and the divisor of its sum."""

    sites: list[HintSite]
    counted: list[bool]  # False if its writer is refused; still read, so that all ranks have the same graph
    divisor: Tensor


class TraceHints:
    """Draws the sites of an optimizer step at its first micro-batch, so that the step's tokens can be counted."""

    def __init__(self, loader: TraceLoader, trainer: ComposerTrainer) -> None:
        self.loader, self.trainer = loader, trainer
        self._waiting: deque[_Drawn] = deque()

    def term(self, network: Any) -> tuple[Tensor, Notes]:
        """Return the term of the next micro-batch and its notes; `network` is the student, wrapped or bare."""
        if not self._waiting:
            self._draw(self.trainer.current_gradient_accumulation_steps)
        drawn, trainer = self._waiting.popleft(), self.trainer
        device, bare = trainer.accelerator.device, trainer._bare
        ids, attention, action = _rows(drawn.sites, "prefix_ids", device)
        with without_dropout(bare), keeping_hidden(bare) as kept:
            network(input_ids=ids, attention_mask=attention, use_cache=False, logits_to_keep=1)
        student = kept[-1][:, :-1][action]
        ids, attention, action = _rows(drawn.sites, "hinted_ids", device)
        read, teacher_head = trainer.teacher.read(ids, attention)
        values, found = token_values(trainer.args, student, head_of(bare), read[:, :-1][action], teacher_head)
        counted = torch.tensor(drawn.counted, device=device).repeat_interleave(action.sum(1))
        notes = {f"{NAME}/{name}": value[counted] for name, value in found.items()}
        return (values * counted).sum() / drawn.divisor, notes

    def look(self, num_batches: int) -> list[SiteUplift]:
        """Return the uplift of the next sites without advancing the stream."""
        place = self.loader.position
        sites = [site for _ in range(num_batches) for site in self.loader.take()]
        self.loader.seek(place)
        return self.trainer._uplifts(sites)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return self.loader.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.loader.restore(state)

    def _draw(self, num_pieces: int) -> None:
        pieces = [self.loader.take() for _ in range(num_pieces)]
        sites = [site for piece in pieces for site in piece]
        flags = self._allowed(sites)
        num_tokens = sum(len(site.action_ids) for site, flag in zip(sites, flags, strict=True) if flag)
        accelerator = self.trainer.accelerator
        total = accelerator.reduce(torch.tensor(float(num_tokens), device=accelerator.device), reduction="sum")
        # Gradients are averaged over ranks. The clamp is for steps without any useful hint.
        divisor = total.clamp(min=1.0) / accelerator.num_processes
        self._note(sites)
        counted = iter(flags)
        self._waiting.extend(_Drawn(piece, [next(counted) for _ in piece], divisor) for piece in pieces)

    def _allowed(self, sites: list[HintSite]) -> list[bool]:
        """Return which sites may be learned from: hints of refused writers are never written live, but recorded."""
        trainer, refused = self.trainer, self.trainer.hinter.refused
        trainer.look_at(sites, NAME, turn=trainer.state.global_step)
        flags = [(site.hint.writer, site.hint.kind) not in refused for site in sites]
        if refused:
            trainer._note_means({f"{NAME}/left_out": [float(not flag) for flag in flags]})
        return flags

    def _note(self, sites: list[HintSite]) -> None:
        self.trainer._note_means({f"{NAME}/tokens": [float(len(site.action_ids)) for site in sites]})
        note_writers(self.trainer._metrics["train"], NAME, (site.hint for site in sites))


def recorded_terms(trainer: ComposerTrainer, network: Any) -> tuple[dict[str, Tensor], Notes]:
    """Return the weighted terms that need no rollout and their notes; the first of them reads through `network`."""
    terms, notes = dict[str, Tensor](), Notes()
    if trainer.traces is not None and trainer._hints_from("traces"):
        weight = trainer._weight("hint")
        term, found = trainer.traces.term(network)
        notes |= found | {f"{NAME}/loss": trainer._whole(term), f"{NAME}/weight": [weight]}
        terms["hint_traces"], network = weight * term, trainer._reader()
    if trainer.pairs is not None and trainer.args.beta_replay:
        weight = trainer._weight("replay")
        batch = trainer.pairs.next_batch().to(trainer.accelerator.device)
        losses, found = replay_losses(trainer.args, batch, trainer._bare, through=network)
        notes |= found | {"channel/replay/weight": [weight]}
        terms["replay"] = weight * (losses.mean() / trainer.current_gradient_accumulation_steps)
    return terms, notes


def _rows(sites: Sequence[HintSite], before: str, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return ids and attention (rows, time), and the places whose hidden state predicts the action (rows, time - 1)."""
    padded = right_padded([(getattr(site, before), site.action_ids) for site in sites])
    ids, attention, action = (tensor.to(device) for tensor in padded)
    return ids, attention, action[:, 1:]
