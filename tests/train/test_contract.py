"""The parts of TRL that the trainer relies on, so that an upgrade fails here and not in a run."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from trl import GRPOConfig, GRPOTrainer  # noqa: E402

from tests.train.test_trainer import batch_of  # noqa: E402

SIGNATURES = {
    "_tool_call_loop": "prompts prompt_ids completion_ids completions logprobs images multimodal_fields",
    "_calculate_rewards": "inputs prompts completions completion_ids_list",
    "_generate_and_score_completions": "inputs",
    "_generate": "prompts",
    "_compute_loss": "model inputs",
    "_prepare_inputs": "generation_batch",
    "get_train_dataloader": "",
    "_get_dataloader": "dataset description batch_size sampler_fn is_training dataloader_key",
    "_save_checkpoint": "model trial",
    "_load_optimizer_and_scheduler": "checkpoint",
    "_issue_warnings_after_load": "load_result",
    "_get_output_dir": "trial",
}
ATTRIBUTES = (
    "_environment_pool _logs _metrics accelerator args chat_template chat_template_kwargs "
    "current_gradient_accumulation_steps eos_token_ids is_fsdp_enabled max_tool_calling_iterations model "
    "num_generations num_generations_eval processing_class reward_func_names reward_weights state temperature tools "
    "_tokenizer"
)
SHAPES = {
    "prompt_ids": 2, "prompt_mask": 2, "completion_ids": 2, "completion_mask": 2, "tool_mask": 2, "advantages": 1,
    "num_items_in_batch": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
def test_trl_still_has_the_method(name: str) -> None:
    parameters = list(inspect.signature(getattr(GRPOTrainer, name)).parameters)
    assert parameters[0] == "self"
    assert " ".join(parameters[1:]) == SIGNATURES[name]


def test_trl_still_has_the_attributes_and_the_batch_its_keys(make_trainer: Any) -> None:
    trainer = make_trainer(GRPOTrainer)
    trainer.current_gradient_accumulation_steps = 1
    assert [name for name in ATTRIBUTES.split() if not hasattr(trainer, name)] == []
    batch = batch_of(trainer)
    assert {name: batch[name].dim() for name in SHAPES} == SHAPES
    assert set(trainer._metrics) == {"train", "eval"}
    trainer.compute_loss(trainer.model, batch)
    assert len(trainer._metrics["train"]["entropy"]) == 1


def test_a_batch_that_is_used_twice_still_knows_how_likely_its_tokens_were(make_trainer: Any) -> None:
    batch = batch_of(make_trainer(GRPOTrainer, num_iterations=2))
    assert batch["old_per_token_logps"].shape == batch["completion_ids"].shape


def test_the_tool_loop_still_returns_its_mask_messages_and_ids_first(make_trainer: Any) -> None:
    trainer = make_trainer()
    batch_of(trainer)
    for rollout in trainer.last_rollouts:
        assert len(rollout.tool_mask) == len(rollout.completion_ids)
        assert rollout.messages[0]["role"] == "assistant"


def test_the_divergence_kernel_still_takes_its_arguments_in_this_order() -> None:
    from trl.kernels.chunked_divergence import ChunkedDivergenceFunction

    names = list(inspect.signature(ChunkedDivergenceFunction.forward).parameters)[1:]
    assert names == [
        *(f"{side}_{part}" for side in ("student", "teacher") for part in ("hidden", "weight", "bias")),
        "beta",
        "temperature",
        *(f"{side}_{part}" for side in ("student", "teacher") for part in ("logit_scale", "final_logit_softcapping")),
    ]


def test_the_loss_is_still_not_divided_by_the_trainer() -> None:
    assert GRPOTrainer.loss_is_scaled_for_ga is True
    assert GRPOConfig.__dataclass_fields__["loss_type"].default == "dapo"
