"""The hint channel in prime-rl: a custom loss for its trainer, and hints at error turns for its orchestrator.

In: `composer_loss`, which `trainer.loss` names by import path, and `register()`, called in the orchestrator's process
before it starts. Out: prime-rl's own policy loss plus alpha times the divergence on hint tokens. The live policy reads
the hint, and its log-probs become the reference log-probs of that turn alone.

prime-rl calls its loss for one sample at a time, so it cannot compare pairs and has no replay channel. prime_rl is
imported only when a function is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from composer_hub.integrations.channels import ChannelWeights, add_channels, hint_tokens
from composer_hub.integrations.chat import chat_of
from composer_hub.train.batch import HintSite
from composer_hub.train.hinting import Hinter
from composer_hub.train.rollouts import Rollout

# prime-rl marks tokens without a reference by 0.0, so a reference that is that sure gets this value.
SURE = -1e-6

# ---------------------------------------------------------------------------------------------------------- the loss


def composer_loss(
    inputs: Any,
    *,
    alpha: float = 0.1,
    reverse: bool = False,
    policy: Mapping[str, float] | None = None,
) -> Any:
    """Return prime-rl's default loss of a sample, with options `policy`, plus alpha times its hint divergence.

    Both are sums; prime-rl divides by the number of trained tokens in the whole step.
    """
    from prime_rl.configs.trainer import DefaultLossConfig
    from prime_rl.trainer.rl.loss import LossOutputs, default_loss_fn

    weights = ChannelWeights(alpha=alpha)
    base = default_loss_fn(inputs, DefaultLossConfig(**dict(policy or {})))
    hint, mask = hint_of(inputs, reverse=reverse)
    loss = add_channels(base.loss, weights, hint=hint.sum())
    metrics = {
        "channel/hint/tokens": mask.sum().to(hint.dtype),
        "channel/hint/divergence": hint.detach().sum() / mask.sum().clamp(min=1),
    }
    return LossOutputs(loss=loss, metrics={**base.metrics, **metrics})


def hint_of(inputs: Any, *, reverse: bool = False) -> tuple[Tensor, Tensor]:
    """Return the hint divergence of each token of a sample, and the mask of hint tokens."""
    student, teacher = inputs.trainer_logprobs, inputs.ref_logprobs
    mask = inputs.loss_mask & (teacher != 0) if teacher is not None else inputs.loss_mask & False
    values = hint_tokens(student, student if teacher is None else teacher, mask, reverse=reverse)
    return (values if inputs.loss_weights is None else values * inputs.loss_weights), mask


# --------------------------------------------------------------------------------------------------------- the hints


def register(*, max_sites: int = 1, max_teacher_tokens: int = 4096, renderer: Any = None) -> None:
    """Make prime-rl's `grpo` read hints at the error turns of each rollout, with the live policy as the teacher."""
    from prime_rl.orchestrator.algo import ALGORITHM_CLASSES

    limits = {"max_sites": max_sites, "max_teacher_tokens": max_teacher_tokens}
    ALGORITHM_CLASSES["grpo"] = hinted_grpo(limits, renderer)


def hinted_grpo(limits: Mapping[str, Any], renderer: Any = None) -> Any:
    """Return prime-rl's GRPO with hints; `renderer` is the config of a renderer if "auto" does not fit the policy."""
    from prime_rl.orchestrator.algo.base import iter_trainable_traces
    from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm
    from prime_rl.orchestrator.trajectories import iter_trainable_branches

    class HintedGRPO(GRPOAlgorithm):
        """GRPO whose error turns carry the log-probs of a policy that has read a hint."""

        async def setup(self) -> None:
            from renderers.base import create_renderer, load_tokenizer

            self.tokenizer = load_tokenizer(self.policy_pool.model_name)
            self.renderer = create_renderer(self.tokenizer, renderer)

        async def score_episode(self, episode: Any) -> None:
            for _, trace in iter_trainable_traces([episode]):
                for branch, _mask in iter_trainable_branches(trace):
                    await self.score_branch(branch)

        async def score_branch(self, branch: Any) -> None:
            hinter = Hinter(
                apply_template=lambda messages, **how: list(self.renderer.render_ids(messages, **how)),
                tools=tuple(tool.model_dump() for tool in branch.tools),
                **limits,
            )
            rollout = rollout_of(branch, self.tokenizer.decode)
            for site in hinter.sites(rollout):
                logps = await self.policy_pool.score(list(site.teacher_ids))
                give_reference(branch, len(rollout.prompt_ids), site, logps)

    return HintedGRPO


def rollout_of(branch: Any, decode: Callable[[Sequence[int]], str]) -> Rollout:
    """Return a branch of a verifiers trace as a rollout, whose prompt ends before the first sampled token."""
    ids, mask = branch.token_ids, branch.sampled_mask
    first = mask.index(True) if True in mask else len(ids)
    chat = chat_of([node.message for node in branch.nodes])
    start = len(chat)
    for number, node in reversed(list(enumerate(branch.nodes))):
        if any(node.mask):
            start = number
        elif chat[number]["role"] == "assistant":
            chat[number]["role"] = "context"  # prefilled, so not a turn of this rollout
    # verifiers keeps all results: a last call without one has met a limit of turns or tokens.
    sampled = [int(one) for one in mask[first:]]
    cut_off = bool(branch.calls) and branch.calls[-1].finish_reason == "length"
    return Rollout.of(ids[:first], ids[first:], sampled, chat[start:], decode, rounds_used_up=True, cut_off=cut_off)


def give_reference(branch: Any, num_prompt: int, site: HintSite, logps: Sequence[float]) -> None:
    """Put the log-probs of the hinted turn onto its node, unless another branch has done so."""
    start, stop = (num_prompt + place for place in site.span)
    offset = 0
    for node in branch.nodes:
        sampled = [offset + place for place, is_sampled in enumerate(node.mask) if is_sampled]
        offset += len(node.token_ids)
        if sampled == list(range(start, stop)) and node.reference_logprobs is None:
            node.reference_logprobs = [min(float(value), SURE) for value in logps[-len(sampled) :]]
