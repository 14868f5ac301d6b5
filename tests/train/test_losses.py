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
    clip_tokens,
    divergence_from_hidden,
    divergence_from_logits,
    gap_gate,
    generalized_jsd_loss,
    mean_over,
    preference_loss,
    token_logps,
    token_stats,
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
@pytest.mark.parametrize("top_k", [None, 5], ids=["all tokens", "top 5 and a tail"])
@pytest.mark.parametrize("softcap", [None, 8.0], ids=["plain", "soft cap"])
def test_the_chunked_path_equals_the_formula_on_full_logits(
    beta: float, top_k: int | None, softcap: float | None
) -> None:
    student, teacher, weight, bias = rows()
    head = Head(weight, bias, scale=1.3, softcap=softcap)
    chunked = divergence_from_hidden(
        student, head, teacher, head, beta=beta, temperature=0.7, top_k=top_k, kernel=False
    )
    formula = divergence_from_logits(
        head.logits(student), head.logits(teacher), beta=beta, temperature=0.7, top_k=top_k
    )
    torch.testing.assert_close(chunked, formula)
    ours = torch.autograd.grad(chunked.sum(), [student, weight])
    theirs = torch.autograd.grad(formula.sum(), [student, weight])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("beta", BETAS)
def test_the_kernel_equals_the_formula_to_five_digits(beta: float) -> None:
    student, teacher, weight, bias = rows(dtype=torch.float32)
    head = Head(weight, bias)
    fused = divergence_from_hidden(student, head, teacher, head, beta=beta, kernel=True)
    formula = divergence_from_logits(head.logits(student).double(), head.logits(teacher).double(), beta=beta)
    torch.testing.assert_close(fused.double(), formula, rtol=1e-5, atol=1e-6)
    ours = torch.autograd.grad(fused.sum(), [student, weight])
    theirs = torch.autograd.grad(formula.sum(), [student, weight])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beta", BETAS)
def test_a_teacher_that_agrees_costs_nothing_and_pulls_nowhere(beta: float) -> None:
    student, _, weight, _ = rows()
    head = Head(weight)
    values = divergence_from_hidden(student, head, student.detach(), head, beta=beta, kernel=False)
    torch.testing.assert_close(values, torch.zeros_like(values))
    (grad,) = torch.autograd.grad(values.sum(), [student])
    torch.testing.assert_close(grad, torch.zeros_like(grad))


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "chunked"])
def test_no_row_gives_no_value_but_a_gradient_to_run_backward(kernel: bool) -> None:
    student, teacher, weight, _ = rows(0, dtype=torch.float32)
    head = Head(weight)
    loss = mean_over(divergence_from_hidden(student, head, teacher, head, kernel=kernel), 0)
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


@pytest.mark.parametrize("beta", BETAS)
def test_a_tail_bucket_bounds_the_divergence_from_below(beta: float) -> None:
    student, teacher, weight, _ = rows()
    logits = student @ weight.T, teacher @ weight.T
    exact = divergence_from_logits(*logits, beta=beta)
    coarse = divergence_from_logits(*logits, beta=beta, top_k=5)
    assert (coarse <= exact + 1e-9).all()
    everything = divergence_from_logits(*logits, beta=beta, top_k=50)
    torch.testing.assert_close(everything, exact)


def test_clipping_entries_of_a_kl_would_turn_it_around_and_clipping_the_sum_does_not() -> None:
    teacher, student = torch.tensor([[0.9, 0.05, 0.05]]), torch.tensor([[0.05, 0.9, 0.05]])
    entries = teacher * (teacher / student).log()
    assert entries.clamp(max=0.05).sum() < 0
    value = divergence_from_logits(student.log(), teacher.log(), beta=0.0)
    assert value.item() == pytest.approx(2.457, abs=1e-3)
    assert clip_tokens(value, 0.05).item() == pytest.approx(0.05)


def test_a_mean_over_the_global_count_does_not_depend_on_how_the_batch_was_cut() -> None:
    values = torch.rand(12, dtype=torch.float64)
    mask = torch.tensor([True, False] * 6)
    whole = mean_over(values, 6, mask=mask)
    for cut in (1, 2, 3, 4, 6):
        pieces = [mean_over(v, 6, mask=m) for v, m in zip(values.chunk(cut), mask.chunk(cut), strict=True)]
        torch.testing.assert_close(torch.stack(pieces).sum(), whole)


def test_a_gate_weighs_tokens_by_what_the_teacher_thinks_of_them() -> None:
    student, teacher = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.0, -9.0, -0.1])
    objects = gap_gate(student, teacher, kind="objects", sharpness=1.0)
    assert objects[0] == 0.5
    assert objects[1] > 0.99
    assert objects[2] < 0.5
    torch.testing.assert_close(gap_gate(student, teacher, kind="endorses", sharpness=1.0), 1.0 - objects)


def test_a_saturated_gate_is_all_or_nothing_and_has_no_gradient() -> None:
    student = torch.tensor([-1.0, -1.0], requires_grad=True)
    gate = gap_gate(student, torch.tensor([-2.0, -0.5]), kind="objects", sharpness=1e9)
    assert gate.tolist() == [1.0, 0.0]
    assert not gate.requires_grad


def test_token_stats_equal_log_softmax_and_its_entropy() -> None:
    hidden, _, weight, bias = rows()
    targets = torch.randint(0, 50, (70,))
    head = Head(weight, bias, softcap=5.0)
    log_p = (head.logits(hidden).float() / 0.7).log_softmax(-1)
    logps, entropies = token_stats(hidden, head, targets, temperature=0.7)
    torch.testing.assert_close(logps, log_p.gather(-1, targets[:, None])[:, 0])
    torch.testing.assert_close(entropies, torch.distributions.Categorical(logits=log_p).entropy())
    assert [found.shape for found in token_stats(hidden[:0], head, targets[:0])] == [(0,), (0,)]


@pytest.mark.parametrize("reduction", ["batchmean", "sum", "none"])
def test_the_loss_on_logits_counts_labelled_tokens_only(reduction: str) -> None:
    torch.manual_seed(1)
    student, teacher = torch.randn(2, 4, 9), torch.randn(2, 4, 9)
    labels = torch.tensor([[-100, 1, 2, -100], [3, -100, -100, -100]])
    token = divergence_from_logits(student, teacher)
    expected = {
        "sum": token[labels != -100].sum(),
        "batchmean": token[labels != -100].mean(),
        "none": token * (labels != -100),
    }
    torch.testing.assert_close(generalized_jsd_loss(student, teacher, labels, reduction=reduction), expected[reduction])


def test_the_loss_on_logits_of_a_batch_without_labels_is_zero() -> None:
    student = torch.randn(1, 3, 5, requires_grad=True)
    loss = generalized_jsd_loss(student, torch.randn(1, 3, 5), torch.full((1, 3), -100))
    assert loss.item() == 0.0
    loss.backward()
    assert not student.grad.any()


def test_an_unknown_reduction_is_named() -> None:
    with pytest.raises(ValueError, match="batchmean"):
        generalized_jsd_loss(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), reduction="mean")


def test_token_log_probs_equal_log_softmax() -> None:
    hidden, _, weight, bias = rows()
    targets = torch.randint(0, 50, (70,))
    head = Head(weight, bias, softcap=5.0)
    expected = head.logits(hidden).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    torch.testing.assert_close(token_logps(hidden, head, targets), expected)


def pairs(
    how: Preference, chosen: float = -3.0, rejected: float = -5.0, ref: tuple[float, float] = (-4.0, -4.0)
) -> Any:
    t = lambda value: torch.tensor([value], dtype=torch.float64, requires_grad=True)  # noqa: E731
    lengths = torch.tensor([4.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    return preference_loss(t(chosen), t(rejected), torch.tensor([ref[0]]), torch.tensor([ref[1]]), *lengths, how)


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


def test_the_length_normalised_margin_is_a_token() -> None:
    terms = pairs(Preference(beta=1.0, length_normalised=True))
    assert terms.margins.item() == pytest.approx(1.0 / 4 + 1.0 / 2)


def test_ipo_pulls_the_margin_a_token_to_its_target() -> None:
    terms = pairs(Preference(kind="ipo", beta=1.0))
    assert terms.losses.item() == pytest.approx((0.75 - 0.5) ** 2)


def test_the_robust_loss_is_unbiased_under_the_assumed_flips() -> None:
    flip = 0.2
    how = Preference(beta=1.0, label_smoothing=flip, robust=True)
    clean = pairs(Preference(beta=1.0)).losses
    right = pairs(how).losses
    swapped = pairs(how, chosen=-5.0, rejected=-3.0).losses
    torch.testing.assert_close((1 - flip) * right + flip * swapped, clean)


def test_label_smoothing_mixes_both_directions() -> None:
    plain, smooth = pairs(Preference(beta=1.0)), pairs(Preference(beta=1.0, label_smoothing=0.1))
    swapped = pairs(Preference(beta=1.0), chosen=-5.0, rejected=-3.0)
    torch.testing.assert_close(smooth.losses, 0.9 * plain.losses + 0.1 * swapped.losses)


def test_the_likelihood_term_adds_minus_log_p_of_chosen_a_token() -> None:
    plain, with_nll = pairs(Preference()), pairs(Preference(nll_weight=0.5))
    torch.testing.assert_close(with_nll.losses - plain.losses, torch.tensor([0.5 * 3.0 / 4], dtype=torch.float64))


def test_half_or_more_wrong_pairs_cannot_be_learned_from() -> None:
    with pytest.raises(ValueError, match=r"below 0\.5"):
        pairs(Preference(label_smoothing=0.5))
