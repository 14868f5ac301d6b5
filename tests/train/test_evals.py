"""pass@1 on held-out tasks: its interval, and a measured run beside one that is not measured."""

from __future__ import annotations

import json
import math
import random
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from huggingface_hub import parse_eval_result_entries  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as some  # noqa: E402

from composer_hub import exits  # noqa: E402
from composer_hub.environments.desk import tasks  # noqa: E402
from composer_hub.hub import (  # noqa: E402
    Card,
    FolderDestination,
    Table,
    load,
    publish,
)
from composer_hub.train.checkpoints import last_complete  # noqa: E402
from composer_hub.train.checks import check_words  # noqa: E402
from composer_hub.train.evals import measured, num_also_in, pass_rate, wilson  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.run.inputs import eval_rows, input_names, resolve  # noqa: E402
from composer_hub.train.run.main import run  # noqa: E402
from composer_hub.train.run.options import parse_options, settings_of  # noqa: E402
from tests.train.test_run_ends import ringing  # noqa: E402
from tests.train.tiny_run import arguments, weights  # noqa: E402

NAN = math.nan


def test_wilson_intervals_equal_published_values() -> None:
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_attempts_that_agree_within_a_task_count_as_one() -> None:
    alike = pass_rate([[1, 1, 1, 1], [0, 0, 0, 0]] * 8)
    assert (alike.low, alike.high) == pytest.approx(wilson(0.5, 16), abs=0.02)
    apart = pass_rate([[1, 0, 1, 0]] * 16)
    assert (apart.low, apart.high) == pytest.approx(wilson(0.5, 64))
    sure = pass_rate([[1, 1, 1, 1]] * 16)
    assert (sure.low, sure.high) == pytest.approx(wilson(1.0, 16))


def test_a_lost_attempt_has_not_passed_and_is_counted() -> None:
    rate = pass_rate([[1.0, NAN], [NAN, 0.5]])
    assert (rate.value, rate.num_tasks, rate.num_attempts, rate.num_lost) == (0.25, 2, 4, 2)
    assert pass_rate([[0.5, 0.4]], pass_reward=0.5).value == 0.5
    with pytest.raises(ValueError, match="no attempts"):
        pass_rate([])


@given(some.lists(some.lists(some.sampled_from([0.0, 1.0, NAN]), min_size=3, max_size=3), min_size=1, max_size=12))
def test_the_interval_contains_the_rate_and_is_within_0_and_1(rewards: list[list[float]]) -> None:
    rate = pass_rate(rewards)
    assert 0 <= rate.low <= rate.value + 1e-12
    assert rate.value <= rate.high + 1e-12 <= 1 + 1e-12
    assert type(rate).of(rate.logs()) == rate


def test_the_interval_covers_the_truth_about_as_often_as_it_claims() -> None:
    rng, num_held = random.Random(0), 0
    for _ in range(400):
        chances = [rng.betavariate(0.6, 1.4) for _ in range(40)]  # tasks differ much; their mean is 0.3
        rate = pass_rate([[float(rng.random() < chance) for _ in range(4)] for chance in chances])
        num_held += rate.low <= 0.3 <= rate.high
    assert 0.91 <= num_held / 400 <= 0.99


def test_held_out_tasks_that_are_also_training_tasks_are_counted() -> None:
    assert num_also_in([{"prompt": "a", "b": 1}, {"b": 2, "prompt": "a"}], [{"b": 1, "prompt": "a"}]) == 1


MEASURED = shlex.split(
    "--eval_tasks me/tasks@v1.0.0 --num_eval_tasks 5 --num_eval_samples 2 --eval_every 3 --repo me/measured "
    "--rollouts_repo me/measured-rollouts"
)


def published_tasks(root: Path) -> None:
    """Publish tasks in two splits, of which none is in both."""
    from datasets import Features, Value

    rows = [
        row | {"task_id": f"t{number}", "split": "train" if number < 8 else "test"}
        for number, row in enumerate(tasks(13))
    ]
    message = {"role": Value("string"), "content": Value("string")}
    features = Features({"prompt": [message], "a": Value("int64"), "b": Value("int64"), "task_id": Value("string")})
    table = Table("tasks", rows, features, "task_id", split=None)
    card = Card("pairs", "tasks", license="mit", holes={"policy": "", "report": ""})
    publish(FolderDestination(root / "hub"), "me/tasks", [table], card)


@pytest.fixture(scope="session")
def measured_run(shelf: Path, world: Any) -> Path:
    """A run like `runs/whole`, but measured on held-out tasks."""
    published_tasks(shelf)
    return run(parse_options(arguments(world, shelf, "measured", *MEASURED))).parent


def history(folder: Path) -> list[dict[str, Any]]:
    """Return the log of a run up to its last complete checkpoint."""
    return json.loads((last_complete(folder) / "trainer_state.json").read_text())["log_history"]


def test_measuring_changes_neither_weights_nor_metrics(shelf: Path, measured_run: Path) -> None:
    plain, seen = (weights(folder / "final") for folder in (shelf / "runs" / "whole", measured_run))
    assert all(torch.equal(plain[name], seen[name]) for name in plain)
    lines = [
        [{key: line[key] for key in line if key != "step_time"} for line in history(folder) if "grad_norm" in line]
        for folder in (shelf / "runs" / "whole", measured_run)
    ]
    assert lines[0] == lines[1]


def test_pass_at_1_is_measured_before_the_first_step_during_the_run_and_after_the_last(
    shelf: Path, measured_run: Path
) -> None:
    rates = measured(history(measured_run))
    assert [step for step, _ in rates] == [0, 3, 4]
    assert {(rate.num_tasks, rate.num_attempts, rate.num_lost) for _, rate in rates} == {(5, 10, 0)}
    assert measured(history(shelf / "runs" / "whole")) == []


@pytest.mark.usefixtures("no_plots")
def test_a_measurement_that_sigterm_has_prevented_is_made_after_the_resume(
    shelf: Path, measured_run: Path, world: Any
) -> None:
    folder = shelf / "runs" / "hurried"
    words = arguments(world, shelf, folder.name, *MEASURED, "--max_minutes", "9", "--repo", "me/hurried")
    # Readings: start, launch, record, steps 1 and 2, save, then in step 3 before its measurement begins.
    with pytest.raises(exits.Stopped, match="SIGTERM ended the run at step 3 of 4"):
        run(parse_options(words), clock=ringing(7))
    assert [step for step, _ in measured(history(folder))] == [0]
    final = run(parse_options([*words, "--resume", "true"]))
    assert measured(history(folder)) == measured(history(measured_run))
    expected, resumed = weights(measured_run / "final"), weights(final)
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


def test_sigterm_inside_a_reward_function_is_not_reported_as_its_failure(
    shelf: Path, measured_run: Path, world: Any
) -> None:
    words = arguments(world, shelf, "rung", *MEASURED, "--repo", "me/rung", "--rewards", "tests.train.unfit:rings")
    with pytest.raises(exits.Stopped, match="SIGTERM arrived outside training"):
        run(parse_options(words))
    assert json.loads((shelf / "runs/rung/composer_run.json").read_text())["launches"][0]["exit_code"] == exits.STOPPED


@pytest.mark.usefixtures("no_plots")
def test_the_same_weights_have_the_same_rate(shelf: Path, measured_run: Path, world: Any) -> None:
    words = arguments(world, shelf, "again", *MEASURED, "--model_name_or_path", str(measured_run / "final"))
    run(parse_options([*words, "--beta_replay", "0", "--max_steps", "1", "--repo", "me/again"]))
    first = dict(measured(history(shelf / "runs" / "again")))[0]
    assert first == dict(measured(history(measured_run)))[4]


def test_card_plot_and_eval_results_have_the_measured_rates(shelf: Path, measured_run: Path) -> None:
    folder = shelf / "hub" / "me" / "measured"
    revision = load(FolderDestination(shelf / "hub"), "me/tasks@v1.0.0").revision
    rates = measured(history(measured_run))
    card = (folder / "README.md").read_text()
    assert f"| pass@1 after 0 steps | {rates[0][1]} |" in card
    assert f"| pass@1 after 4 steps | {rates[-1][1]} |" in card
    assert f"`me/tasks` at `{revision}`, split test: 5 tasks, 2 attempts each" in card
    assert "are also training tasks" not in card
    assert (folder / "plots" / "pass_at_1-dark.png").stat().st_size > 1000
    assert 'alt="pass@1 on held-out tasks: pass@1 from' in card
    (entry,) = parse_eval_result_entries(yaml.safe_load((folder / ".eval_results" / "pass_at_1.yaml").read_text()))
    assert (entry.dataset_id, entry.task_id, entry.dataset_revision) == ("me/tasks", "test", revision)
    assert entry.value == pytest.approx(rates[-1][1].value)
    assert yaml.safe_load((folder / "train.yaml").read_text())["eval_tasks"] == f"me/tasks@{revision}"


def the_same_tasks(count: int, seed: int = 0) -> list[dict[str, Any]]:
    return tasks(count)


@pytest.mark.usefixtures("no_plots")
def test_rates_on_tasks_without_a_version_are_on_the_card_only(shelf: Path, world: Any) -> None:
    more = "--tasks tests.train.test_evals:the_same_tasks --eval_tasks tests.train.test_evals:the_same_tasks"
    more += " --num_eval_tasks 3 --max_steps 1 --repo me/function --rollouts_repo me/function-rollouts"
    final = run(parse_options(arguments(world, shelf, "function", *more.split())))
    card = (final / "README.md").read_text()
    assert "`tests.train.test_evals:the_same_tasks` (not a version that composer_hub published)" in card
    assert "**3 of these tasks are also training tasks**" in card
    assert not (final / ".eval_results").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--num_eval_samples 0", "num_eval_samples is 1 or more"),
        ("--env_timeout_s -1", "env_timeout_s is 0 or more"),
        ("--eval_strategy steps", "--eval_tasks"),
        ("--eval_tasks nothing.jsonl", "no file of tasks"),
    ],
)
def test_measurements_that_cannot_work_are_refused(more: str, message: str, shelf: Path, world: Any) -> None:
    with pytest.raises(exits.UsageError, match=message):
        check_words(arguments(world, shelf, "refused", *MEASURED, *more.split()))


def test_harbor_tasks_can_be_held_out(tmp_path: Path, world: Any) -> None:
    from tests.environments.test_environments import harbor_task

    for name in "abc":
        harbor_task(tmp_path / "suite", name, name)
    words = arguments(
        world,
        tmp_path,
        "harbor",
        "--eval_tasks",
        f"harbor:{tmp_path / 'suite'}",
        "--num_eval_tasks",
        "2",
        "--beta_replay",
        "0",
    )
    options = parse_options([*words, "--tasks", "composer_hub.environments.desk:tasks"])
    names = input_names(options.sources, options.evals, options.config, options.model)
    inputs = resolve(names, FolderDestination(tmp_path / "hub"), options.sources)
    assert [Path(row["task_dir"]).name for row in eval_rows(inputs, options.evals)] == ["a", "b"]
    assert settings_of(options.given, inputs.pins())["eval_tasks"] == "harbor:suite"


def test_an_unknown_split_is_refused_with_the_splits_there_are(shelf: Path, measured_run: Path, world: Any) -> None:
    with pytest.raises(TrainerError, match=r"no split 'dev', only .* Choose one with --eval_split"):
        run(parse_options(arguments(world, shelf, "dev", *MEASURED, "--eval_split", "dev")))
