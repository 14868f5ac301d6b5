"""TRL's GRPO with its rollouts as traces: their errors, their rewards and their siblings.

In: the output of TRL's tool loop. Out: a `Rollout` for each completion of this rank's batch, in order, with
metrics. It is the base class of `ComposerTrainer` and has none of TRL's code.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from itertools import chain, compress, repeat
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from trl import GRPOTrainer

from composer_hub.environments.guard import own_environment
from composer_hub.train.isolation import keeping_random_state
from composer_hub.train.metrics import note_means, rollout_means
from composer_hub.train.rollouts import ErrorFinder, Rollout, error_finders, num_rounds
from composer_hub.train.sharded import generates_together, sharding_of
from composer_hub.train.siblings import siblings, stuck, total_rewards


class TracedTrainer(GRPOTrainer):
    """GRPO that keeps the rollouts of its last generation batch."""

    args: Any  # a ComposerConfig
    model: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sharding = sharding_of(self.accelerator, self.model)
        self.error_finder: ErrorFinder | None = None  # beside the rules and the environment's own `failed`
        self.last_rollouts: list[Rollout] = []
        self._rewards: Tensor | None = None  # of all ranks
        self._in_tool_loop = False
        self.made_before: Sequence[Sequence[tuple[str, str]]] = ()  # calls that the next batch begins after

    # ------------------------------------------------------------------------------------------------------ rollouts

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
        self.last_rollouts = [
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
        made, self.made_before = chain(self.made_before, repeat(())), ()
        for environment, rollout, before in zip(environments, self.last_rollouts, made, strict=False):
            own = own_environment(environment)
            if own and rollout.num_dropped_calls:
                after = ((one["name"], one["content"]) for one in rollout.messages if one["role"] == "tool")
                own._keep([*before, *after])
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

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        self.last_rollouts, self._rewards = [], None
        output = super()._generate_and_score_completions(inputs)
        sampled = output["completion_mask"] * output.get("tool_mask", 1)
        looked = rollout_means(self.last_rollouts) | {"rollout/stuck": self._stuck()}
        # Masked truncated rollouts are included, because the longest ones would otherwise be missing.
        lengths = [float(sum(rollout.tool_mask)) for rollout in self.last_rollouts] or sampled.sum(1)
        self.note_means(looked | {"channel/policy/length": lengths})
        return output

    def _untooled(self, output: Any) -> list[Rollout]:
        """Return the rollouts of a run without tools, which are one turn each."""
        decode, found = self._tokenizer.decode, []
        names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
        for before, is_prompt, after, is_own in zip(*(output[name].tolist() for name in names), strict=True):
            prompt, ids = list(compress(before, is_prompt)), list(compress(after, is_own))
            talk = [{"role": "assistant", "content": decode(ids)}]
            found.append(Rollout.of(prompt, ids, [1] * len(ids), talk, decode))
        return found

    # ------------------------------------------------------------------------------------------------------- rewards

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        # A rollout without a score, as a lost episode, has not succeeded and is never the better sibling.
        self._rewards = total_rewards(rewards, self.reward_weights, unscored=-math.inf)
        return rewards

    def _own_part(self, values: Any) -> Any:
        """Return this rank's part of values over the rollouts of all ranks."""
        size = len(values) // self.accelerator.num_processes
        return values[self.accelerator.process_index * size :][:size]

    def siblings(self) -> list[Rollout | None]:
        """Return the best rollout of each group, on any rank, for those that it beats; every rank must call this."""
        assert self._rewards is not None
        return siblings(
            self.last_rollouts,
            self._rewards.tolist(),
            self._group_size(),
            rank=self.accelerator.process_index,
            num_ranks=self.accelerator.num_processes,
            exchange=gather_object,
        )

    def _stuck(self) -> list[float]:
        """Return 1.0 for each own rollout without an error, a success or a sibling with another reward."""
        if self._rewards is None or not self.last_rollouts:
            return []
        flags = self._own_part(stuck(self._rewards.tolist(), self._group_size(), self.args.success_reward))
        traces = (rollout.trace for rollout in self.last_rollouts)
        return [
            float(flag and not any(step.error_sites for step in trace.steps))
            for flag, trace in zip(flags, traces, strict=False)
        ]

    def _group_size(self) -> int:
        size: Any = self.num_generations if self.model.training else self.num_generations_eval
        return size

    # ------------------------------------------------------------------------------------------------------- metrics

    @property
    def metrics(self) -> dict[str, list[float]]:
        """The numbers since the last log, of training or of an evaluation."""
        return self._metrics["train" if self.model.training else "eval"]

    def note_means(self, values: dict[str, Any]) -> None:
        """Log the mean of each metric over all ranks; every rank must call this with the same names."""
        note_means(self.accelerator, self.metrics, values)
