"""Hints in verl's rollouts: the teacher is asked about error turns only, with a hint before each.

In: `HintedManager` as `actor_rollout_ref.rollout.agent.agent_loop_manager_class`, and `composer_tool_agent` as the
agent loop. Out: `teacher_ids`, `teacher_logprobs` and `hint_mask` of each rollout, for
`composer_hub.integrations.verl`. `HintedManagerV0` is for `trainer.use_v1=false`, verl's older loop.

This module imports verl; nothing else of the package imports this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ray
from verl.experimental.agent_loop.agent_loop import AgentLoopManager, AgentLoopWorker, register
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from composer_hub.integrations.channels import term_columns
from composer_hub.integrations.chat import tool_message
from composer_hub.integrations.verl import HintedTurn, hinted_teacher, own_terms
from composer_hub.train.hinting import Hinter
from composer_hub.train.rollouts import Rollout

AGENT = "composer_tool_agent"
MESSAGES, TOOLS = "composer_messages", "composer_tools"


@register(AGENT)
class HintedToolAgentLoop(ToolAgentLoop):
    """verl's tool loop, which also passes on its messages and tools."""

    async def _handle_generating_state(self, agent_data: Any, *args: Any, **kwargs: Any) -> Any:
        state = await super()._handle_generating_state(agent_data, *args, **kwargs)
        # The list itself, because answers of tools are still to come.
        agent_data.extra_fields[MESSAGES] = agent_data.messages
        agent_data.extra_fields[TOOLS] = getattr(agent_data, "_active_tool_schemas", self.tool_schemas)
        return state


class HintsForWorker:
    """Makes a worker ask its teacher about error turns only, with a hint before each."""

    # Attributes of verl's workers.
    distillation_enabled: bool
    teacher_server_manager: Any
    teacher_key: str
    tokenizer: Any
    config: Any

    async def _compute_teacher_logprobs(
        self,
        output: Any,
        prompt_ids: list[int],
        response_ids: list[int],
        validate: bool,
        sample_kwargs: dict[str, Any] | None = None,
    ) -> None:
        messages, tools = output.extra_fields.pop(MESSAGES, ()), output.extra_fields.pop(TOOLS, ())
        if not self.distillation_enabled or validate:
            return
        manager, given = self.teacher_server_manager, sample_kwargs or {}
        key: Any = given.get(self.teacher_key)
        key = key.item() if hasattr(key, "item") else key  # a numpy scalar if it comes from a batch

        async def ask(ids: list[int]) -> Any:
            return await manager.compute_teacher_logprobs_single(sequence_ids=ids, routing_key=key)

        chat = chat_of(messages[len(given.get("raw_prompt", ())) :])
        decode, mask = self.tokenizer.decode, output.response_mask
        rollout = Rollout.of(prompt_ids, response_ids, mask, chat, decode, rounds_used_up=True)
        sites = Hinter(self._template, tuple(tools)).sites(rollout)
        turns = [HintedTurn(list(site.hinted_ids), *site.span) for site in sites]
        how = manager.distillation_loss_config
        k = how.topk if how.loss_settings.use_topk else 1
        columns = await hinted_teacher(ask, prompt_ids, response_ids, turns, k=k)
        output.extra_fields |= term_columns(own_terms, rollout)
        output.extra_fields |= {
            "teacher_ids": columns.ids,
            "teacher_logprobs": columns.logprobs,
            "hint_mask": columns.hint_mask,
        }

    def _template(self, messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        options = self.config.data.get("apply_chat_template_kwargs", {})
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=add_generation_prompt, **options
        )
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


class HintedWorker(HintsForWorker, AgentLoopWorkerTQ.__ray_actor_class__):  # under ray's wrapping
    """verl's worker, with hints."""


class HintedManager(AgentLoopManagerTQ):
    """verl's manager, with hinted workers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(HintedWorker)  # started later, by `create`


class HintedWorkerV0(HintsForWorker, AgentLoopWorker):
    """The same for the older loop."""


class HintedManagerV0(AgentLoopManager):
    """The same for the older loop."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = ray.remote(HintedWorkerV0)


def chat_of(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages of verl's tool loop as TRL's would have written them."""
    chat: list[dict[str, Any]] = []
    waiting: list[str] = []
    for message in messages:
        plain = dict(message)
        if plain["role"] == "assistant":
            waiting = [call["function"]["name"] for call in plain.get("tool_calls") or ()]
        elif plain["role"] == "tool" and waiting:
            # verl answers calls in their order.
            name = waiting.pop(0)
            unknown, raised = f"Unknown function '{name}'.", f"Error executing tool '{name}': "
            plain |= tool_message(str(plain["content"]), name, unknown=unknown, raised=raised)
        chat.append(plain)
    return chat
