"""The channels for other trainers: the same numbers and gradients as the trainer's own losses, token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import exits  # noqa: E402
from composer_hub.integrations.channels import (  # noqa: E402
    ChannelWeights,
    add_channels,
    hint_tokens,
    pair_rows,
    replay_tokens,
    sampled_divergence,
    term_columns,
    term_tokens,
)
from composer_hub.train.losses import Preference, divergence_from_logits, mean_over, preference_loss  # noqa: E402
from composer_hub.train.terms import Term  # noqa: E402
from tests.train.runs import own_terms, written_attempts  # noqa: E402
from tests.train.test_trainer import batch_of  # noqa: E402


def logits(*shape: int, seed: int) -> torch.Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made.requires_grad_()


@pytest.mark.parametrize(("reverse", "beta"), [(False, 0.0), (True, 1.0)], ids=["forward", "reverse"])
def test_over_all_samples_the_gradient_is_that_of_the_exact_divergence(reverse: bool, beta: float) -> None:
    student, teacher = logits(3, 11, seed=0), logits(3, 11, seed=1).detach()
    log_s, log_t = student.log_softmax(-1), teacher.log_softmax(-1)
    # Every token of the vocabulary, weighed by how often the student samples it.
    (log_s.exp().detach() * sampled_divergence(log_s, log_t, reverse=reverse)).sum().backward()
    sampled, student.grad = student.grad, None
    divergence_from_logits(student, teacher, beta=beta).sum().backward()
    torch.testing.assert_close(sampled, student.grad, rtol=1e-9, atol=1e-12)


def test_over_all_samples_the_forward_value_is_the_exact_reverse_divergence() -> None:
    student, teacher = logits(3, 11, seed=0), logits(3, 11, seed=1)
    log_s, log_t = student.log_softmax(-1), teacher.log_softmax(-1)
    mean = (log_s.exp() * sampled_divergence(log_s, log_t)).sum(-1)
    torch.testing.assert_close(mean, divergence_from_logits(student, teacher, beta=1.0), rtol=1e-9, atol=1e-12)


def test_weights_of_zero_return_the_policy_loss_itself() -> None:
    policy, broken = logits(1, seed=0), torch.tensor(math.nan)
    assert add_channels(policy, ChannelWeights(), hint=broken, replay=broken) is policy


def test_each_channel_counts_by_its_own_weight() -> None:
    policy, hint, replay = (torch.tensor(value) for value in (1.0, 10.0, 100.0))
    assert add_channels(policy, ChannelWeights(0.5, 0.25), hint=hint, replay=replay) == 1.0 + 5.0 + 25.0
    assert add_channels(policy, ChannelWeights(0.5, 0.25), hint=hint) == 6.0


@pytest.mark.parametrize("weight", [-0.1, math.nan])
def test_a_negative_weight_or_nan_is_refused(weight: float) -> None:
    with pytest.raises(exits.UsageError, match="alpha is"):
        ChannelWeights(alpha=weight)


def test_hint_tokens_are_zero_outside_the_mask_whatever_the_teacher_has_there() -> None:
    student, mask = logits(2, 4, seed=0), torch.tensor([[0, 1, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    teacher = torch.where(mask, student.detach() - 1.0, torch.nan)
    found = hint_tokens(student, teacher, mask)
    assert found[mask].tolist() == pytest.approx([math.exp(-1)] * 2)
    assert not found[~mask].any()
    found.sum().backward()
    assert student.grad[mask].abs().min() > 0
    assert not student.grad[~mask].any()


def test_an_empty_hint_mask_gives_zero_and_a_gradient() -> None:
    student = logits(2, 4, seed=0)
    found = hint_tokens(student, torch.full((2, 4), torch.inf), torch.zeros(2, 4, dtype=torch.bool))
    found.sum().backward()
    assert found.sum() == 0
    assert not student.grad.any()


def test_a_very_sure_teacher_does_not_overflow() -> None:
    student = torch.tensor([-1000.0], requires_grad=True)
    hint_tokens(student, torch.zeros(1), torch.ones(1, dtype=torch.bool)).sum().backward()
    assert student.grad.isfinite().all()


@pytest.mark.parametrize(
    "how",
    [Preference(), Preference(nll_weight=0.3)],
    ids=["sigmoid", "with nll"],
)
def test_the_mean_over_sequences_is_the_mean_preference_loss(how: Preference) -> None:
    logps, mask = logits(5, 4, seed=0), torch.ones(5, 4, dtype=torch.bool)
    mask[1, 3] = mask[2, 2:] = False
    refs = torch.randn(5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = pair_rows(["a", "b", "a", None, "b"], [True, False, False, False, True])
    assert (found.chosen, found.rejected, found.num_alone) == ((0, 4), (2, 1), 0)
    matrix, _ = replay_tokens(logps, mask, refs, found, how)
    assert not matrix[3].any()
    by_sequence = (matrix.sum(-1) / mask.sum(-1))[[0, 1, 2, 4]].mean()
    by_sequence.backward()
    ours, logps.grad = logps.grad, None
    sums, lengths = (logps * mask).sum(-1), mask.sum(-1)
    terms = preference_loss(sums[[0, 4]], sums[[2, 1]], refs[[0, 4]], refs[[2, 1]], lengths[[0, 4]], how)
    expected = mean_over(terms.losses, 2)
    expected.backward()
    torch.testing.assert_close(by_sequence, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ours, logps.grad, rtol=1e-9, atol=1e-12)


def test_a_batch_without_pairs_gives_zero_and_a_gradient() -> None:
    logps = logits(2, 3, seed=0)
    found = pair_rows([None, "alone"], [False, True])
    matrix, terms = replay_tokens(logps, torch.ones(2, 3, dtype=torch.bool), torch.zeros(2), found, Preference())
    matrix.sum().backward()
    assert (matrix.sum().item(), len(terms.losses), found.num_alone) == (0.0, 0, 1)
    assert not logps.grad.any()


def test_copies_of_a_pair_are_coupled_in_their_order() -> None:
    found = pair_rows([7, 7, 7, 7, -1, ""], [True, True, False, False, True, True])
    assert (found.chosen, found.rejected, found.num_alone) == ((0, 1), (2, 3), 0)


def test_a_term_of_ones_own_is_the_same_number_on_the_log_probs_of_another_trainer(make_trainer: Any) -> None:
    (term,) = own_terms(None, names=("effort",))
    trainer = make_trainer(terms=[term])
    batch = batch_of(trainer)
    mask = batch["effort_mask"]
    columns = [term_columns([term], rollout)["effort_mask"] for rollout in trainer.last_rollouts]
    assert [sum(column) for column in columns] == mask.sum(1).tolist()
    trainer._compute_loss(trainer.model, batch)
    logps, *_ = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
        torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        mask.size(1),
    )
    values, notes = term_tokens(term, logps, mask)
    assert not values[~mask].any()
    expected = trainer._metrics["train"]["channel/effort/loss"][-1]
    assert (values.sum() / mask.sum()).item() == pytest.approx(expected, rel=1e-4)
    assert notes["probability"].shape == (mask.sum(),)


def test_a_term_that_needs_more_than_a_mask_is_refused_elsewhere(world: Any) -> None:
    class Weighed(Term):
        name = "weighed"

        def tensors(self, rollouts: Any) -> dict[str, Any]:
            mask = rollouts.mask(rollout.spans for rollout in rollouts)
            return {"weighed_mask": mask, "weighed_share": mask.float()}

    with pytest.raises(exits.UsageError, match="only weighed_mask travels"):
        term_columns([Weighed(0.1)], written_attempts(world[1], 1, 2)[0])
