"""`ComposerTrainer`: TRL's GRPO with added terms, and none of its code.

loss = policy + the weighted sum of the terms: hints, recorded hints, replay, and those of the caller. The policy term
is `super()._compute_loss`; a hook on the backbone keeps the hidden states of that forward, so a term on rollouts needs
no second forward of the student. Without a term that weighs something it *is* GRPO.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from composer_hub.train.batch import HintSite
from composer_hub.train.checks import check_head, check_options, check_shards
from composer_hub.train.config import ComposerConfig
from composer_hub.train.failure import TrainerError
from composer_hub.train.finite import FiniteGuard
from composer_hub.train.hint_term import HintDivergence, HintTerm, RecordedHintTerm, TraceLoader
from composer_hub.train.hinting import Hinter, check_places, hinter_of
from composer_hub.train.isolation import isolated
from composer_hub.train.metrics import gradient_norms, note_shares, probed_parameter
from composer_hub.train.pair_loader import PairLoader
from composer_hub.train.replay_term import ReplayTerm
from composer_hub.train.sharded import FSDP2, ZERO3, has_shards
from composer_hub.train.teacher import HintTeacher, keeping_hidden, release_head, second_module
from composer_hub.train.terms import AddedTerms, Notes, Rollouts, Term, TermModel
from composer_hub.train.traced import TracedTrainer
from composer_hub.train.uplift import Site, SiteUplift

__all__ = ["ComposerConfig", "ComposerTrainer", "TrainerError"]

_STATE = "composer_state.json"


class ComposerTrainer(TracedTrainer):
    """GRPO + alpha * hint divergence at error turns + beta * preference loss on replayed pairs + the caller's terms."""

    hint_term: ClassVar[type[HintTerm]] = HintTerm
    own_pairs = 0  # rollouts from which the trainer of a run makes pairs before its first step

    def __init__(
        self,
        *args: Any,
        terms: Sequence[Term] = (),
        pairs: PairLoader | None = None,
        traces: TraceLoader | None = None,
        hinter: Hinter | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.last_sites: list[list[HintSite]] = []  # of each rollout of the last batch
        self.terms = AddedTerms([*self._built_in(pairs, traces), *terms], self.accelerator)
        check_options(
            self.args,
            has_pairs=pairs is not None,
            has_tools=bool(self.tools),
            own_pairs=self.own_pairs,
            has_traces=traces is not None,
            has_terms=bool(self.terms or self.own_pairs),
            sharding=self.sharding,
        )
        self.hinter = hinter or hinter_of(self)
        if hinter is None and self._hints_from("rollouts"):
            check_places(self.hinter)
        self.bare_model = self.accelerator.unwrap_model(self.model)
        # Without the hint channel a copy would only cost memory.
        kind = self.args.teacher if self.args.alpha_sdpo else "live"
        other = second_module(self, self.sharding) if kind == "fixed" else None
        wrapped = self._reader if self.sharding == ZERO3 else None
        self.teacher = HintTeacher(kind, self.bare_model, other=other, sharding=self.sharding, wrapped=wrapped)
        if (self.terms or self.own_pairs) and self.sharding != ZERO3:
            self._check_head()
        self.guard = FiniteGuard(self.bare_model, is_scaled=getattr(self.accelerator, "scaler", None) is not None)
        self.add_callback(self.guard)

    def _built_in(self, pairs: PairLoader | None, traces: TraceLoader | None) -> Iterator[Term]:
        if self._hints_from("rollouts"):
            yield self.hint_term(self)
        if traces is not None and self._hints_from("traces"):
            yield RecordedHintTerm(self, loader=traces)
        if pairs is not None and self.args.beta_replay:
            yield ReplayTerm(self.args, pairs)

    def _hints_from(self, source: str) -> bool:
        return bool(self.args.alpha_sdpo) and self.args.hint_source in (source, "both")

    # ----------------------------------------------------------------------------------------------------- the batch

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.last_sites = []
        output = super()._generate_and_score_completions(inputs)

        def rollouts() -> Rollouts:
            rewards = [] if self._rewards is None else self._own_part(self._rewards).tolist()
            made, padding = self.last_rollouts or self._untooled(output), self._tokenizer.pad_token_id
            return Rollouts(made, list(inputs), rewards, output["completion_mask"], padding)

        output |= self.terms.of_rollouts(rollouts, output)
        self.last_sites = next((term.sites for term in self.terms if isinstance(term, self.hint_term)), [])
        release_head(self.bare_model)
        return output

    # ------------------------------------------------------------------------------------------------------ the loss

    def train(self, *args: Any, **kwargs: Any) -> Any:
        if self.sharding != FSDP2:  # which keeps its shards as soon as there are any
            self.teacher.remember()
        return super().train(*args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        try:
            loss = super().training_step(*args, **kwargs)
        finally:
            release_head(self.bare_model)
        self.guard.note_loss(loss)
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self.guard.check_gradient(norm, self.state.global_step + 1, self.args.learning_rate)
        return norm

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        if not self.terms:
            loss = super()._compute_loss(model, inputs)
            self.note_means(self._policy_notes(loss))
            return loss
        with keeping_hidden(self.bare_model) as kept:
            loss = super()._compute_loss(model, inputs)
        notes, ids = self._policy_notes(loss), inputs["completion_ids"]
        hidden = kept[-1][:, -1 - ids.size(1) : -1]
        # The bare module is enough for further forwards: gradients synchronize at the end of the single backward.
        model = TermModel(self.bare_model, self.teacher, reader=self._reader(), hidden=hidden, completion_ids=ids)
        return self._with_terms({"policy": loss}, notes, model, inputs, hidden)

    def _with_terms(
        self, parts: dict[str, Tensor], notes: Notes, model: TermModel, rows: Any, hidden: Tensor | None
    ) -> Tensor:
        """Return the sum of some parts and of all terms, and log them."""
        share = self._num_pieces / self.args.steps_per_generation or 1.0
        added, found = self.terms.parts(model, rows, hidden, share=share, num_pieces=self._num_pieces)
        # One call for all terms, because the ranks wait for each other here.
        self.note_means(notes | found)
        self._note_shares(parts | added)
        return cast("Tensor", sum((parts | added).values()))

    @property
    def _num_pieces(self) -> int:
        """Return the number of micro-batches of this optimizer step; 0 in an evaluation."""
        return self.current_gradient_accumulation_steps if self.model.training else 0

    def _reader(self) -> Any:
        """Return the module for further forwards of the student; DeepSpeed must see each of them begin."""
        return self.model_wrapped if self.sharding == ZERO3 else self.bare_model

    def is_measured(self, *, num_steps: int = 1) -> bool:
        """Return whether the next steps hold one at which uplift and gradient shares are measured."""
        every = self.args.measure_every
        return bool(every) and -self.state.global_step % every < num_steps

    @property
    def steps_per_batch(self) -> int:
        """Return how many optimizer steps learn from a generation batch."""
        pieces = self.args.steps_per_generation * self.num_iterations
        return max(pieces // self.args.gradient_accumulation_steps, 1)

    def _policy_notes(self, loss: Tensor) -> Notes:
        # TRL has just logged the entropy.
        whole = loss.detach() * max(self._num_pieces, 1)
        return {"channel/policy/loss": whole, "channel/policy/entropy": [self.metrics["entropy"][-1]]}

    def _note_shares(self, parts: dict[str, Tensor]) -> None:
        if not (self.is_measured() and torch.is_grad_enabled() and self.model.training):
            return
        if self.sharding:
            return  # a partial backward would run the hooks that shard gradients
        if self.args.gradient_checkpointing and (self.args.gradient_checkpointing_kwargs or {}).get("use_reentrant"):
            return  # such a graph can run backward only once and as a whole
        probed = probed_parameter(self.bare_model)
        if probed is not None:
            note_shares(self.accelerator, self.metrics, gradient_norms(parts, probed))

    # ----------------------------------------------------------------------------------------------- before training

    def preflight(self, *, num_batches: int = 1, look: Callable[[Any], None] | None = None) -> list[SiteUplift]:
        """Return the uplift of the hints in some fresh rollouts, without changing the run; `look` sees each batch."""
        if not self.args.alpha_sdpo:
            raise TrainerError("alpha_sdpo is 0, so there are no hints to measure.")
        if self.sharding and not has_shards(self.model):
            raise TrainerError(
                f"preflight generates before {self.sharding} has prepared the weights. Leave it out, or run it alone "
                "on one GPU with --preflight_only true."
            )
        found: list[SiteUplift] = []
        with isolated(self, self.num_generations):
            for term in self.terms:
                if isinstance(term, RecordedHintTerm):
                    found += term.look(num_batches)
            batches = iter(self.get_train_dataloader()) if self._hints_from("rollouts") else iter(())
            for batch, _ in zip(batches, range(num_batches), strict=False):
                self._generate_and_score_completions(batch)
                found += self.uplifts(site for sites in self.last_sites for site in sites)
                if look is not None:
                    look(batch)
        return found

    def uplifts(self, sites: Iterable[Site]) -> list[SiteUplift]:
        """Return the uplift of each hint at its site."""
        return next(term for term in self.terms if isinstance(term, HintDivergence)).uplifts(list(sites))

    def _check_head(self) -> None:
        check_head(self.bare_model, [self._tokenizer.pad_token_id, *self.eos_token_ids])

    # -------------------------------------------------------------------------------------------------- checkpoints

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save:
            (folder / _STATE).write_text(json.dumps(self.terms.state()))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.teacher.remember()  # before the student gets the values of the checkpoint
        super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        prepared = super()._prepare_for_training(*args, **kwargs)
        self.teacher.remember()
        check_shards(self.model, is_fsdp=self.sharding == FSDP2, num_processes=self.accelerator.num_processes)
        return prepared

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint) / _STATE
        if not path.exists():
            raise TrainerError(
                f"{path} is missing, so this is not a complete checkpoint of composer_hub. Resume from another."
            )
        self.terms.restore(json.loads(path.read_text()))
