"""The added terms, by identities in short runs of the tiny world."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.terms import TermModel  # noqa: E402
from tests.train.runs import steps_of  # noqa: E402
from tests.train.test_trainer import batch_of, numbers  # noqa: E402


def test_the_entropy_of_replay_is_that_of_the_chosen_answers(make_trainer: Any) -> None:
    trainer = make_trainer(beta_replay=0.5)
    (term,), network = trainer.terms, trainer.model.eval()
    pairs = term.loader.take()
    _, notes = term.values(TermModel(network, trainer.teacher), term.tensors(pairs), None)
    expected = []
    for pair in pairs:
        logits = network(input_ids=torch.tensor([[*pair.prompt_ids, *pair.chosen_ids]])).logits[0]
        expected.append(torch.distributions.Categorical(logits=logits[-1 - len(pair.chosen_ids) : -1]).entropy())
    torch.testing.assert_close(notes["entropy"], torch.cat(expected), rtol=1e-3, atol=1e-5)


def test_updates_that_share_a_generation_share_its_terms(make_trainer: Any) -> None:
    """At rest, the mean over two half batches is the whole batch."""
    names = ("channel/hint/loss", "channel/policy/loss")
    options = {"alpha_sdpo": 0.5, "teacher": "live", "learning_rate": 0.0}
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
    trainer = make_trainer(alpha_sdpo=0.5, beta_replay=0.2)
    batch = batch_of(trainer)
    disturb(trainer.model)
    names = ("channel/hint/loss", "channel/replay/loss")
    found = []
    for half in (False, True):
        next(term for term in trainer.terms if term.loader).loader.position = 0
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
