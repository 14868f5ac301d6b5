"""`ComposerTrainer`: TRL's GRPO with two added terms, and none of its code.

loss = policy + alpha * hint + beta * replay. The policy term is `super()._compute_loss`; a hook on the backbone keeps
the hidden states of that forward, so the hint term needs no second forward of the student. With alpha = beta = 0 it
*is* GRPO.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer

from composer_hub.train.batch import hint_tensors, teacher_rows
from composer_hub.train.checks import TrainerError, check_head, check_options, sharding_of
from composer_hub.train.config import ComposerConfig
from composer_hub.train.endless import Endless
from composer_hub.train.hinting import Hinter, HintSite
from composer_hub.train.losses import (
    Head,
    Preference,
    clip_tokens,
    divergence_from_hidden,
    mean_over,
    preference_loss,
)
from composer_hub.train.pair_loader import PairBatch, PairLoader
from composer_hub.train.signals import note_means
from composer_hub.train.teacher import Teacher, head_of, keeping_hidden
from composer_hub.train.trace_hints import TraceHints, TraceLoader
from composer_hub.train.turns import Rollout
from composer_hub.train.uplift import SiteUplift, sequence_logps, site_uplifts
from composer_hub.train.watchdogs import hedge_rate

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
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.pairs = pairs
        self.traces = TraceHints(traces, self) if traces is not None else None
        self._check()
        self.hinter = hinter or self._own_hinter()
        self.channel_scale = {"hint": 1.0, "replay": 1.0}  # what watch-dogs turn down
        self._bare = self.accelerator.unwrap_model(self.model)
        self._rollouts: list[Rollout] = []
        self._sites: list[list[HintSite]] = []
        self._rewards: Tensor | None = None
        self._num_batches = 0
        # A teacher that nobody reads would only cost memory.
        kind = self.args.teacher if self.args.alpha_sdpo else "live"
        self.teacher = Teacher(kind, self._bare, rate=self.args.teacher_ema_rate)
        if kind == "ema":
            self.add_callback(_FollowStudent(self.teacher))
        if self.args.alpha_sdpo or self.args.beta_replay:
            self._check_head()

    # ------------------------------------------------------------------------------------------ rollouts and hints

    def _tool_call_loop(
        self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any, logprobs: Any, images: Any,
        multimodal_fields: Any,
    ) -> Any:  # fmt: skip
        looped = super()._tool_call_loop(
            prompts, prompt_ids, completion_ids, completions, logprobs, images, multimodal_fields
        )
        tool_mask, messages, ids = looped[:3]
        ends, limit = (*self.eos_token_ids, self._tokenizer.pad_token_id), self.max_tool_calling_iterations
        self._rollouts = [
            Rollout(list(before), list(after), list(mask), talk, _num_rounds(talk) >= limit, after[-1] not in ends)
            for before, after, mask, talk in zip(prompt_ids, ids, tool_mask, messages, strict=True)
        ]
        return looped

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._rollouts, self._sites = [], []
        output = super()._generate_and_score_completions(inputs)
        self._note_means({"rollout/hedge_rate": [hedge_rate(_said(rollout)) for rollout in self._rollouts]})
        if self._hints_from("rollouts"):
            # Before the batch is shuffled: siblings still stand side by side.
            self._sites = self._lifting(
                [
                    self.hinter.sites(rollout, sibling=sibling)
                    for rollout, sibling in zip(self._rollouts, self._siblings(), strict=True)
                ]
            )
            hints = hint_tensors(self._sites, output["completion_mask"], padding=self._tokenizer.pad_token_id)
            # 0-dim: passes through shuffling and splitting as it is.
            output |= hints | {"num_hint_items": self.accelerator.gather(hints["hint_mask"].sum()).sum()}
            self._note_sites()
        return output

    def _lifting(self, sites: list[list[HintSite]]) -> list[list[HintSite]]:
        """Measure now and then what the hints do, and leave out those that do too little where that is asked for."""
        least, every = self.args.hint_min_uplift, self.args.hint_uplift_every
        self._num_batches += 1
        if least is None and not (every and (self._num_batches - 1) % every == 0):
            return sites
        found = site_uplifts([site for row in sites for site in row], self._bare)
        self._note_means(
            {
                "channel/hint/uplift": [uplift.value for uplift in found],
                "channel/hint/lowered": [uplift.lowered for uplift in found],
                "channel/hint/raised": [uplift.raised for uplift in found if uplift.raised is not None],
            }
        )
        if least is None:
            return sites
        uplifts = iter(found)
        return [[site for site in row if next(uplifts).lifts(least)] for row in sites]

    def _siblings(self) -> list[Rollout | None]:
        """Return, for each rollout, the best one of the same prompt on this rank if it beats it."""
        if self._rewards is None or not self._rollouts:
            return [None] * len(self._rollouts)
        start = self.accelerator.process_index * len(self._rollouts)
        rewards = self._rewards[start : start + len(self._rollouts)].tolist()
        keys = [tuple(rollout.prompt_ids) for rollout in self._rollouts]
        best: dict[tuple[int, ...], int] = {}
        for index, key in enumerate(keys):
            if key not in best or rewards[index] > rewards[best[key]]:
                best[key] = index
        return [
            self._rollouts[best[key]] if rewards[best[key]] > rewards[index] else None for index, key in enumerate(keys)
        ]

    # ---------------------------------------------------------------------------------------------------- the loss

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        if not self.args.alpha_sdpo and not self.args.beta_replay:
            return super()._compute_loss(model, inputs)
        with keeping_hidden(self._bare) as kept:
            loss = super()._compute_loss(model, inputs)
        if self._hints_from("rollouts"):
            loss = loss + self._weight("hint") * self._hint_term(inputs, kept[-1])
        if self.model.training:
            # The bare module: parameters synchronise when the one backward ends, however many forwards there were.
            for term in self._recorded_terms():
                loss = loss + term(self._bare)
        return loss

    def _recorded_terms(self) -> list[Callable[[Any], Tensor]]:
        """Return the weighted terms that need no rollout, as functions of the student, wrapped or bare."""
        terms: list[Callable[[Any], Tensor]] = []
        if self.traces is not None and self._hints_from("traces"):
            traces = self.traces
            terms.append(lambda network: self._weight("hint") * traces.term(network))
        if self.pairs is not None and self.args.beta_replay:
            pairs = self.pairs
            terms.append(lambda network: self._weight("replay") * self._replay_term(pairs.next_batch(), network))
        return terms

    def _hints_from(self, source: str) -> bool:
        return bool(self.args.alpha_sdpo) and self.args.hint_source in (source, "both")

    def _weight(self, channel: str) -> float:
        weight = self.args.alpha_sdpo if channel == "hint" else self.args.beta_replay
        return weight * self._warmth() * self.channel_scale[channel]

    def _hint_term(self, inputs: Any, hidden: Tensor) -> Tensor:  # hidden: (batch, time, width), with grad
        rows = teacher_rows(inputs)
        if rows is None:
            self._note_means({"channel/hint/divergence": []})  # the other ranks wait here, whatever they found
            return hidden.new_zeros(())
        places = hidden.size(1) - 1 - inputs["completion_ids"].size(1) + rows.student[:, 1]
        student = hidden[rows.student[:, 0], places]
        read, teacher_head = self.teacher.read(rows.ids, rows.attention)
        teacher = read[:, :-1][rows.teacher]
        values = self._divergences(student, teacher, teacher_head)
        self._note_means({"channel/hint/divergence": values.detach()})
        return mean_over(values, self._per_step(inputs["num_hint_items"]))

    def _divergences(self, student: Tensor, teacher: Tensor, teacher_head: Head) -> Tensor:
        """Return the divergence of each token, clipped: (tokens, width) of both sides -> (tokens,)."""
        values = divergence_from_hidden(
            student,
            head_of(self._bare),
            teacher,
            teacher_head,
            beta=self.args.hint_divergence,
            temperature=self.args.hint_temperature,
            top_k=self.args.hint_top_k,
        )
        return clip_tokens(values, self.args.hint_token_clip)

    def _replay_term(self, batch: PairBatch, network: Any) -> Tensor:
        batch = batch.to(self.accelerator.device)
        with keeping_hidden(self._bare) as kept:
            network(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False, logits_to_keep=1)
        answer = batch.answer_mask[:, 1:]
        sums = sequence_logps(kept[-1], head_of(self._bare), batch.input_ids, answer)
        chosen, rejected = sums.chunk(2)
        long_chosen, long_rejected = answer.sum(1).chunk(2)
        terms = preference_loss(
            chosen, rejected, batch.ref_chosen, batch.ref_rejected, long_chosen, long_rejected, self._preference()
        )
        self._note_means(
            {
                "channel/replay/loss": terms.losses.detach(),
                "channel/replay/accuracy": terms.correct.float(),
                "channel/replay/margin": terms.margins,
                "channel/replay/chosen_drift": terms.chosen_drift,
            }
        )
        return terms.losses.mean() / self.current_gradient_accumulation_steps

    def _preference(self) -> Preference:
        return Preference(
            kind=self.args.replay_loss,
            beta=self.args.replay_strength,
            label_smoothing=self.args.replay_label_smoothing,
            length_normalised=self.args.replay_length_normalised,
            nll_weight=self.args.replay_nll_weight,
        )

    def _per_step(self, count: Tensor) -> Tensor:
        """Turn a count over the whole generation batch and all ranks into this micro-batch's divisor."""
        share = count.clamp(min=1.0) / self.accelerator.num_processes
        if not self.model.training:
            return share
        return share * self.current_gradient_accumulation_steps / self.args.steps_per_generation

    def _warmth(self) -> float:
        steps = self.args.channel_warmup_steps
        return min(1.0, (self.state.global_step + 1) / steps) if steps else 1.0

    def turn_down(self, channel: str, factor: float = 0.5) -> None:
        """Weaken a channel for the rest of the run."""
        self.channel_scale[channel] *= factor

    # ---------------------------------------------------------------------------------------------- before training

    def preflight(self, *, num_batches: int = 1) -> list[SiteUplift]:
        """Return what the hints of some fresh rollouts do to the failed action and to the corrected one.

        The run itself is not disturbed: random state and metrics are put back.
        """
        if not self.args.alpha_sdpo:
            raise TrainerError("alpha_sdpo is 0, so there are no hints to look at.")
        states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
        metrics, self._metrics = self._metrics, {mode: defaultdict(list) for mode in self._metrics}
        found: list[SiteUplift] = []
        try:
            batches = iter(self.get_train_dataloader())
            for batch, _ in zip(batches, range(num_batches), strict=False):
                self._generate_and_score_completions(batch)
                found += site_uplifts([site for sites in self._sites for site in sites], self._bare)
        finally:
            self._metrics = metrics
            torch.set_rng_state(states[0])
            random.setstate(states[1])
            numpy.random.set_state(states[2])
        return found

    def _own_hinter(self) -> Hinter:
        from transformers.utils import get_json_schema

        def apply_template(messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
            return self.processing_class.apply_chat_template(
                messages,
                add_generation_prompt=add_generation_prompt,
                tokenize=True,
                return_dict=False,
                chat_template=self.chat_template,
                **self.chat_template_kwargs,
            )

        return Hinter(
            apply_template=apply_template,
            decode=self._tokenizer.decode,
            tools=tuple(get_json_schema(tool) for tool in self.tools or ()),
            max_sites=self.args.max_hint_sites,
            max_hint_chars=self.args.max_hint_chars,
            max_teacher_tokens=self.args.max_teacher_tokens,
            control=self.args.control_hints,
        )

    def _check(self) -> None:
        sharding = sharding_of(self.accelerator, is_fsdp=self.is_fsdp_enabled)
        check_options(
            self.args, has_pairs=self.pairs is not None, has_tools=bool(self.tools),
            has_traces=self.traces is not None, sharding=sharding,
        )  # fmt: skip

    def _check_head(self) -> None:
        check_head(self._bare, [self._tokenizer.pad_token_id, *self.eos_token_ids])

    # -------------------------------------------------------------------------------------------------- checkpoints

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            state = {"scale": self.channel_scale} | {name: stream.state() for name, stream in self._streams().items()}
            (folder / _STATE).write_text(json.dumps(state))
            self.teacher.save(folder)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint) / _STATE
        if not path.exists():
            raise TrainerError(f"{path} is missing: this is no complete checkpoint of composer_hub. Resume another.")
        state = json.loads(path.read_text())
        self.channel_scale = state["scale"]
        for name, stream in self._streams().items():
            if name in state:
                stream.restore(state[name])
        self.teacher.load(path.parent)

    def _streams(self) -> dict[str, Endless[Any]]:
        """Return the streams whose place a checkpoint remembers."""
        streams = {"pairs": self.pairs, "traces": self.traces.loader if self.traces else None}
        return {name: stream for name, stream in streams.items() if stream is not None}

    # ----------------------------------------------------------------------------------------------------- metrics

    def _note_means(self, values: dict[str, Any]) -> None:
        """Log the mean of each metric over all ranks; every rank must come here with the same names."""
        note_means(self.accelerator, self._metrics["train" if self.model.training else "eval"], values)

    def _note_sites(self) -> None:
        self._note_means(
            {
                "channel/hint/sites_per_rollout": [float(len(found)) for found in self._sites],
                "channel/hint/tokens": [float(site.num_tokens) for found in self._sites for site in found],
            }
        )
        writers = Counter(gather_object([site.hint.writer for found in self._sites for site in found]))
        for writer, count in writers.items():
            mode = "train" if self.model.training else "eval"
            self._metrics[mode][f"channel/hint/writer/{writer}"].append(count / writers.total())


class _FollowStudent(TrainerCallback):
    """Moves the ema teacher a little towards the student after each step."""

    def __init__(self, teacher: Teacher) -> None:
        self.teacher = teacher

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.teacher.follow()


def _num_rounds(messages: Sequence[dict[str, Any]]) -> int:
    """Count the rounds of tools that were answered."""
    return sum(
        message["role"] == "tool" and messages[index - 1]["role"] == "assistant"
        for index, message in enumerate(messages)
    )


def _said(rollout: Rollout) -> str:
    return " ".join(str(message.get("content") or "") for message in rollout.messages if message["role"] == "assistant")
