"""Training on coding tasks: policy, hint and replay channel at once, with real tools in a real sandbox."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from datasets import Dataset

from composer_hub import exits
from composer_hub.environments import count_episodes, guarded
from composer_hub.environments.coding import coding_factory
from composer_hub.environments.sandbox import open_sandbox
from composer_hub.environments.shelf import TaskShelf
from composer_hub.train.tiny import small_model
from composer_hub.train.trainer import ComposerTrainer
from tests.environments.conftest import plain_venv as plain_venv
from tests.environments.toy import TOYS
from tests.plugins.training import cache_folder
from tests.train.runs import config_of, pairs_of, steps_of


def test_all_three_channels_learn_from_stub_tasks(tmp_path: Path, plain_venv: Path) -> None:
    try:
        open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))
    toys = {toy.task.task_id: dataclasses.replace(toy.task, bundle_digest=toy.task.task_id) for toy in TOYS}
    shelf = TaskShelf(toys, {toy.task.task_id: toy.bundle(tmp_path) for toy in TOYS}, dict.fromkeys(toys, plain_venv))
    rows = shelf.rows("all")
    model, tokenizer = small_model(cache_folder(), name="small-coding")
    made: list[Any] = []
    make = coding_factory(shelf)

    def noted() -> Any:
        made.append(make())
        return made[-1]

    trainer = ComposerTrainer(
        model=model,
        args=config_of(tmp_path, max_steps=1, per_device_train_batch_size=4, num_generations=2, alpha_sdpo=0.5,
                       beta_replay=0.5, max_completion_length=64, max_tool_calling_iterations=1),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        reward_funcs=[],
        environment_factory=guarded(noted, "coding", timeout_s=120),
        pairs=pairs_of(tokenizer),
    )  # fmt: skip
    (step,) = steps_of(trainer)
    assert step["channel/hint/sites_per_rollout"] > 0  # the tool `test` does not exist
    assert step["channel/hint/loss"] > 0
    assert step["channel/replay/loss"] > 0
    assert step["tools/call_frequency"] > 0
    assert step["rewards/CodingEnvironment/mean"] == 0.0
    counts = count_episodes(trainer.environments)
    assert counts is not None
    assert counts.num_lost == 0
    assert made
