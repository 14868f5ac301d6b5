"""The metrics of a run equal the list of the reference, and measuring changes nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.hinting import REASONS  # noqa: E402
from composer_hub.train.metrics import METRICS, gradient_norms, probed_parameter, rollout_means  # noqa: E402
from tests.quick import quick  # noqa: E402
from tests.train.runs import steps_of  # noqa: E402
from tests.train.test_rollouts import RIGHT, WRONG, acted, call, rollout  # noqa: E402
from tests.train.test_trainer import numbers  # noqa: E402

OURS = ("channel/", "rollout/")
ALL_ON: dict[str, Any] = {
    "alpha_sdpo": 0.5,
    "beta_replay": 0.2,
    "measure_every": 1,
}


@pytest.fixture(scope="module")
def whole_run(world: Any, tmp_path_factory: Any) -> Any:
    """Return a trainer with everything on after two steps, cut into two pieces each."""
    from tests.train.runs import trainer_of

    trainer = trainer_of(
        world, tmp_path_factory.mktemp("whole"), gradient_accumulation_steps=2, per_device_train_batch_size=4, **ALL_ON
    )
    trainer.rows = steps_of(trainer)
    return trainer


def general(name: str, terms: list[str]) -> str:
    """Return a metric's name as the page writes it."""
    name = re.sub(r"^(channel/hint/left_out/).+", r"\1<reason>", name)
    name = re.sub(rf"^channel/(?:{'|'.join(terms)})/(loss|weight|grad_share)$", r"channel/<term>/\1", name)
    return re.sub(r"^(channel/hint/(?:writer|uplift)/).+", r"\1<writer>", name)


def test_the_reference_has_every_metric_that_a_run_logs_and_no_other(whole_run: Any) -> None:
    terms = [term.name for term in whole_run.terms]
    logged = {general(name, terms) for row in whole_run.rows for name in row if name.startswith(OURS)}
    elsewhere = {"rollout/env_timeouts", "rollout/env_lost", "outer/bytes", "outer/spread"}
    elsewhere |= {"rollout/oracle_share", "rollout/visible_gap", "rollout/hack_share"}
    assert logged | elsewhere == METRICS.keys()
    assert all(f"`{reason}`" in METRICS["channel/hint/left_out/<reason>"] for reason in REASONS)


def test_the_terms_times_their_weights_add_up_to_the_loss(whole_run: Any) -> None:
    for row in whole_run.rows:
        parts = row["channel/policy/loss"] + sum(
            row[f"channel/{name}/weight"] * row[f"channel/{name}/loss"] for name in ("hint", "replay")
        )
        assert parts == pytest.approx(row["loss"], abs=2e-4)


def test_the_shares_of_the_gradient_add_up_to_one(whole_run: Any) -> None:
    for row in whole_run.rows:
        shares = [row[f"channel/{name}/grad_share"] for name in ("policy", "hint", "replay")]
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) >= 0.0
    assert whole_run.rows[0]["channel/replay/grad_share"] > 0.1


def test_the_mean_uplift_is_that_of_the_writers(whole_run: Any) -> None:
    row = whole_run.rows[0]
    by_writer = [value for name, value in row.items() if name.startswith("channel/hint/uplift/")]
    assert min(by_writer) <= row["channel/hint/uplift"] <= max(by_writer)


def test_an_evaluation_has_the_terms_but_trains_and_judges_nothing(make_trainer: Any) -> None:
    from datasets import Dataset

    from composer_hub.environments.desk import tasks

    trainer = make_trainer(**ALL_ON)
    trainer.create_optimizer_and_scheduler(num_training_steps=1)
    found = trainer.evaluate(Dataset.from_list(tasks(2)))
    for name in ("policy/loss", "hint/loss", "hint/divergence", "hint/uplift"):
        assert f"eval_channel/{name}" in found
    assert "eval_channel/replay/loss" not in found  # no pair is used up
    assert trainer.terms.state()["replay"]["loader"]["position"] == 0


@pytest.mark.parametrize(
    "more", quick(1, [{}, {"gradient_checkpointing": True}]), ids=["plain", "gradient checkpointing"]
)
def test_looking_does_not_change_a_bit_of_the_weights(make_trainer: Any, more: dict[str, Any]) -> None:
    channels = {"alpha_sdpo": 0.5, "beta_replay": 0.2, "max_steps": 2}
    runs = [make_trainer(**channels, measure_every=every, **more) for every in (0, 1)]
    found = [numbers(steps_of(run), "loss", "grad_norm") for run in runs]
    assert found[0] == found[1]
    assert "channel/hint/grad_share" in runs[1].state.log_history[0]
    for one, other in zip(*(run.model.parameters() for run in runs), strict=True):
        assert torch.equal(one, other)


def test_errors_are_counted_per_rollout() -> None:
    malformed = acted(said="<tool_call> no")
    wrong, cut = rollout(*WRONG, *RIGHT, malformed), rollout(acted(said="<tool_call> maybe"), cut_off=True)
    found = rollout_means([wrong, cut, rollout(acted(call("add")))])
    assert found == {
        "rollout/errors": [2.0, 0.0, 1.0],
        "rollout/malformed_calls": [1.0, 0.0, 0.0],
        "rollout/dropped_results": [0.0, 0.0, 1.0],
        "rollout/cut_off": [0.0, 1.0, 0.0],
    }
    assert not any(rollout_means([]).values())


def test_the_norms_are_those_of_gradients_taken_one_by_one(make_trainer: Any) -> None:
    trainer = make_trainer()
    at = probed_parameter(trainer.model)
    assert at is trainer.model.model.layers[-1].mlp.down_proj.weight
    terms = {"twice": 2 * at.sum(), "square": (at**2).sum() / 2, "other": trainer.model.model.norm.weight.sum()}
    norms = gradient_norms(terms | {"nothing": torch.zeros(())}, at)
    assert norms == pytest.approx(
        {"twice": 2 * at.numel() ** 0.5, "square": at.norm().item(), "other": 0.0, "nothing": 0.0}
    )
    assert at.grad is None
