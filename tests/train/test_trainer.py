"""The trainer by identities: with both weights zero it is GRPO; how a batch is cut does not change a step."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from trl import GRPOTrainer  # noqa: E402

from composer_hub.train.trainer import ComposerTrainer, TrainerError  # noqa: E402
from tests.train.runs import steps_of  # noqa: E402

SHAPES = {"1 x 8": (1, 8), "2 x 4": (2, 4), "4 x 2": (4, 2)}


def numbers(rows: list[dict[str, float]], *names: str) -> list[tuple[float, ...]]:
    return [tuple(float(row[name]) for name in names) for row in rows]


def test_with_both_weights_zero_it_is_grpo_to_the_last_bit(make_trainer: Any) -> None:
    plain, ours = make_trainer(GRPOTrainer, max_steps=3), make_trainer(max_steps=3)
    names = ("loss", "grad_norm", "reward")
    assert numbers(steps_of(plain), *names) == numbers(steps_of(ours), *names)
    for one, other in zip(plain.model.parameters(), ours.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "channel",
    [
        {"alpha_sdpo": 0.5},
        {"alpha_sdpo": 0.5, "max_hint_sites": 3, "hint_top_k": 8},
        {"beta_replay": 0.5},
    ],
    ids=["hint", "hint at several sites", "replay"],
)
def test_cutting_a_batch_into_more_pieces_does_not_change_a_step(make_trainer: Any, channel: dict[str, Any]) -> None:
    found = []
    for pieces, size in SHAPES.values():
        trainer = make_trainer(
            **channel, max_steps=1, gradient_accumulation_steps=pieces, per_device_train_batch_size=size, pair_batch=8 // pieces
        )
        found.append(numbers(steps_of(trainer), "loss", "grad_norm")[0])
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)
