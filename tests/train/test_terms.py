"""Gate, weights and anchor of the added terms, by identities in short runs of the tiny world."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
peft = pytest.importorskip("peft")

from composer_hub.train.batch import turn_starts  # noqa: E402
from composer_hub.train.groups import success_shares, success_weights  # noqa: E402
from composer_hub.train.terms import replay_losses  # noqa: E402
from composer_hub.train.turns import turns  # noqa: E402
from tests.train.runs import steps_of  # noqa: E402
from tests.train.test_trainer import batch_of, numbers  # noqa: E402


def test_a_gate_that_is_half_open_everywhere_is_half_the_weight_to_the_last_bit(make_trainer: Any) -> None:
    half = make_trainer(alpha_sdpo=1.0, hint_gate="objects", hint_gate_sharpness=0.0)
    plain = make_trainer(alpha_sdpo=0.5)
    rows = steps_of(half)
    assert numbers(rows, "loss", "grad_norm") == numbers(steps_of(plain), "loss", "grad_norm")
    assert rows[0]["channel/hint/gate"] == 0.5
    for one, other in zip(half.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_two_gates_share_every_token_between_them(make_trainer: Any) -> None:
    found = {
        gate: steps_of(make_trainer(alpha_sdpo=0.5, max_steps=1, hint_gate=gate))[0]["channel/hint/loss"]
        for gate in ("none", "objects", "endorses")
    }
    assert found["objects"] + found["endorses"] == pytest.approx(found["none"], rel=1e-4)
    assert min(found.values()) > 0


def test_the_weight_of_a_rollout_is_that_of_its_group(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, hint_success_weight=True)
    batch = batch_of(trainer)
    expected = success_weights(success_shares(trainer._rewards, 4, least=1.0))
    assert torch.equal(batch["hint_weight"], expected)


def test_a_batch_whose_groups_all_fail_pulls_nowhere_when_success_weighs(make_trainer: Any) -> None:
    options = {"max_steps": 1, "success_reward": 99.0}
    weighed = steps_of(make_trainer(alpha_sdpo=0.5, hint_success_weight=True, **options))
    plain = steps_of(make_trainer(**options))
    assert weighed[0]["channel/hint/divergence"] > 0
    assert weighed[0]["channel/hint/loss"] == 0
    assert numbers(weighed, "loss", "grad_norm") == numbers(plain, "loss", "grad_norm")


def test_the_ratio_weighs_tokens_of_a_batch_that_is_used_again(make_trainer: Any) -> None:
    options = {"alpha_sdpo": 0.5, "num_iterations": 2, "max_steps": 2}
    plain, weighed, none = (
        numbers(steps_of(make_trainer(**options, hint_ratio_clip=clip)), "channel/hint/loss")
        for clip in (None, 2.0, 0.0)
    )
    assert weighed[0] == pytest.approx(plain[0], rel=1e-4)  # nothing has moved yet
    assert weighed[1] != pytest.approx(plain[1], rel=1e-4)
    assert none == [(0.0,), (0.0,)]


def test_the_entropy_of_replay_is_that_of_the_chosen_answers(make_trainer: Any) -> None:
    trainer = make_trainer(beta_replay=0.5)
    batch = trainer.pairs.next_batch()
    network = trainer.model.eval()
    _, notes = replay_losses(trainer.args, batch, network, through=network)
    logits = trainer.model(input_ids=batch.input_ids, attention_mask=batch.attention_mask).logits[:2, :-1]
    expected = torch.distributions.Categorical(logits=logits[batch.answer_mask[:2, 1:]]).entropy()
    torch.testing.assert_close(notes["channel/replay/entropy"], expected, rtol=1e-3, atol=1e-5)


def test_updates_that_share_a_generation_share_its_terms(make_trainer: Any) -> None:
    """At rest, the mean over two half batches is the whole batch."""
    names = ("channel/hint/loss", "channel/anchor/loss", "channel/policy/loss")
    options = {"alpha_sdpo": 0.5, "hint_anchor_kl": 0.1, "teacher": "live", "learning_rate": 0.0}
    (whole,) = numbers(steps_of(make_trainer(**options, max_steps=1)), *names)
    halves = numbers(
        steps_of(make_trainer(**options, max_steps=2, steps_per_generation=2, per_device_train_batch_size=4)), *names
    )
    mean = [sum(values) / 2 for values in zip(*halves, strict=True)]
    assert mean == pytest.approx(list(whole), rel=1e-3, abs=1e-6)


def test_a_second_pass_over_a_batch_reads_its_hints_again(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, teacher="live", num_iterations=2, max_steps=2, learning_rate=1e-2)
    first, second = steps_of(trainer)
    assert "channel/hint/tokens" in first
    assert "channel/hint/tokens" not in second  # nothing was generated
    assert 0 < second["channel/hint/divergence"] != first["channel/hint/divergence"]


def test_half_precision_gives_nearly_the_same_terms(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, beta_replay=0.2, hint_anchor_kl=0.1)
    batch = batch_of(trainer)
    disturb(trainer.model)
    names = ("channel/hint/loss", "channel/replay/loss", "channel/anchor/loss")
    found = []
    for half in (False, True):
        trainer.pairs.position = 0
        trainer._metrics["train"].clear()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = trainer._compute_loss(trainer.model, batch)
        found.append([trainer._metrics["train"][name][0] for name in names])
        loss.backward()
        assert all(value.grad is None or value.grad.isfinite().all() for value in trainer.model.parameters())
    assert found[1] == pytest.approx(found[0], rel=0.1)
    assert min(found[0]) > 0


@torch.no_grad()
def disturb(model: Any) -> None:
    torch.manual_seed(5)
    for value in model.parameters():
        value.add_(0.4 * value.std() * torch.randn_like(value) if value.dim() > 1 else 0.0)


def test_a_turn_starts_where_a_sampled_token_follows_none() -> None:
    sampled = torch.tensor([[1, 1, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 0, 0], [0] * 7]).bool()
    assert turn_starts(sampled).int().tolist() == [[1, 0, 0, 0, 1, 0, 0], [0, 1, 0, 1, 0, 0, 0], [0] * 7]


def test_the_anchor_holds_the_first_token_of_each_turn_without_a_site(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, hint_anchor_kl=0.1)
    batch = batch_of(trainer)
    for row, rollout in enumerate(trainer._rollouts):
        sites = {site.error.turn.number for site in trainer._sites[row]}
        expected = [turn.start for turn in turns(rollout) if turn.number not in sites]
        assert batch["anchor_mask"][row].nonzero()[:, 0].tolist() == expected
    assert any(trainer._sites)
    assert batch["num_anchor_items"] == batch["anchor_mask"].sum()


@pytest.mark.parametrize("adapter", [False, True], ids=["all weights", "LoRA"])
def test_the_anchor_is_zero_until_the_policy_moves_and_pulls_then(make_trainer: Any, adapter: bool) -> None:
    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM") if adapter else None
    options = {"max_steps": 3, "grad_share_every": 1, "peft_config": lora, "learning_rate": 0.1 if adapter else 0.01}
    held, free = (make_trainer(hint_anchor_kl=weight, **options) for weight in (10.0, 0.0))
    rows, others = steps_of(held), steps_of(free)
    assert numbers(rows[:1], "loss")[0] == pytest.approx(numbers(others[:1], "loss")[0], abs=1e-5)
    assert rows[0]["channel/anchor/kl"] == pytest.approx(0.0, abs=1e-6)
    assert rows[-1]["channel/anchor/kl"] > 1e-5
    assert rows[-1]["channel/anchor/grad_share"] > 0.0
    assert rows[-1]["grad_norm"] != others[-1]["grad_norm"]


def test_the_anchor_needs_neither_hints_nor_tools(make_trainer: Any) -> None:
    trainer = make_trainer(hint_anchor_kl=0.1, environment=None, rewards=length, max_steps=1)
    (row,) = steps_of(trainer)
    assert row["channel/anchor/kl"] == pytest.approx(0.0, abs=1e-6)
    assert trainer.known_good.turns == []


def length(completions: list[Any], **_: Any) -> list[float]:
    return [float(len(str(talk))) for talk in completions]


def test_cutting_a_batch_does_not_change_the_anchor(make_trainer: Any) -> None:
    def last(count: int, size: int) -> float:
        trainer = make_trainer(
            hint_anchor_kl=5.0, max_steps=2, gradient_accumulation_steps=count, per_device_train_batch_size=size
        )
        return steps_of(trainer)[1]["channel/anchor/loss"]

    assert last(4, 2) == pytest.approx(last(1, 8), rel=1e-3)
