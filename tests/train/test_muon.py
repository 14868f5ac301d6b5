"""Muon: its step, what takes it, and runs with it that stop and continue."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from peft import LoraConfig  # noqa: E402
from torch import nn  # noqa: E402
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM  # noqa: E402

from composer_hub.train import memory  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.muon import MuonAdamW, matrices, orthogonal, use_muon  # noqa: E402
from composer_hub.train.run.trainer import RunTrainer  # noqa: E402
from tests.train.runs import steps_of, trainer_of  # noqa: E402


def of(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(16, 16), (8, 24), (24, 8)])
def test_the_singular_values_of_a_step_are_near_1_and_its_directions_those_of_the_gradient(shape: Any) -> None:
    left, _, right = torch.linalg.svd(of(*shape), full_matrices=False)
    gradient = left @ torch.diag(torch.linspace(1.0, 3.0, min(shape))) @ right
    step = orthogonal(gradient)
    sizes = torch.linalg.svdvals(step)
    assert 0.6 < sizes.min() <= sizes.max() < 1.3
    turned = left.T @ step @ right.T
    torch.testing.assert_close(turned, torch.diag(torch.diagonal(turned)), atol=1e-4, rtol=0)


def test_bfloat16_changes_a_step_by_its_rounding_only() -> None:
    exact, rounded = orthogonal(of(24, 8)), orthogonal(of(24, 8), torch.bfloat16).float()
    assert 0 < (exact - rounded).norm() / exact.norm() < 0.05


def test_a_stack_of_matrices_is_made_orthogonal_one_by_one() -> None:
    stack = of(3, 8, 16)
    torch.testing.assert_close(orthogonal(stack), torch.stack([orthogonal(one) for one in stack]))


def steps_of_both(momentum: float) -> float:
    """Return how far three steps end from those of torch, as a share of their length."""
    ours, theirs = (nn.Linear(48, 64, bias=False) for _ in range(2))
    options: Any = {"lr": 0.1, "weight_decay": 0.01}
    optimizer = MuonAdamW(ours, momentum=momentum, dtype=torch.float32, **options)
    other = torch.optim.Muon(theirs.parameters(), adjust_lr_fn="match_rms_adamw", **options)
    for network in (ours, theirs):
        network.weight.data.copy_(of(64, 48))
    for seed in range(3):
        ours.weight.grad, theirs.weight.grad = of(64, 48, seed=seed), of(64, 48, seed=seed)
        optimizer.step()
        other.step()
    return ((ours.weight - theirs.weight).norm() / (theirs.weight - of(64, 48)).norm()).item()


def test_its_steps_are_those_of_torch_but_for_the_rounding_to_bfloat16() -> None:
    assert steps_of_both(momentum=0.95) < 0.04 < steps_of_both(momentum=0.5)


def test_embeddings_head_norms_and_biases_are_left_to_adamw_and_experts_are_not(world: Any) -> None:
    names = matrices(world[0])
    assert names == {name for name, _ in world[0].named_parameters() if "_proj.weight" in name}
    sizes = {"hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 8, "num_experts": 4, "vocab_size": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1}
    moe = matrices(Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **heads, mlp_only_layers=[])))
    assert any("experts" in name for name in moe)
    assert not any("embed" in name or "norm" in name or "lm_head" in name for name in moe)


def test_vectors_do_not_decay(world: Any) -> None:
    optimizer = MuonAdamW(world[0], weight_decay=0.1)
    for group in optimizer.param_groups:
        assert group["weight_decay"] == (0.1 if group["params"][0].ndim > 1 else 0.0)


def muon_run(world: Any, folder: Path, **options: Any) -> Any:
    usual = {
        "alpha_sdpo": 0.5,
        "max_steps": 4,
        "save_strategy": "steps",
        "save_steps": 2,
        "lr_scheduler_type": "linear",
    }
    trainer = trainer_of(world, folder, RunTrainer, **usual | options)
    use_muon(trainer)
    return trainer


def test_a_resumed_run_ends_with_the_bits_of_one_that_was_not_interrupted(world: Any, tmp_path: Path) -> None:
    whole = muon_run(world, tmp_path)
    steps_of(whole)
    resumed = muon_run(world, tmp_path)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    for (name, ours), other in zip(whole.model.named_parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(ours, other), name
    start = dict(world[0].named_parameters())
    moved = {name for name, value in whole.model.named_parameters() if not torch.equal(value, start[name])}
    assert moved >= matrices(whole.model)
    assert moved - matrices(whole.model)  # by AdamW


def test_adapters_are_refused_with_the_reason(world: Any, tmp_path: Path) -> None:
    adapter = LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
    with pytest.raises(TrainerError, match="two factors"):
        muon_run(world, tmp_path, peft_config=adapter)


def test_the_plan_counts_one_number_per_weight_that_muon_takes(world: Any) -> None:
    model = copy.deepcopy(world[0])
    shape = memory.ModelShape.of(model.config.to_dict())
    optimizer = MuonAdamW(model)
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    optimizer.step()
    kept = sum(number.nbytes for state in optimizer.state.values() for number in state.values() if number.ndim)
    (part,) = [part for part in memory.estimate(shape, memory.Setup(optimizer="muon")) if part.name == "optimizer"]
    assert part.gib * memory.GIB == pytest.approx(kept, rel=0.01)
