"""The hint term: the divergence from a teacher that reads a hint right before a turn that went wrong.

In: the error turns of live rollouts, or a loader of hinted steps of published traces. Out: one value per token of these
turns. Both log the same metrics, under `channel/hint/` and `channel/hint_traces/`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from accelerate.utils import gather_object
from torch import Tensor

from composer_hub.train.batch import FORK_TOKENS, HintSite, hint_tensors, teacher_rows, up_to_fork
from composer_hub.train.hinting import REASONS
from composer_hub.train.losses import divergence_from_hidden, token_logps
from composer_hub.train.metrics import note_writers
from composer_hub.train.sharded import is_sharded
from composer_hub.train.stream import Stream
from composer_hub.train.terms import Notes, Rollouts, Term, TermModel
from composer_hub.train.uplift import Site, SiteUplift, means_by_writer, right_padded, site_uplifts

if TYPE_CHECKING:
    from composer_hub.train.trainer import ComposerTrainer


class TraceLoader(Stream[HintSite]):
    """The hinted steps of one rank."""

    what: ClassVar[str] = "hinted steps"
    weight: ClassVar[str] = "alpha_sdpo"


class HintDivergence(Term):
    """The common base of both hint terms."""

    def __init__(self, trainer: ComposerTrainer, *, loader: TraceLoader | None = None) -> None:
        super().__init__(trainer.args.alpha_sdpo, loader=loader)
        self.trainer = trainer
        self.at_fork = trainer.args.hint_aim == "fork"

    def divergence(
        self,
        model: TermModel,
        student: Tensor,  # (tokens, width), with grad
        ids: Tensor,  # (rows, time) with the hints
        attention: Tensor,  # (rows, time)
        places: Tensor,  # (rows, time - 1) bool: the hidden states that predict these tokens
        *,
        find_fork: bool = False,
    ) -> tuple[Tensor, Notes]:
        """Return the divergence of each token from the teacher that reads the hinted rows, or only at their forks."""
        read, teacher_head = model.teacher.read(ids, attention)
        hinted = read[:, :-1][places]
        if find_fork:
            with torch.no_grad():
                sampled = ids[:, 1:][places]
                plain, _ = token_logps(student, model.head, sampled)
                informed, _ = token_logps(hinted, teacher_head, sampled)
                kept = up_to_fork(plain - informed, places)
            student, hinted = student[kept], hinted[kept]
        beta = self.trainer.args.hint_divergence
        values, entropies = divergence_from_hidden(student, model.head, hinted, teacher_head, beta=beta)
        return values, {"divergence": values.detach(), "entropy": entropies}

    def note(self, sites: Sequence[HintSite]) -> None:
        """Log tokens and writers of some sites and, every n-th step, their uplift; every rank must call this."""
        trainer, name = self.trainer, f"channel/{self.name}"
        trainer.note_means({f"{name}/tokens": [float(site.num_tokens) for site in sites]})
        note_writers(trainer.metrics, name, (site.hint for site in sites))
        if trainer.is_measured(num_steps=1 if self.loader else trainer.steps_per_batch):
            note_uplifts(trainer.metrics, name, self.uplifts(sites))

    def uplifts(self, sites: Sequence[Site]) -> list[SiteUplift]:
        """Measure the uplift of some sites under the model that is learned from."""
        # The teacher, because its hinted answers are learned; the student unlearns the failed actions by itself.
        # Training reads this many rows at once, so they fit into memory.
        return site_uplifts(sites, self.trainer.teacher, rows_a_batch=self.trainer.args.per_device_train_batch_size)


class HintTerm(HintDivergence):
    """Hints at the error turns of the rollouts that were just sampled."""

    name = "hint"
    sites: list[list[HintSite]]  # of each rollout of the last batch

    def tensors(self, rollouts: Rollouts) -> dict[str, Tensor]:
        # The batch is not shuffled yet, so siblings are neighbors.
        # Nothing is learned from a truncated rollout that does not count.
        counts = rollouts.completion_mask.any(1).tolist()
        left_out: Counter[str] = Counter()
        self.sites = [
            self.trainer.hinter.sites(rollout, sibling=sibling, left_out=left_out) if does else []
            for rollout, sibling, does in zip(rollouts, self.trainer.siblings(), counts, strict=True)
        ]
        self.note([site for found in self.sites for site in found])
        self.trainer.note_means(
            {"channel/hint/sites_per_rollout": [float(len(found)) for found in self.sites]}
            | {f"channel/hint/left_out/{reason}": left_out[reason] / max(len(rollouts), 1) for reason in REASONS}
        )
        return hint_tensors(self.sites, rollouts.completion_mask, padding=rollouts.padding)

    def count(self, rows: Mapping[str, Tensor]) -> Tensor:
        if not self.at_fork:
            return super().count(rows)
        # The teacher finds the forks later. One at the very start has fewer tokens than counted here.
        return rows["hint_mask"].sum(-1).clamp(max=FORK_TOKENS).sum()

    def values(self, model: TermModel, rows: Mapping[str, Tensor], hidden: Tensor | None) -> tuple[Tensor, Notes]:
        assert hidden is not None
        read = teacher_rows(rows)
        if read is not None:
            student = hidden[read.student[:, 0], read.student[:, 1]]
            return self.divergence(model, student, read.ids, read.attention, read.teacher, find_fork=self.at_fork)
        values = hidden.new_zeros(0)
        if is_sharded(model.network):
            # Another rank reads its sites, and every forward of sharded weights needs all ranks: one token weighs 0.
            ids = hidden.new_zeros((1, 2), dtype=torch.long)
            places = torch.ones_like(ids[:, 1:]).bool()
            values, _ = self.divergence(model, hidden[:1, 0], ids, torch.ones_like(ids), places, find_fork=self.at_fork)
        return values * 0.0, {"divergence": [], "entropy": []}


class RecordedHintTerm(HintDivergence):
    """Hints on the steps of published traces, which need no rollout."""

    name = "hint_traces"
    loader: TraceLoader

    def tensors(self, rollouts: Sequence[HintSite]) -> dict[str, Tensor]:
        sites, refused = rollouts, self.trainer.hinter.refused
        self.note(sites)
        aimed = [site.at_fork() if self.at_fork else site for site in sites]
        # Hints of refused writers are never written live, but recorded. They are still read, and so are sites without
        # a correction to part from, so that all ranks have the same graph.
        counted = [site is not None and (site.hint.writer, site.hint.kind) not in refused for site in aimed]
        sites = [one or site for one, site in zip(aimed, sites, strict=True)]
        if refused or self.at_fork:
            self.trainer.note_means({"channel/hint_traces/left_out": [float(not one) for one in counted]})
        found: dict[str, Tensor] = {}
        for side, before in (("plain", "prefix_ids"), ("hinted", "hinted_ids")):
            padded = right_padded([(getattr(site, before), site.action_ids) for site in sites])
            found |= dict(zip((f"{side}_ids", f"{side}_attention", f"{side}_answer"), padded, strict=True))
        return found | {"hint_traces_mask": found["plain_answer"] & torch.tensor(counted)[:, None]}

    def values(self, model: TermModel, rows: Mapping[str, Tensor], hidden: Tensor | None) -> tuple[Tensor, Notes]:
        action = rows["plain_answer"][:, 1:]
        student = model.read(rows["plain_ids"], rows["plain_attention"])[:, :-1][action]
        places = rows["hinted_answer"][:, 1:]
        values, notes = self.divergence(model, student, rows["hinted_ids"], rows["hinted_attention"], places)
        counted = rows["hint_traces_mask"][:, 1:][action]
        return values * counted, {name: value[counted] for name, value in notes.items()}

    def look(self, num_batches: int) -> list[SiteUplift]:
        """Return the uplift of the next sites without advancing the stream."""
        place = self.loader.position
        sites = [site for _ in range(num_batches) for site in self.loader.take()]
        self.loader.position = place
        return self.uplifts(sites)


def note_uplifts(metrics: dict[str, list[float]], name: str, uplifts: Sequence[SiteUplift]) -> None:
    """Log the uplift of all ranks, also by writer."""
    everywhere: list[Any] = gather_object(list(uplifts))
    values = {
        f"{name}/uplift": [one.value for one in everywhere],
        f"{name}/lowered": [one.lowered for one in everywhere],
        f"{name}/raised": [one.raised for one in everywhere if one.raised is not None],
    }
    for metric, numbers in values.items():
        if numbers:
            metrics[metric].append(sum(numbers) / len(numbers))
    for writer, mean in means_by_writer(everywhere).items():
        metrics[f"{name}/uplift/{writer}"].append(mean)
