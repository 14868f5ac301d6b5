"""Losses are tested by identities: what must be zero is zero, what must be equal is equal."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.losses import (  # noqa: E402
    Head,
    Preference,
    divergence_from_hidden,
    divergence_from_logits,
    hint_loss,
    mean_over,
    preference_loss,
    token_logps,
)

BETAS = [0.0, 0.3, 0.5, 1.0]


def rows(count: int = 70, hidden: int = 12, vocab: int = 50, *, dtype: Any = torch.float64, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    student = torch.randn(count, hidden, dtype=dtype, requires_grad=True)
    teacher = torch.randn(count, hidden, dtype=dtype)
    weight = torch.randn(vocab, hidden, dtype=dtype, requires_grad=True)
    bias = torch.randn(vocab, dtype=dtype)
    return student, teacher, weight, bias


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("softcap", [None, 8.0], ids=["plain", "soft cap"])
def test_the_chunked_path_equals_the_formula_on_full_logits(beta: float, softcap: float | None) -> None:
    student, teacher, weight, bias = rows()
    head = Head(weight, bias, scale=1.3, softcap=softcap)
    chunked, _ = divergence_from_hidden(student, head, teacher, head, beta=beta, kernel=False)
    formula = divergence_from_logits(head.logits(student), head.logits(teacher), beta=beta)
    torch.testing.assert_close(chunked, formula)
    ours = torch.autograd.grad(chunked.sum(), [student, weight])
    theirs = torch.autograd.grad(formula.sum(), [student, weight])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("beta", BETAS)
def test_the_kernel_equals_the_formula_to_five_digits(beta: float) -> None:
    student, teacher, weight, bias = rows(dtype=torch.float32)
    head = Head(weight, bias)
    fused, _ = divergence_from_hidden(student, head, teacher, head, beta=beta, kernel=True)
    formula = divergence_from_logits(head.logits(student).double(), head.logits(teacher).double(), beta=beta)
    torch.testing.assert_close(fused.double(), formula, rtol=1e-5, atol=1e-6)
    ours = torch.autograd.grad(fused.sum(), [student, weight])
    theirs = torch.autograd.grad(formula.sum(), [student, weight])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [31, 32, 70])
def test_a_frozen_head_read_in_pieces_gives_the_numbers_of_the_formula(count: int) -> None:
    student, teacher, weight, bias = rows(count, dtype=torch.float32)
    head = Head(weight.detach(), bias)
    values, entropies = divergence_from_hidden(student, head, teacher, head, kernel=True)
    formula = divergence_from_logits(head.logits(student), head.logits(teacher))
    torch.testing.assert_close(values, formula, rtol=1e-5, atol=1e-6)
    assert entropies.shape == (count,)
    ours, theirs = (torch.autograd.grad(one.sum(), student)[0] for one in (values, formula))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beta", BETAS)
def test_a_teacher_that_agrees_costs_nothing_and_pulls_nowhere(beta: float) -> None:
    student, _, weight, _ = rows()
    head = Head(weight)
    values, _ = divergence_from_hidden(student, head, student.detach(), head, beta=beta, kernel=False)
    torch.testing.assert_close(values, torch.zeros_like(values))
    (grad,) = torch.autograd.grad(values.sum(), [student])
    torch.testing.assert_close(grad, torch.zeros_like(grad))


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "chunked"])
def test_no_row_gives_no_value_but_a_gradient_to_run_backward(kernel: bool) -> None:
    student, teacher, weight, _ = rows(0, dtype=torch.float32)
    head = Head(weight)
    loss = mean_over(divergence_from_hidden(student, head, teacher, head, kernel=kernel)[0], 0)
    assert loss.item() == 0.0
    loss.backward()
    assert student.grad is not None


def test_beta_names_the_direction_of_the_divergence() -> None:
    log = torch.log
    student, teacher = log(torch.tensor([[0.7, 0.2, 0.1]])), log(torch.tensor([[0.1, 0.3, 0.6]]))

    def kl(p: Any, q: Any) -> Any:
        return (p.exp() * (p - q)).sum(-1)

    torch.testing.assert_close(divergence_from_logits(student, teacher, beta=0.0), kl(teacher, student))
    torch.testing.assert_close(divergence_from_logits(student, teacher, beta=1.0), kl(student, teacher))
    middle = log((student.exp() + teacher.exp()) / 2)
    jsd = (kl(student, middle) + kl(teacher, middle)) / 2
    torch.testing.assert_close(divergence_from_logits(student, teacher, beta=0.5), jsd)
    assert jsd <= math.log(2)


def test_a_mean_over_the_global_count_does_not_depend_on_how_the_batch_was_cut() -> None:
    values = torch.rand(12, dtype=torch.float64)
    mask = torch.tensor([True, False] * 6)
    whole = mean_over(values, 6, mask=mask)
    for cut in (1, 2, 3, 4, 6):
        pieces = [mean_over(v, 6, mask=m) for v, m in zip(values.chunk(cut), mask.chunk(cut), strict=True)]
        torch.testing.assert_close(torch.stack(pieces).sum(), whole)


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "chunked"])
def test_token_log_probs_and_entropies_equal_log_softmax_on_both_paths(kernel: bool) -> None:
    hidden, _, weight, bias = rows(dtype=torch.float32)
    targets = torch.randint(0, 50, (70,))
    head = Head(weight, bias, softcap=5.0)
    log_p = head.logits(hidden).log_softmax(-1)
    expected = log_p.gather(-1, targets[:, None])[:, 0]
    logps, entropies = token_logps(hidden, head, targets, kernel=kernel)
    torch.testing.assert_close(logps, expected)
    torch.testing.assert_close(entropies, torch.distributions.Categorical(logits=log_p).entropy())
    assert not entropies.requires_grad
    found, wanted = (torch.autograd.grad(one.sum(), hidden)[0] for one in (logps, expected))
    torch.testing.assert_close(found, wanted)
    assert [one.shape for one in token_logps(hidden[:0], head, targets[:0])] == [(0,), (0,)]


def pairs(
    how: Preference, chosen: float = -3.0, rejected: float = -5.0, ref: tuple[float, float] = (-4.0, -4.0)
) -> Any:
    t = lambda value: torch.tensor([value], dtype=torch.float64, requires_grad=True)  # noqa: E731
    length = torch.tensor([4.0], dtype=torch.float64)
    return preference_loss(t(chosen), t(rejected), torch.tensor([ref[0]]), torch.tensor([ref[1]]), length, how)


def test_a_policy_equal_to_its_reference_pays_log_two() -> None:
    terms = pairs(Preference(), ref=(-3.0, -5.0))
    assert terms.losses.item() == pytest.approx(math.log(2))
    assert terms.margins.item() == 0.0
    assert not terms.correct.item()


def test_the_sigmoid_loss_is_minus_log_sigmoid_of_the_margin() -> None:
    terms = pairs(Preference(beta=0.5))
    assert terms.margins.item() == pytest.approx(0.5 * 2.0)
    assert terms.losses.item() == pytest.approx(math.log1p(math.exp(-1.0)))
    assert terms.chosen_drift.item() == pytest.approx(1.0)


def test_the_likelihood_term_adds_minus_log_p_of_chosen_per_token() -> None:
    plain, with_nll = pairs(Preference()), pairs(Preference(nll_weight=0.5))
    torch.testing.assert_close(with_nll.losses - plain.losses, torch.tensor([0.5 * 3.0 / 4], dtype=torch.float64))


def test_the_hint_loss_is_the_mean_divergence_of_the_tokens_that_count() -> None:
    torch.manual_seed(1)
    student, teacher = torch.randn(2, 4, 9, requires_grad=True), torch.randn(2, 4, 9)
    mask = torch.tensor([[False, True, True, False], [True, False, False, False]])
    tokens = divergence_from_logits(student, teacher)
    torch.testing.assert_close(hint_loss(student, teacher, mask), tokens[mask].mean())
    torch.testing.assert_close(hint_loss(student, teacher, mask, num_items=12), tokens[mask].sum() / 12)
    torch.testing.assert_close(hint_loss(student, teacher), tokens.mean())
    nothing = hint_loss(student, teacher, torch.zeros_like(mask))
    nothing.backward()
    assert nothing.item() == 0.0
    assert not student.grad.any()
