"""`ComposerTrainer`: TRL's GRPO with two added terms, and none of its code.

loss = policy + alpha * hint + beta * replay. The policy term is `super()._compute_loss`; a hook on the backbone keeps
the hidden states of that forward, so the hint term needs no second forward of the student. With alpha = beta = 0 it
*is* GRPO.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from composer_hub.train.batch import HintSite, hint_tensors
from composer_hub.train.checks import TrainerError, check_head, check_options, check_shards
from composer_hub.train.config import ComposerConfig
from composer_hub.train.finite import FiniteGuard
from composer_hub.train.hinting import REASONS, Hinter, check_places, hinter_of
from composer_hub.train.isolation import isolated, keeping_random_state
from composer_hub.train.known_good import KnownGood, good_turns
from composer_hub.train.metrics import (
    gradient_norms,
    note_means,
    note_shares,
    note_writers,
    probed_parameter,
    rollout_means,
)
from composer_hub.train.pair_loader import PairLoader
from composer_hub.train.rollouts import ErrorFinder, Rollout, error_finders, num_rounds
from composer_hub.train.sharded import FSDP2, ZERO3, generates_together, has_shards, sharding_of
from composer_hub.train.siblings import reached, siblings, stuck, total_rewards
from composer_hub.train.teacher import FollowStudent, HintTeacher, keeping_hidden, release_head, second_module
from composer_hub.train.terms import Notes, hint_values
from composer_hub.train.token_metrics import TokenDiagnostics, sample, token_diagnostics
from composer_hub.train.trace_hints import TraceHints, TraceLoader, recorded_terms
from composer_hub.train.uplift import Row, Site, SiteUplift, action_logps, means_by_writer, site_uplifts

__all__ = ["ComposerConfig", "ComposerTrainer", "TrainerError"]

_STATE = "composer_state.json"


class ComposerTrainer(GRPOTrainer):
    """GRPO + alpha * hint divergence at error turns + beta * preference loss on replayed pairs."""

    args: Any  # a ComposerConfig
    model: Any

    def __init__(
        self,
        *args: Any,
        pairs: PairLoader | None = None,
        traces: TraceLoader | None = None,
        hinter: Hinter | None = None,
        known_good: Sequence[Row] = (),  # correct turns; without them, those of the first successful rollouts
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.pairs = pairs
        self.traces = TraceHints(traces, self) if traces is not None else None
        self.sharding = sharding_of(self.accelerator, self.model)
        self._check()
        self.hinter = hinter or hinter_of(self)
        if hinter is None and self._hints_from("rollouts"):
            check_places(self.hinter)
        self.error_finder: ErrorFinder | None = None  # beside the rules and the environment's own `failed`
        self.replay_scale = 1.0  # a factor that watch-dogs lower
        self._bare = self.accelerator.unwrap_model(self.model)
        self._rollouts: list[Rollout] = []
        self._sites: list[list[HintSite]] = []
        self._rewards: Tensor | None = None  # of all ranks
        self._num_batches = 0
        self.known_good = KnownGood(known_good)
        # Without the hint channel a copy would only cost memory.
        kind = self.args.teacher if self.args.alpha_sdpo else "live"
        other = second_module(self, self.sharding) if kind == "fixed" else None
        rate = self.args.teacher_ema_rate
        wrapped = self._reader if self.sharding == ZERO3 else None
        self.teacher = HintTeacher(kind, self._bare, rate=rate, other=other, sharding=self.sharding, wrapped=wrapped)
        self._student = HintTeacher("live", self._bare)
        self.add_callback(FollowStudent(self.teacher))
        if self._has_terms and self.sharding != ZERO3:
            self._check_head()
        self.guard = FiniteGuard(self._bare, is_scaled=getattr(self.accelerator, "scaler", None) is not None)
        self.add_callback(self.guard)
        self._in_tool_loop = False

    @property
    def _has_terms(self) -> bool:
        """Return whether a term is added to GRPO's loss."""
        return bool(self.args.alpha_sdpo or self.args.beta_replay)

    @property
    def _mode(self) -> str:
        return "train" if self.model.training else "eval"

    # ------------------------------------------------------------------------------------------ rollouts and hints

    def _tool_call_loop(
        self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any, logprobs: Any, images: Any,
        multimodal_fields: Any,
    ) -> Any:  # fmt: skip
        with self._generating_together():
            looped = super()._tool_call_loop(
                prompts, prompt_ids, completion_ids, completions, logprobs, images, multimodal_fields
            )
        tool_mask, messages, ids = looped[:3]
        environments: list[Any] = self.environments or []
        ends, limit = (*self.eos_token_ids, self._tokenizer.pad_token_id), self.max_tool_calling_iterations
        self._rollouts = [
            Rollout.of(
                list(before),
                list(after),
                list(mask),
                talk,
                self._tokenizer.decode,
                rounds_used_up=num_rounds(talk) >= limit,
                cut_off=after[-1] not in ends,
                error_finders=error_finders(environment, self.error_finder),
            )
            for before, after, mask, talk, environment in zip(
                prompt_ids, ids, tool_mask, messages, environments or [None] * len(ids), strict=False
            )
        ]
        # The loop executed these calls and then took them out of the rollout: the environment takes them back.
        for environment, rollout in zip(environments, self._rollouts, strict=False):
            undo = getattr(environment, "_undo", None)
            if undo is not None and rollout.num_dropped_calls:
                undo(rollout.num_dropped_calls)
        return looped

    @contextlib.contextmanager
    def _generating_together(self) -> Iterator[None]:
        """Let a rank whose rollouts are done generate along until those of all ranks are.

        The tool loop of a rank ends with its last call, and generating needs all ranks if they share weights or a
        vLLM server; stock TRL fails or waits forever there.
        """
        self._in_tool_loop = self.accelerator.num_processes > 1 and generates_together(self.args, self.sharding)
        try:
            yield
            while self._in_tool_loop and self._others_generate(False):
                with keeping_random_state():
                    super()._generate_single_turn([[self._tokenizer.pad_token_id]], None, {}, 1)
        finally:
            self._in_tool_loop = False

    def _others_generate(self, me: bool) -> bool:
        count = torch.tensor(float(me), device=self.accelerator.device)
        return bool(self.accelerator.reduce(count, reduction="sum") > 0)

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        if self._in_tool_loop:
            self._others_generate(True)
        return super()._generate_single_turn(*args, **kwargs)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # A rollout without a score, as a lost episode, has not succeeded and is never the better sibling.
        self._rewards = total_rewards(rewards, self.reward_weights, unscored=-math.inf)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._rollouts, self._sites, self._rewards = [], [], None
        output = super()._generate_and_score_completions(inputs)
        sampled = output["completion_mask"] * output.get("tool_mask", 1)
        looked = rollout_means(self._rollouts) | {"rollout/stuck": self._stuck()}
        # Masked truncated rollouts are included, because the longest ones would otherwise be missing.
        lengths = [float(sum(rollout.tool_mask)) for rollout in self._rollouts] or sampled.sum(1)
        self._note_means(looked | {"channel/policy/length": lengths})
        if self._hints_from("rollouts"):
            # The batch is not shuffled yet, so siblings are neighbors.
            # Nothing is learned from a truncated rollout that does not count.
            counts = output["completion_mask"].any(1).tolist()
            left_out: Counter[str] = Counter()
            self._sites = [
                self.hinter.sites(rollout, sibling=sibling, left_out=left_out) if does else []
                for rollout, sibling, does in zip(self._rollouts, self._siblings(), counts, strict=True)
            ]
            self.look_at([site for row in self._sites for site in row], "channel/hint", turn=self._num_batches)
            hints = hint_tensors(self._sites, output["completion_mask"], padding=self._tokenizer.pad_token_id)
            # 0-dim tensors pass through shuffling and splitting unchanged.
            output |= hints | {"num_hint_items": self.accelerator.gather(hints["hint_mask"].sum()).sum()}
            self._note_sites(left_out)
        self._note_known_good()
        self._num_batches += self.model.training
        release_head(self._bare)
        return output

    def look_at(self, sites: Sequence[Site], name: str, *, turn: int) -> None:
        """Measure the uplift of the sites, every n-th turn."""
        every = self.args.measure_every
        if every and turn % every == 0:
            self._note_uplifts(self._uplifts(sites), name)

    def _uplifts(self, sites: Iterable[Site]) -> list[SiteUplift]:
        # Of the teacher, because its hinted answers are learned; the student unlearns the failed actions by itself.
        # Training reads this many rows at once, so they fit into memory.
        return site_uplifts(list(sites), self.teacher, rows_a_batch=self.args.per_device_train_batch_size)

    def _note_uplifts(self, uplifts: list[SiteUplift], name: str) -> None:
        """Log the uplift of all ranks, also by writer."""
        everywhere = gather_object(uplifts)
        metrics = self._metrics[self._mode]
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

    def _siblings(self) -> list[Rollout | None]:
        """Return the best rollout of each group, on any rank, for those that it beats."""
        assert self._rewards is not None
        return siblings(
            self._rollouts,
            self._rewards.tolist(),
            self._group_size(),
            rank=self.accelerator.process_index,
            num_ranks=self.accelerator.num_processes,
            exchange=gather_object,
        )

    def _stuck(self) -> list[float]:
        """Say of this rank's rollouts whether they have neither an error nor a success nor a different group."""
        if self._rewards is None or not self._rollouts:
            return []
        flags = stuck(self._rewards.tolist(), self._group_size(), self.args.success_reward)
        mine = flags[self.accelerator.process_index * len(self._rollouts) :]
        traces = (rollout.trace for rollout in self._rollouts)
        return [
            float(flag and not any(step.error_sites for step in trace.steps))
            for flag, trace in zip(mine, traces, strict=False)
        ]

    def _group_size(self) -> int:
        return self.num_generations if self.model.training else self.num_generations_eval

    # --------------------------------------------------------------------------------------- what only is looked at

    def _note_known_good(self) -> None:
        """Collect known-good turns, and log the drift from them every few batches."""
        args, every = self.args, self.args.measure_every
        if not self.model.training or not every:
            return

        def score(rows: list[Row]) -> list[float]:
            return action_logps(self._student, rows, rows_a_batch=args.per_device_train_batch_size)

        if not self.known_good.is_full and self._rewards is not None:
            start = self.accelerator.process_index * len(self._rollouts)
            mine = self._rewards[start : start + len(self._rollouts)].tolist()
            good = (
                row
                for rollout, reward in zip(self._rollouts, mine, strict=True)
                if reached(reward, args.success_reward)
                for row in good_turns(rollout)
            )
            self.known_good.add(gather_object(list(islice(good, self.known_good.size))))
        self.known_good.measure(score)
        if self._num_batches % every == 0:
            ranks = {"rank": self.accelerator.process_index, "num_ranks": self.accelerator.num_processes}
            self._note_means({"known_good/drift": self.known_good.drifts(score, **ranks)})

    def token_diagnostics(self, advantages: Tensor) -> dict[int, TokenDiagnostics]:
        """Return the numbers of a few rollouts of a measured batch, token by token."""
        every = self.args.measure_every
        # The batch has been counted already.
        if not every or (self._num_batches - 1) % every or not self._rollouts or advantages.dim() != 1:
            return {}
        if self.sharding:
            return {}  # the ranks have different sites, and each forward needs all of them
        sites = self._sites or [[] for _ in self._rollouts]
        return {
            row: token_diagnostics(
                self._rollouts[row],
                sites[row],
                advantages[row].item(),
                self._student,
                self.teacher,
                beta=self.args.hint_divergence,
            )
            for row in sample(sites)
        }

    # ---------------------------------------------------------------------------------------------------- the loss

    def train(self, *args: Any, **kwargs: Any) -> Any:
        if self.sharding != FSDP2:  # which keeps its shards as soon as there are any
            self.teacher.remember()
        return super().train(*args, **kwargs)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        try:
            loss = super().training_step(*args, **kwargs)
        finally:
            release_head(self._bare)
        self.guard.note_loss(loss)
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self.guard.check_gradient(norm, self.state.global_step + 1, self.args.learning_rate)
        return norm

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        if not self._has_terms:
            loss = super()._compute_loss(model, inputs)
            self._note_means(self._policy_notes(loss))
            return loss
        with keeping_hidden(self._bare) as kept:
            loss = super()._compute_loss(model, inputs)
        notes, terms = self._policy_notes(loss), {"policy": loss}
        if self._hints_from("rollouts"):
            weight = self._weight("hint")
            values, found = self._hint_values(inputs, kept[-1])
            term = values.sum() / self._per_step(inputs["num_hint_items"])
            notes |= found | {"channel/hint/loss": self._whole(term), "channel/hint/weight": [weight]}
            terms["hint"] = weight * term
        if self.model.training:
            # The bare module is enough: gradients synchronize at the end of the single backward.
            recorded, found = recorded_terms(self, self._reader())
            notes |= found
            terms |= recorded
        # One call for all terms, because the ranks wait for each other here.
        self._note_means(notes)
        self._note_shares(terms)
        for name in ("hint", "hint_traces", "replay"):
            if name in terms:
                loss = loss + terms[name]
        return loss

    def _hint_values(self, inputs: dict[str, Any], hidden: Tensor) -> tuple[Tensor, Notes]:
        """Return the value of each hint token; a subclass may weigh them."""
        return hint_values(self.args, inputs, hidden, self._bare, self.teacher)

    def _reader(self) -> Any:
        """Return what further forwards of the student go through: DeepSpeed must see where each of them begins."""
        return self.model_wrapped if self.sharding == ZERO3 else self._bare

    def _hints_from(self, source: str) -> bool:
        return bool(self.args.alpha_sdpo) and self.args.hint_source in (source, "both")

    def _weight(self, channel: str) -> float:
        weight = self.args.alpha_sdpo if channel == "hint" else self.args.beta_replay * self.replay_scale
        return weight * self._warmth()

    def _per_step(self, count: Tensor) -> Tensor:
        """Turn a count over the whole generation batch and all ranks into this micro-batch's divisor."""
        share = count.clamp(min=1.0) / self.accelerator.num_processes
        if not self.model.training:
            return share
        return share * self.current_gradient_accumulation_steps / self.args.steps_per_generation

    def _warmth(self) -> float:
        steps = self.args.channel_warmup_steps
        return min(1.0, (self.state.global_step + 1) / steps) if steps else 1.0

    def turn_replay_down(self) -> None:
        """Halve the weight of the replay channel for the rest of the run."""
        self.replay_scale /= 2

    # ---------------------------------------------------------------------------------------------- before training

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
            if self.traces is not None and self._hints_from("traces"):
                found += self.traces.look(num_batches)
            batches = iter(self.get_train_dataloader()) if self._hints_from("rollouts") else iter(())
            for batch, _ in zip(batches, range(num_batches), strict=False):
                self._generate_and_score_completions(batch)
                found += self._uplifts(site for sites in self._sites for site in sites)
                if look is not None:
                    look(batch)
        return found

    def _check(self) -> None:
        check_options(
            self.args,
            has_pairs=self.pairs is not None,
            has_tools=bool(self.tools),
            has_traces=self.traces is not None,
            sharding=self.sharding,
        )

    def _check_head(self) -> None:
        check_head(self._bare, [self._tokenizer.pad_token_id, *self.eos_token_ids])

    # -------------------------------------------------------------------------------------------------- checkpoints

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save:
            state = {
                "replay_scale": self.replay_scale,
                "pairs": self.pairs.state() if self.pairs else None,
                "traces": self.traces.state() if self.traces else None,
                "num_batches": self._num_batches,
                "known_good": self.known_good.state(),
            }
            (folder / _STATE).write_text(json.dumps(state))
        self.teacher.save(folder, is_writer=self.args.should_save)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.teacher.remember()  # before the student gets the values of the checkpoint
        super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        prepared = super()._prepare_for_training(*args, **kwargs)
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
        state = json.loads(path.read_text())
        self.replay_scale = state.get("replay_scale", 1.0)
        self._num_batches = state.get("num_batches", 0)
        if state.get("known_good"):
            self.known_good.restore(state["known_good"])
        if self.pairs is not None and state["pairs"] is not None:
            self.pairs.restore(state["pairs"])
        if self.traces is not None and state.get("traces"):
            self.traces.restore(state["traces"])
        self.teacher.load(path.parent)

    # ----------------------------------------------------------------------------------------------------- metrics

    def _note_means(self, values: dict[str, Any]) -> None:
        """Log the mean of each metric over all ranks; every rank must call this with the same names."""
        note_means(self.accelerator, self._metrics[self._mode], values)

    def _policy_notes(self, loss: Tensor) -> dict[str, Any]:
        # TRL has just logged the entropy.
        entropy = self._metrics[self._mode]["entropy"][-1]
        return {"channel/policy/loss": self._whole(loss), "channel/policy/entropy": [entropy]}

    def _whole(self, term: Tensor) -> Tensor:
        """Scale a micro-batch's term so that the mean over micro-batches and ranks is the step's."""
        pieces = self.current_gradient_accumulation_steps if self.model.training else 1
        return term.detach() * pieces

    def _note_shares(self, terms: dict[str, Tensor]) -> None:
        every = self.args.measure_every
        if not every or self.state.global_step % every or not torch.is_grad_enabled() or not self.model.training:
            return
        if self.sharding:
            return  # a partial backward would run the hooks that shard gradients
        if self.args.gradient_checkpointing and (self.args.gradient_checkpointing_kwargs or {}).get("use_reentrant"):
            return  # such a graph can run backward only once and as a whole
        probed = probed_parameter(self._bare)
        if probed is not None:
            note_shares(self.accelerator, self._metrics["train"], gradient_norms(terms, probed))

    def _note_sites(self, left_out: Counter[str]) -> None:
        num_rollouts = max(len(self._rollouts), 1)
        self._note_means(
            {
                "channel/hint/sites_per_rollout": [float(len(found)) for found in self._sites],
                "channel/hint/tokens": [float(site.num_tokens) for found in self._sites for site in found],
            }
            | {f"channel/hint/left_out/{reason}": left_out[reason] / num_rollouts for reason in REASONS}
        )
        note_writers(self._metrics[self._mode], "channel/hint", (site.hint for found in self._sites for site in found))
