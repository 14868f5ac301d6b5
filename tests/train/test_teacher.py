"""A teacher is the student with other values; what moves is restored when a run goes on."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
peft = pytest.importorskip("peft")

from transformers import TrainerCallback  # noqa: E402

from composer_hub.train.teacher import HintTeacher, head_of, without_dropout  # noqa: E402
from tests.quick import quick  # noqa: E402
from tests.train.runs import steps_of  # noqa: E402

IDS = torch.tensor([[5, 6, 7, 8]])


def lora(**options: Any) -> Any:
    usual = {"r": 4, "target_modules": ["q_proj", "v_proj"], "lora_dropout": 0.1, "task_type": "CAUSAL_LM"}
    return peft.LoraConfig(**usual | options)


def logits_of(teacher: HintTeacher) -> Any:
    hidden, head = teacher.read(IDS, torch.ones_like(IDS))
    return head.logits(hidden)


@torch.no_grad()
def disturb(model: Any) -> None:
    for value in model.parameters():
        if value.requires_grad:
            value.add_(0.05)


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "LoRA"])
def test_a_fixed_teacher_stays_the_model_the_run_started_from(make_trainer: Any, adapter: bool) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, peft_config=lora() if adapter else None)
    start = logits_of(trainer.teacher)
    if adapter:
        with trainer.model.disable_adapter(), torch.no_grad():
            assert torch.allclose(start, trainer.model.eval()(input_ids=IDS).logits, atol=1e-5)
    disturb(trainer.model)
    assert torch.equal(logits_of(trainer.teacher), start)
    assert not torch.allclose(logits_of(HintTeacher("live", trainer.bare_model)), start)


def test_the_reference_model_of_the_policy_term_is_the_fixed_teacher(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, beta=0.04)
    start = logits_of(trainer.teacher)
    assert trainer.teacher.other is trainer.ref_model
    assert not trainer.teacher.values
    disturb(trainer.model)
    assert torch.equal(logits_of(trainer.teacher), start)
    assert make_trainer(alpha_sdpo=0.5, beta=0.04, sync_ref_model=True).teacher.other is None


class Noted(TrainerCallback):
    """Notes the logits of a trainer's teacher after each step."""

    trainer: Any

    def __init__(self) -> None:
        self.logits: list[Any] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.logits.append(logits_of(self.trainer.teacher))


@pytest.mark.parametrize(
    "options", quick(1, [{}, {"peft_config": lora()}, {"beta": 0.04}]), ids=["all weights", "LoRA", "a reference model"]
)
def test_a_fixed_teacher_has_the_values_with_which_training_begins(make_trainer: Any, options: dict[str, Any]) -> None:
    # FSDP2 shards the weights when training begins and has none of its shards earlier; every other way does the same.
    noted = Noted()
    trainer = make_trainer(alpha_sdpo=0.5, beta_replay=0.5, max_steps=2, callbacks=[noted], **options)
    noted.trainer = trainer
    disturb(trainer.model)
    with torch.no_grad():
        start = trainer.model.eval()(input_ids=IDS).logits
    trainer.train()
    assert len(noted.logits) == 2
    for logits in noted.logits:
        assert torch.allclose(logits, start, atol=1e-4)
    assert not torch.allclose(logits_of(HintTeacher("live", trainer.bare_model)), start, atol=1e-4)


def test_the_head_of_a_fixed_teacher_is_its_own(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5)
    trainer.teacher.remember()
    before = head_of(trainer.bare_model).weight.detach().clone()
    disturb(trainer.model)
    _, head = trainer.teacher.read(IDS, torch.ones_like(IDS))
    assert torch.equal(head.weight, before)


def test_reading_leaves_the_student_training_and_without_a_graph(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, peft_config=lora())
    trainer.model.train()
    hidden, _ = trainer.teacher.read(IDS, torch.ones_like(IDS))
    assert not hidden.requires_grad
    assert all(module.training for module in trainer.model.modules())


@pytest.mark.parametrize("kwargs", [None, {"use_reentrant": False}, {"use_reentrant": True}], ids=str)
def test_without_dropout_a_gradient_is_exact_and_takes_no_random_numbers_even_if_layers_are_checkpointed(
    world: Any, kwargs: dict[str, bool] | None
) -> None:
    def gradients(dropout: float) -> list[Any]:
        torch.manual_seed(1)
        config = lora(lora_dropout=dropout, init_lora_weights=False)
        model = peft.get_peft_model(copy.deepcopy(world[0]), config).train()
        if kwargs is not None:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
            model.enable_input_require_grads()
        modes, state = [module.training for module in model.modules()], torch.get_rng_state()
        with without_dropout(model):
            loss = model(input_ids=IDS.repeat(4, 2)).logits.square().mean()
        loss.backward()
        assert torch.equal(torch.get_rng_state(), state)
        assert [module.training for module in model.modules()] == modes
        return [value.grad for value in model.parameters() if value.requires_grad]

    for ours, plain in zip(gradients(0.5), gradients(0.0), strict=True):
        assert torch.equal(ours, plain)
        assert ours.any()


@pytest.mark.parametrize(
    "options",
    quick(1, [{"lora": True}, {}, {"teacher": "live"}]),
    ids=["adapter", "fixed", "live"],
)
def test_a_resumed_run_equals_the_uninterrupted_one(make_trainer: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    options = dict(options)
    if options.pop("lora", False):
        options["peft_config"] = lora()
    options |= {"alpha_sdpo": 0.5, "beta_replay": 0.2, "max_steps": 3, "save_strategy": "steps", "save_steps": 2}
    whole = make_trainer(**options)
    expected = steps_of(whole)[2]
    shutil.rmtree(tmp_path / "run" / "checkpoint-3")
    again = make_trainer(**options)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-2"))
    found = [row for row in again.state.log_history if "grad_norm" in row][-1]
    assert [found[name] for name in ("loss", "grad_norm")] == pytest.approx(
        [expected[name] for name in ("loss", "grad_norm")], rel=1e-5
    )
    assert again.terms.state() == whole.terms.state()
    assert whole.terms.state()["replay"]["loader"]["position"] == 6
    assert again.teacher.values.keys() == whole.teacher.values.keys()
    for name, value in whole.teacher.values.items():
        assert torch.equal(again.teacher.values[name], value)


def test_a_folder_without_the_state_of_the_terms_is_refused(make_trainer: Any, tmp_path: Path) -> None:
    trainer = make_trainer(alpha_sdpo=0.5)
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        trainer._load_optimizer_and_scheduler(str(tmp_path))
