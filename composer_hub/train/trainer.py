"""`ComposerTrainer`: TRL's GRPO with two added terms, and none of its code.

loss = policy + alpha * hint + beta * replay. The policy term is `super()._compute_loss`; a hook on the backbone keeps
the hidden states of that forward, so the hint term needs no second forward of the student. With alpha = beta = 0 it
*is* GRPO.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import pad, use_adapter

from composer_hub.train.hinting import Hinter, HintSite
from composer_hub.train.losses import (
    Head,
    Preference,
    clip_tokens,
    divergence_from_hidden,
    mean_over,
    preference_loss,
    token_logps,
)
from composer_hub.train.pair_loader import PairLoader
from composer_hub.train.turns import Rollout

TEACHERS = ("fixed", "ema", "live")


@dataclass
class ComposerConfig(GRPOConfig):
    """GRPO's options and those of the two added channels."""

    alpha_sdpo: float = field(default=0.0, metadata={"help": "Weight of the hint channel; 0 turns it off."})
    beta_replay: float = field(default=0.0, metadata={"help": "Weight of the replay channel; 0 turns it off."})
    channel_warmup_steps: int = field(default=0, metadata={"help": "Steps over which both weights rise from 0."})
    teacher: str = field(default="fixed", metadata={"help": "Who reads the hint: fixed, ema or live."})
    teacher_ema_rate: float = field(default=0.01, metadata={"help": "How fast the ema teacher follows the student."})
    hint_divergence: float = field(
        default=0.5, metadata={"help": "0 is KL(teacher, student), 1 the reverse, between JSD."}
    )
    hint_temperature: float = field(default=1.0, metadata={"help": "Temperature of both sides of the divergence."})
    hint_top_k: int | None = field(default=None, metadata={"help": "Keep the teacher's k likeliest tokens and a tail."})
    hint_token_clip: float | None = field(default=None, metadata={"help": "Clip each token's divergence at this."})
    max_hint_sites: int = field(default=1, metadata={"help": "Hint sites a rollout; the first pays best."})
    max_hint_chars: int = field(default=600, metadata={"help": "Longer hints are cut at a line."})
    max_teacher_tokens: int = field(default=4096, metadata={"help": "A hinted prompt longer than this is left out."})
    control_hints: bool = field(
        default=False, metadata={"help": "Hints of the same shape that say nothing, for ablations."}
    )
    replay_loss: str = field(default="sigmoid", metadata={"help": "sigmoid or ipo."})
    replay_strength: float = field(default=0.1, metadata={"help": "The preference loss's own beta."})
    replay_label_smoothing: float = field(default=0.0, metadata={"help": "Share of pairs believed to be wrong."})
    replay_nll_weight: float = field(default=0.0, metadata={"help": "Weight of -log p(chosen) a token."})
    replay_length_normalised: bool = field(default=False, metadata={"help": "Compare log-probs a token."})


@dataclass
class _Kept:
    """The hidden states of one forward through the backbone."""

    hidden: Tensor | None = None


class ComposerTrainer(GRPOTrainer):
    """GRPO + alpha * hint divergence at error turns + beta * preference loss on replayed pairs."""

    def __init__(
        self, *args: Any, pairs: PairLoader | None = None, hinter: Hinter | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._check(self.args, pairs)
        self.pairs = pairs
        self.hinter = hinter or self._own_hinter()
        self._rollouts: list[Rollout] = []
        self._rewards: Tensor | None = None
        self.teacher_model = self._frozen_copy() if self._wants_copy() else None
        if self.args.teacher == "ema" and self.teacher_model is not None:
            self.add_callback(_FollowStudent(self))

    # ------------------------------------------------------------------------------------------ rollouts and hints

    def _tool_call_loop(
        self, prompts: Any, prompt_ids: Any, completion_ids: Any, completions: Any, logprobs: Any, images: Any,
        multimodal_fields: Any,
    ) -> Any:  # fmt: skip
        looped = super()._tool_call_loop(
            prompts, prompt_ids, completion_ids, completions, logprobs, images, multimodal_fields
        )
        tool_mask, messages, ids = looped[:3]
        limit = self.max_tool_calling_iterations
        self._rollouts = [
            Rollout(list(before), list(after), list(mask), talk, _num_rounds(talk) >= limit)
            for before, after, mask, talk in zip(prompt_ids, ids, tool_mask, messages, strict=True)
        ]
        return looped

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        self._rewards = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self._rollouts = []
        output = super()._generate_and_score_completions(inputs)
        if self.args.alpha_sdpo:
            # Before the batch is shuffled: siblings still stand side by side.
            output |= self._hint_tensors(output["completion_ids"], self._hint_sites())
        return output

    def _hint_sites(self) -> list[list[HintSite]]:
        siblings = self._siblings()
        return [
            self.hinter.sites(rollout, sibling=sibling)
            for rollout, sibling in zip(self._rollouts, siblings, strict=True)
        ]

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

    def _hint_tensors(self, completion_ids: Tensor, sites: list[list[HintSite]]) -> dict[str, Tensor]:
        """Return the hint channel's rows: one a rollout, so that they shuffle and split with it."""
        device = completion_ids.device
        first = [found[0] if found else None for found in sites] or [None] * len(completion_ids)
        mask = torch.zeros_like(completion_ids, dtype=torch.bool)
        rows = []
        for row, site in enumerate(first):
            # A rank without sites still has a row, or a live teacher's forward would leave the other ranks waiting.
            rows.append(torch.tensor(site.teacher_ids if site else [self._tokenizer.pad_token_id]))
            if site:
                mask[row, site.error.turn.start : site.error.turn.stop] = True
        count = self.accelerator.gather(mask.sum()).sum()
        self._log_hints(first, sites, mask)
        return {
            "hint_mask": mask,
            "teacher_ids": pad(rows, padding_value=self._tokenizer.pad_token_id, padding_side="left").to(device),
            "teacher_lengths": torch.tensor([len(row) for row in rows], device=device),
            "num_hint_items": count,  # 0-dim: passes through shuffling and splitting as it is
        }

    # ---------------------------------------------------------------------------------------------------- the loss

    def _compute_loss(self, model: Any, inputs: Any) -> Tensor:
        alpha, beta = self.args.alpha_sdpo * self._warmth(), self.args.beta_replay * self._warmth()
        if not self.args.alpha_sdpo and not self.args.beta_replay:
            return super()._compute_loss(model, inputs)
        with self._keeping_hidden(self.model) as kept:
            loss = super()._compute_loss(model, inputs)
        if self.args.alpha_sdpo:
            loss = loss + alpha * self._hint_term(model, inputs, kept.hidden)
        if self.args.beta_replay and self.pairs is not None and self.model.training:
            loss = loss + beta * self._replay_term(model)
        return loss

    def _hint_term(self, model: Any, inputs: Any, hidden: Tensor | None) -> Tensor:
        assert hidden is not None  # the hook saw the policy's forward
        mask = inputs["hint_mask"] & inputs["completion_mask"].bool()
        student = hidden[:, :-1][:, -inputs["completion_ids"].size(1) :][mask]
        teacher, head = self._teacher_hidden(model, inputs, mask)
        values = divergence_from_hidden(
            student,
            self._head(self.model),
            teacher,
            head,
            beta=self.args.hint_divergence,
            temperature=self.args.hint_temperature,
            top_k=self.args.hint_top_k,
        )
        values = clip_tokens(values, self.args.hint_token_clip)
        self._note("channel/hint/divergence", values.detach().mean().item() if len(values) else None)
        # The zero keeps the graph the same on a rank without sites.
        return mean_over(values, self._per_step(inputs["num_hint_items"])) + hidden.sum() * 0.0

    def _teacher_hidden(self, model: Any, inputs: Any, mask: Tensor) -> tuple[Tensor, Head]:
        ids, lengths = inputs["teacher_ids"], inputs["teacher_lengths"]
        place = torch.arange(ids.size(1), device=ids.device)[None]
        attention = (place >= ids.size(1) - lengths[:, None]).long()
        network = model if self.teacher_model is None else self.teacher_model
        with torch.no_grad(), self._as_teacher(network), self._keeping_hidden(network) as kept:
            network(input_ids=ids, attention_mask=attention, use_cache=False, logits_to_keep=1)
        assert kept.hidden is not None
        # Rows are padded on the left, so the action's tokens are the last ones; each is predicted one place before.
        selected = place[:, 1:] >= ids.size(1) - mask.sum(1)[:, None]
        return kept.hidden[:, :-1][selected], self._head(network)

    def _replay_term(self, model: Any) -> Tensor:
        assert self.pairs is not None
        batch = self.pairs.next_batch().to(self.accelerator.device)
        with self._keeping_hidden(self.model) as kept:
            model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False, logits_to_keep=1)
        assert kept.hidden is not None
        answer = batch.answer_mask[:, 1:]
        values = token_logps(kept.hidden[:, :-1][answer], self._head(self.model), batch.input_ids[:, 1:][answer])
        sums = torch.zeros(len(answer), device=values.device, dtype=values.dtype)
        rows = answer.nonzero()[:, 0]
        chosen, rejected = sums.index_add(0, rows, values).chunk(2)
        lengths = answer.sum(1).chunk(2)
        terms = preference_loss(chosen, rejected, batch.ref_chosen, batch.ref_rejected, *lengths, self._preference())
        self._note("channel/replay/loss", terms.losses.detach().mean().item())
        self._note("channel/replay/accuracy", terms.correct.float().mean().item())
        self._note("channel/replay/margin", terms.margins.mean().item())
        self._note("channel/replay/chosen_drift", terms.chosen_drift.mean().item())
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

    # ------------------------------------------------------------------------------------------------- the teacher

    def _wants_copy(self) -> bool:
        return bool(self.args.alpha_sdpo) and self.args.teacher != "live" and not self._is_peft()

    def _frozen_copy(self) -> nn.Module:
        teacher = copy.deepcopy(self.accelerator.unwrap_model(self.model)).eval().requires_grad_(False)
        # TRL replaces `forward` on the instance by a closure over the student; the copy needs its class's own.
        teacher.__dict__.pop("forward", None)
        return teacher

    def _is_peft(self) -> bool:
        return hasattr(self.accelerator.unwrap_model(self.model), "peft_config")

    @contextlib.contextmanager
    def _as_teacher(self, network: Any) -> Iterator[None]:
        """Switch adapters off for the forward of a fixed teacher: underneath is the model the run started from."""
        if self.args.teacher == "fixed" and self._is_peft():
            with use_adapter(self.accelerator.unwrap_model(network), None):
                yield
        else:
            yield

    @contextlib.contextmanager
    def _keeping_hidden(self, network: Any) -> Iterator[_Kept]:
        kept = _Kept()

        def keep(_module: nn.Module, _inputs: Any, output: Any) -> None:
            kept.hidden = output.last_hidden_state

        handle = self._causal_lm(network).base_model.register_forward_hook(keep)
        try:
            yield kept
        finally:
            handle.remove()

    def _causal_lm(self, network: Any) -> Any:
        unwrapped = self.accelerator.unwrap_model(network)
        return unwrapped.get_base_model() if hasattr(unwrapped, "get_base_model") else unwrapped

    def _head(self, network: Any) -> Head:
        model = self._causal_lm(network)
        output = model.get_output_embeddings()
        return Head(
            output.weight, getattr(output, "bias", None), softcap=getattr(model.config, "final_logit_softcapping", None)
        )

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

    # ----------------------------------------------------------------------------------------------------- metrics

    def _note(self, name: str, value: float | None) -> None:
        if value is not None:
            self._metrics["train" if self.model.training else "eval"][name].append(value)

    def _log_hints(self, first: Sequence[HintSite | None], sites: list[list[HintSite]], mask: Tensor) -> None:
        self._note("channel/hint/sites_per_rollout", sum(map(len, sites)) / max(len(first), 1))
        self._note("channel/hint/tokens", float(mask.sum().item()))
        found = [site for site in first if site]
        for writer in {site.hint.writer for site in found}:
            share = sum(site.hint.writer == writer for site in found) / len(found)
            self._note(f"channel/hint/writer/{writer}", share)

    @staticmethod
    def _check(args: ComposerConfig, pairs: PairLoader | None) -> None:
        if args.teacher not in TEACHERS:
            raise ValueError(f"teacher is one of {', '.join(TEACHERS)}, not {args.teacher!r}.")
        if args.beta_replay and pairs is None:
            raise ValueError("beta_replay is set but there are no pairs: pass pairs=, or set beta_replay to 0.")


class _FollowStudent(TrainerCallback):
    """Moves the ema teacher a little towards the student after each step."""

    def __init__(self, trainer: ComposerTrainer) -> None:
        self.trainer = trainer

    @torch.no_grad()
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        teacher = self.trainer.teacher_model
        student = self.trainer.accelerator.unwrap_model(self.trainer.model)
        assert teacher is not None
        for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
            old.lerp_(new.to(old.dtype), args.teacher_ema_rate)


def _num_rounds(messages: Sequence[dict[str, Any]]) -> int:
    """Count the rounds of tools that were answered."""
    return sum(
        message["role"] == "tool" and messages[index - 1]["role"] == "assistant"
        for index, message in enumerate(messages)
    )
