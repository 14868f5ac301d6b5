"""pass@1 on held-out tasks: the numbers, and a run that is measured beside one that is not."""

from __future__ import annotations

import json
import math
import random
import shlex
import shutil
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
from composer_hub.train.evals import measured, num_also_in, pass_rate, wilson  # noqa: E402
from composer_hub.train.run.inputs import eval_rows, input_names, resolve  # noqa: E402
from composer_hub.train.run.main import run  # noqa: E402
from composer_hub.train.run.options import RunError, parse, settings_of  # noqa: E402
from tests.train.test_run import weights  # noqa: E402
from tests.train.test_run_ends import ringing  # noqa: E402

NAN = math.nan


def test_wilson_gives_the_numbers_of_the_books() -> None:
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)


def test_attempts_that_agree_within_their_task_count_as_one() -> None:
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
def test_the_interval_holds_the_rate_and_stays_between_0_and_1(rewards: list[list[float]]) -> None:
    rate = pass_rate(rewards)
    assert 0 <= rate.low <= rate.value + 1e-12
    assert rate.value <= rate.high + 1e-12 <= 1 + 1e-12
    assert type(rate).of(rate.logs()) == rate


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, num_held = random.Random(0), 0
    for _ in range(400):
        chances = [rng.betavariate(0.6, 1.4) for _ in range(40)]  # tasks differ much; their mean is 0.3
        rate = pass_rate([[float(rng.random() < chance) for _ in range(4)] for chance in chances])
        num_held += rate.low <= 0.3 <= rate.high
    assert 0.91 <= num_held / 400 <= 0.99


def test_tasks_that_are_trained_on_are_counted() -> None:
    assert num_also_in([{"prompt": "a", "b": 1}, {"b": 2, "prompt": "a"}], [{"b": 1, "prompt": "a"}]) == 1


TINY = shlex.split(
    "--environment desk --tasks me/tasks@v1.0.0 --max_steps 4 --per_device_train_batch_size 4 --num_generations 4 "
    "--steps_per_generation 4 --max_completion_length 40 --max_tool_calling_iterations 1 --learning_rate 1e-3 "
    "--alpha_sdpo 0.5 --teacher live --use_cpu true --bf16 false --gradient_checkpointing false --logging_steps 1 "
    "--save_steps 2 --report_to none --disable_tqdm true --seed 3 --license apache-2.0"
)
MEASURED = shlex.split(
    "--eval_tasks me/tasks@v1.0.0 --num_eval_tasks 5 --num_eval_samples 2 --eval_every 3 --repo me/model"
)


def arguments(world: Any, root: Path, name: str, *more: str) -> list[str]:
    place = ["--model_name_or_path", world[0].name_or_path, "--to", str(root / "hub")]
    return [*TINY, *place, "--output_dir", str(root / "runs" / name), *more]


def published_tasks(root: Path) -> None:
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


@pytest.fixture(scope="module")
def shelf(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder destination with tasks in two splits, a run that is measured and one that is not."""
    root = tmp_path_factory.mktemp("evals")
    published_tasks(root)
    run(parse(arguments(world, root, "measured", *MEASURED)))
    run(parse(arguments(world, root, "plain")))
    return root


def history(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "trainer_state.json").read_text())["log_history"]


def test_measuring_leaves_the_weights_as_they_would_have_been(shelf: Path) -> None:
    plain, seen = (weights(shelf / "runs" / name / "final") for name in ("plain", "measured"))
    assert all(torch.equal(plain[name], seen[name]) for name in plain)
    with_, without = (
        [line for line in history(last_complete(shelf / "runs" / name)) if "grad_norm" in line]
        for name in ("measured", "plain")
    )
    times = {"step_time"}
    assert [{key: line[key] for key in line.keys() - times} for line in with_] == [
        {key: line[key] for key in line.keys() - times} for line in without
    ]


def test_pass_at_1_is_measured_before_the_first_step_during_the_run_and_after_the_last(shelf: Path) -> None:
    found = measured(history(last_complete(shelf / "runs" / "measured")))
    assert [step for step, _ in found] == [0, 3, 4]
    assert {(rate.num_tasks, rate.num_attempts, rate.num_lost) for _, rate in found} == {(5, 10, 0)}
    assert measured(history(last_complete(shelf / "runs" / "plain"))) == []


def test_a_measured_run_that_was_killed_goes_on_to_the_same_weights_and_rates(shelf: Path, world: Any) -> None:
    whole, killed = shelf / "runs" / "measured", shelf / "runs" / "killed"
    shutil.copytree(whole, killed)
    shutil.rmtree(killed / "final")
    (killed / "checkpoint-4" / "COMPLETE.json").unlink()
    final = run(parse(arguments(world, shelf, "killed", *MEASURED, "--resume", "true")))
    expected, got = weights(whole / "final"), weights(final)
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert measured(history(killed / "checkpoint-4")) == measured(history(whole / "checkpoint-4"))


def test_a_run_that_is_being_ended_is_measured_when_it_goes_on(shelf: Path, world: Any) -> None:
    words = arguments(world, shelf, "ended", *MEASURED, "--eval_every", "1", "--repo", "me/ended")
    with pytest.raises(exits.Stopped):
        run(parse([*words, "--max_minutes", "0"]))
    assert [step for step, _ in measured(history(shelf / "runs" / "ended" / "checkpoint-1"))] == [0]
    run(parse([*words, "--resume", "true"]))
    found = measured(history(shelf / "runs" / "ended" / "checkpoint-4"))
    assert [step for step, _ in found] == [0, 1, 2, 3, 4]
    others = dict(measured(history(shelf / "runs" / "measured" / "checkpoint-4")))
    assert {step: rate for step, rate in found if step in others} == others


def test_sigterm_does_not_wait_for_a_measurement_which_is_made_when_the_run_goes_on(shelf: Path, world: Any) -> None:
    whole, folder = shelf / "runs" / "measured", shelf / "runs" / "hurried"
    words = arguments(world, shelf, folder.name, *MEASURED, "--max_minutes", "9")
    # Read at: begin, launch, record, steps 1 and 2, save; then in step 3, before its measurement begins.
    with pytest.raises(exits.Stopped, match="SIGTERM ended the run at step 3 of 4"):
        run(parse(words), clock=ringing(7))
    assert [step for step, _ in measured(history(folder / "checkpoint-3"))] == [0]
    final = run(parse([*words, "--resume", "true"]))
    assert measured(history(folder / "checkpoint-4")) == measured(history(whole / "checkpoint-4"))
    expected, got = weights(whole / "final"), weights(final)
    assert all(torch.equal(expected[name], got[name]) for name in expected)


def test_sigterm_inside_a_reward_function_is_not_taken_for_its_failure(shelf: Path, world: Any) -> None:
    words = arguments(world, shelf, "rung", *MEASURED, "--rewards", "tests.train.unfit:rings")
    with pytest.raises(exits.Stopped, match="nothing was being trained"):
        run(parse(words))
    assert json.loads((shelf / "runs/rung/composer_run.json").read_text())["launches"][0]["exit_code"] == exits.STOPPED


def test_the_same_weights_are_given_the_same_rate(shelf: Path, world: Any) -> None:
    words = arguments(world, shelf, "again", *MEASURED, "--model_name_or_path", str(shelf / "runs/measured/final"))
    run(parse([*words, "--max_steps", "1", "--repo", "me/again"]))
    first = dict(measured(history(last_complete(shelf / "runs" / "again"))))[0]
    assert first == dict(measured(history(last_complete(shelf / "runs" / "measured"))))[4]


def test_card_plot_and_eval_results_say_what_was_measured(shelf: Path) -> None:
    folder = shelf / "hub" / "me" / "model"
    revision = load(FolderDestination(shelf / "hub"), "me/tasks@v1.0.0").revision
    found = measured(history(last_complete(shelf / "runs" / "measured")))
    card = (folder / "README.md").read_text()
    assert f"| pass@1 after 0 steps | {found[0][1]} |" in card
    assert f"| pass@1 after 4 steps | {found[-1][1]} |" in card
    assert f"`me/tasks` at `{revision}`, split test: 5 tasks, 2 attempts each" in card
    assert "are also training tasks" not in card
    assert (folder / "plots" / "pass_at_1-dark.png").stat().st_size > 1000
    assert 'alt="pass@1 on held-out tasks: pass@1 from' in card
    (entry,) = parse_eval_result_entries(yaml.safe_load((folder / ".eval_results" / "pass_at_1.yaml").read_text()))
    assert (entry.dataset_id, entry.task_id, entry.dataset_revision) == ("me/tasks", "test", revision)
    assert entry.value == pytest.approx(found[-1][1].value)
    assert yaml.safe_load((folder / "train.yaml").read_text())["eval_tasks"] == f"me/tasks@{revision}"


def the_same_tasks(count: int, seed: int = 0) -> list[dict[str, Any]]:
    return tasks(count)


def test_tasks_that_are_no_dataset_stand_on_the_card_only(shelf: Path, world: Any) -> None:
    more = "--tasks tests.train.test_evals:the_same_tasks --eval_tasks tests.train.test_evals:the_same_tasks"
    final = run(parse(arguments(world, shelf, "function", *more.split(), "--num_eval_tasks", "3", "--max_steps", "1")))
    card = (final / "README.md").read_text()
    assert "`tests.train.test_evals:the_same_tasks` (not a version that composer_hub published)" in card
    assert "**3 of these tasks are also training tasks**" in card
    assert not (final / ".eval_results").exists()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("--num_eval_samples 0", "1 or more"),
        ("--env_timeout_s -1", "0 .no limit. or more"),
        ("--eval_strategy steps", "--eval_tasks"),
        ("--eval_tasks nothing.jsonl", "no file of tasks"),
    ],
)
def test_what_cannot_be_measured_is_refused(more: str, says: str, shelf: Path, world: Any) -> None:
    with pytest.raises((RunError, exits.UsageError), match=says):
        run(parse(arguments(world, shelf, "refused", *MEASURED, *more.split())))


def test_harbor_tasks_may_be_held_out(tmp_path: Path, world: Any) -> None:
    from tests.environments.test_environments import harbor_task

    for name in "abc":
        harbor_task(tmp_path / "suite", name, name)
    words = arguments(
        world, tmp_path, "harbor", "--eval_tasks", f"harbor:{tmp_path / 'suite'}", "--num_eval_tasks", "2"
    )
    options = parse([*words, "--tasks", "composer_hub.environments.desk:tasks"])
    names = input_names(options.sources, options.evals, options.config, options.model)
    inputs = resolve(names, FolderDestination(tmp_path / "hub"), options.sources)
    assert [Path(row["task_dir"]).name for row in eval_rows(inputs, options.evals)] == ["a", "b"]
    assert settings_of(options.given, inputs.pins())["eval_tasks"] == "harbor:suite"


def test_a_split_that_is_not_there_is_said(shelf: Path, world: Any) -> None:
    with pytest.raises(RunError, match=r"no split 'dev', only .* Choose one with --eval_split, or --eval_split all"):
        run(parse(arguments(world, shelf, "dev", *MEASURED, "--eval_split", "dev")))
