"""Training on coding tasks: policy, hint and replay channel at once, with real tools in a real sandbox."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from datasets import Dataset

from composer_hub import exits
from composer_hub.environments import count_episodes, guarded, oracle, trees
from composer_hub.environments.coding import CodingEnvironment, CodingOptions, Scorer, coding_factory
from composer_hub.environments.sandbox import open_sandbox
from composer_hub.environments.shelf import TaskShelf
from composer_hub.records import ToolCall
from composer_hub.train.checkpoints import last_complete
from composer_hub.train.metrics import METRICS
from composer_hub.train.retries import Retry, played
from composer_hub.train.run.main import main
from composer_hub.train.run.trainer import RunTrainer
from composer_hub.train.tiny import small_model
from composer_hub.train.trainer import ComposerTrainer
from tests.environments.conftest import plain_venv as plain_venv
from tests.environments.hack_lab import hacked
from tests.environments.toy import TOYS
from tests.train import runs
from tests.train.runs import ANSWER, config_of, pairs_of, steps_of


class ScriptedCoder(runs.Scripted, ComposerTrainer):
    """Calls a tool that does not exist in every second rollout, and runs the tests in the others."""

    def _written(self, text: str, place: int) -> str:
        name = "run_tests" if place % 2 else "test"
        call = '<think>\n\n</think>\n\n<tool_call>\n{"name": "%s", "arguments": {}}\n</tool_call><|im_end|>'
        return ANSWER % 0 if "<tool_response>" in text else call % name


def test_all_three_channels_learn_from_stub_tasks(tmp_path: Path, plain_venv: Path) -> None:
    try:
        open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))
    toys = {toy.task.task_id: dataclasses.replace(toy.task, bundle_digest=toy.task.task_id) for toy in TOYS}
    shelf = TaskShelf(toys, {toy.task.task_id: toy.bundle(tmp_path) for toy in TOYS}, dict.fromkeys(toys, plain_venv))
    rows = shelf.rows("all")
    model, tokenizer = small_model("small-coding")
    made: list[Any] = []
    make = coding_factory(shelf)

    def noted() -> Any:
        made.append(make())
        return made[-1]

    trainer = ScriptedCoder(
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


class Talker(runs.Scripted, RunTrainer):
    """Runs a command that prints more than fits into a rollout."""

    def _written(self, text: str, place: int) -> str:
        return '<tool_call>\n{"name": "run", "arguments": {"command": "seq 999"}}\n</tool_call><|im_end|>'


def test_a_dropped_turn_of_a_retry_takes_back_none_of_the_calls_before_it(tmp_path: Path, plain_venv: Path) -> None:
    try:
        open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))
    toy = TOYS[0]
    task = dataclasses.replace(toy.task, bundle_digest=toy.task.task_id)
    shelf = TaskShelf({task.task_id: task}, {task.task_id: toy.bundle(tmp_path)}, {task.task_id: plain_venv})
    rows = shelf.rows("all") * 2
    model, tokenizer = small_model("small-coding")
    trainer: Any = Talker(
        model=model,
        args=config_of(tmp_path, per_device_train_batch_size=2, num_generations=2, alpha_sdpo=0.5,
                       max_completion_length=64, max_tool_calling_iterations=2),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        reward_funcs=[],
        environment_factory=guarded(coding_factory(shelf), "coding", timeout_s=120),
    )  # fmt: skip
    prompt = next(list(trainer.last_rollouts[0].prompt_ids) for _ in played(trainer, rows[:1], 2))
    (edit,) = task.solution
    wrote = (ToolCall("write_file", {"path": edit.path, "text": edit.text}), f"Wrote {edit.path}.")
    for _ in played(trainer, rows[:1], 2, [Retry([wrote], prompt, prompt)]):
        assert trainer.retries_reached == [True, True]
        assert [rollout.num_dropped_calls for rollout in trainer.last_rollouts] == [1, 1]
        assert trainer.rewards_by_function.tolist() == [[1.0], [1.0]]


class Scripted(CodingEnvironment):
    """An episode whose policy is a script: half of the first four episodes solve the task, and then all hack it."""

    toy, number = TOYS[2], itertools.count()

    def reset(self, task_id: str = "", **row: Any) -> str | None:
        super().reset(task_id, **row)
        number = next(self.number)
        tree = self.toy.solution if number < 2 else {} if number < 4 else hacked(self.toy, "table of visible answers")
        for path, data in tree.items():
            self.write_file(path, data.decode())
        return None


SCRIPTED: list[Callable[[], Scripted]] = []


def scripted() -> Scripted:
    return SCRIPTED[0]()


def test_a_policy_that_learns_to_please_the_visible_tests_stops_its_run(
    tmp_path: Path, plain_venv: Path, world: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        sandbox = open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))
    tmp_path.chmod(0o755)
    toy, task = Scripted.toy, Scripted.toy.task
    gold = tmp_path / "gold"
    trees.write_files(gold, toy.files)
    calls = [{"target": f"wordtools.words:{name}", "args": args, "kwargs": {"d": []}} for name, args in toy.calls]
    hidden = {"calls": calls, "answers": oracle.replay(calls, gold, task.python_path, sandbox, plain_venv)}
    digest = task.bundle_digest
    shelf = TaskShelf(
        {task.task_id: task}, {digest: toy.bundle(tmp_path)}, {digest: plain_venv}, {task.task_id: hidden}
    )
    scorer = Scorer(shelf, open_sandbox, 60.0)
    SCRIPTED[:] = [lambda: Scripted(shelf, scorer, CodingOptions())]
    rows = tmp_path / "tasks.jsonl"
    rows.write_text(json.dumps({"prompt": [{"role": "user", "content": "Repair it."}], "task_id": task.task_id}))
    words = (
        "--environment tests.train.test_coding:scripted --max_steps 8 --per_device_train_batch_size 4 "
        "--num_generations 4 --max_completion_length 8 --max_tool_calling_iterations 1 --use_cpu true --bf16 false "
        "--gradient_checkpointing false --logging_steps 1 --report_to none --disable_tqdm true"
    )
    place = ["--tasks", str(rows), "--output_dir", str(tmp_path / "run"), "--to", str(tmp_path / "hub")]
    code = main([*words.split(), "--model_name_or_path", str(world[0].name_or_path), *place])
    assert code == exits.Refused.exit_code
    assert "rollout/visible_gap is 1" in capsys.readouterr().err
    checkpoint = last_complete(tmp_path / "run")
    assert checkpoint is not None
    logs = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    steps = [line for line in logs if "rollout/visible_gap" in line]
    assert len(steps) == 4  # the band allows for two logs outside it
    hidden_rewards = [line["reward"] for line in steps]
    visible_rewards = [line["reward"] + line["rollout/visible_gap"] for line in steps]
    assert hidden_rewards == [0.5, 0.0, 0.0, 0.0]
    assert visible_rewards == [0.5, 1.0, 1.0, 1.0]
    assert steps[-1]["rollout/hack_share"] == 1.0
    assert {name for name in steps[0] if name.startswith("rollout/")} <= METRICS.keys()
