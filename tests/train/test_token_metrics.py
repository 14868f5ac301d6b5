"""Numbers token by token: what must be zero is zero, they add up to the uplift of the site, and they are exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub.train.run.export import RolloutFile, RunFacts, read_rollouts  # noqa: E402
from composer_hub.train.run.trainer import RunTrainer  # noqa: E402
from composer_hub.train.teacher import HintTeacher  # noqa: E402
from composer_hub.train.token_metrics import sample, token_diagnostics  # noqa: E402
from composer_hub.train.uplift import site_uplifts  # noqa: E402
from tests.train.test_trainer import batch_of  # noqa: E402


def test_rollouts_with_sites_are_measured_first() -> None:
    site: Any = object()
    assert sample([[], [site], [], [site]], 3) == [1, 3, 0]
    assert sample([], 3) == []


def test_the_numbers_of_a_rollout_are_those_of_its_sites_and_none_elsewhere(make_trainer: Any) -> None:
    trainer = make_trainer(alpha_sdpo=0.5, measure_every=0)
    batch_of(trainer)
    live = HintTeacher("live", trainer.model)
    row = next(row for row, found in enumerate(trainer._sites) if found)
    rollout, (site,) = trainer._rollouts[row], trainer._sites[row]
    found = token_diagnostics(rollout, [site], 1.5, live, live)
    span = range(*site.span)
    (whole,) = site_uplifts([site], live)
    assert sum(found.uplift[place] for place in span) == pytest.approx(-whole.lowered, abs=1e-3)
    assert all(found.divergence[place] >= 0 for place in span)
    assert sum(found.divergence[place] for place in span) > 0.01
    for place in range(len(rollout.completion_ids)):
        assert (found.divergence[place] is None) == (found.uplift[place] is None) == (place not in span)
        assert found.advantage[place] == (1.5 if rollout.tool_mask[place] else None)


def test_sampled_rollouts_are_exported_with_their_numbers_and_all_rows_have_the_same_keys(
    make_trainer: Any, tmp_path: Path
) -> None:
    file = RolloutFile(tmp_path / "rollouts", RunFacts("run", "small", "0" * 40))
    batch_of(make_trainer(RunTrainer, alpha_sdpo=0.5, rollouts=file))
    traces = list(read_rollouts(tmp_path / "rollouts"))
    assert len(traces) == 8
    assert len({tuple(trace.provenance) for trace in traces}) == 1
    names = ("token_divergence", "token_uplift", "token_advantage", "token_texts")
    looked = [trace for trace in traces if trace.provenance["token_advantage"]]
    assert len(looked) == 2
    for trace in looked:
        known = trace.provenance
        assert {len(known[name]) for name in names} == {len(known["completion_ids"])}
        assert any(value is not None for value in known["token_divergence"])
    for trace in traces:
        assert trace in looked or all(trace.provenance[name] == [] for name in names)


def test_rollouts_of_two_batches_in_one_step_are_all_exported(make_trainer: Any, tmp_path: Path) -> None:
    file = RolloutFile(tmp_path / "rollouts", RunFacts("run", "small", "0" * 40))
    options = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 1}
    make_trainer(RunTrainer, rollouts=file, max_steps=2, **options).train()
    traces = list(read_rollouts(tmp_path / "rollouts"))
    assert [trace.provenance["policy_step"] for trace in traces] == [0] * 8 + [1] * 8


def test_a_missing_log_prob_is_null(make_trainer: Any, tmp_path: Path) -> None:
    file = RolloutFile(tmp_path / "rollouts", RunFacts("run", "small", "0" * 40))
    trainer = make_trainer(RunTrainer)
    batch = batch_of(trainer)
    scores = torch.full(batch["completion_ids"].shape, -0.5).index_fill(1, torch.tensor([0]), torch.nan)
    file.add(trainer, [{"prompt": "x"}] * 8, batch | {"sampling_per_token_logps": scores})
    for trace in read_rollouts(tmp_path / "rollouts"):
        assert trace.provenance["logps"][:2] == [None, -0.5]


def test_a_repeated_step_replaces_rows_of_an_earlier_file(make_trainer: Any, tmp_path: Path) -> None:
    trainer = make_trainer(RunTrainer)
    batch = batch_of(trainer)
    for advantage, steps in ((1.0, (0, 1)), (2.0, (1,))):  # the second launch goes on after step 0
        file = RolloutFile(tmp_path / "rollouts", RunFacts("run", "small", "0" * 40), rollouts_per_file=8)
        for trainer.state.global_step in steps:
            file.add(trainer, [{"prompt": "x"}] * 8, batch | {"advantages": torch.full((8,), advantage)})
    found = [(trace.provenance["policy_step"], trace.provenance["advantage"]) for trace in read_rollouts(file.folder)]
    assert found == [(0, 1.0)] * 8 + [(1, 2.0)] * 8
