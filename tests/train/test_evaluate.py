"""`composer-hub eval`: a model's pass@1 on its card and in `.eval_results`."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from click.testing import CliRunner
from huggingface_hub import HfApi

from composer_hub import exits
from composer_hub.cli.evaluate import evaluate
from composer_hub.environments import EnvironmentFailed, open_sandbox
from composer_hub.environments.desk import Desk
from composer_hub.hub import Card, FolderDestination, HubDestination, Parent, Published, Table, publish, publish_model
from composer_hub.records import Task, features_of, to_row
from composer_hub.tasks.dataset import bundle_features, bundle_row
from composer_hub.tasks.sets import Bundle
from composer_hub.train.evals import pass_rate
from composer_hub.train.run.card import ModelFacts, quick_start
from composer_hub.train.run.evaluate import Evaluation, save, with_evaluation
from composer_hub.train.run.evaluate import evaluate as measure
from composer_hub.train.run.options import parse_options
from composer_hub.train.tiny import small_folder, small_model
from tests.environments.toy import TOYS


def test_the_rate_of_a_model_is_printed_and_written_to_its_card(world: Any, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(world[0].name_or_path, model)
    words = [str(model), "--environment", "desk", "--tasks", "composer_hub.environments.desk:tasks"]
    small = ["--num-tasks", "4", "--attempts", "2", "--to", str(tmp_path), "--max_completion_length", "32"]
    done = CliRunner().invoke(evaluate, [*words, *small, "--format", "json"], catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert (found["num_tasks"], found["num_attempts"]) == (4, 8)
    assert found["low"] <= found["pass@1"] <= found["high"]
    card = (model / "README.md").read_text()
    assert f"| pass@1 | {found['pass@1']:.3f} [" in card
    assert "composer_hub.environments.desk:tasks" in card


def test_a_new_measurement_comes_first_and_the_same_one_replaces_its_line() -> None:
    first = Evaluation(pass_rate([[1.0], [0.0]]), "`a/b` at `c`, split test: 2 tasks", "")
    again = Evaluation(pass_rate([[1.0], [1.0]]), first.source, "")
    other = Evaluation(pass_rate([[0.0], [0.0]]), "`x/y` at `z`, split test: 2 tasks", "")
    card = "# model\n\n## Evaluations\n\nNo benchmark was run.\n\n## Use it\n"
    seen = with_evaluation(with_evaluation(with_evaluation(card, first), other), again)
    assert seen.count("| pass@1 |") == 2
    assert seen.index(str(again.rate)) < seen.index(str(other.rate)) < seen.index("## Use it")
    assert str(first.rate) not in seen
    assert with_evaluation("# model\n", first).endswith(f"| measured on | {first.source} |\n")


@pytest.mark.parametrize(
    ("kind", "loaded"),
    [
        ("model", 'AutoPeftModelForCausalLM.from_pretrained("me/model", revision="run-1")'),
        ("package", 'AutoModelForCausalLM.from_pretrained(small_folder("small"))'),
        ("folder", 'AutoModelForCausalLM.from_pretrained("small")'),
    ],
)
def test_the_quick_start_of_a_card_is_python_with_the_tools_and_a_task(kind: str, loaded: str) -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": 'Say "x"\n or \\n.'}}]
    prompt = [{"role": "user", "content": "3+4 ```"}]
    for given in (tools, tools * 60):
        facts = ModelFacts(
            "me/model", "1", "mit", Parent("base model", "small", "c0", kind), tools=given, is_adapter=True,
            example={"prompt": prompt},
        )  # fmt: skip
        code = quick_start(facts).strip("`").removeprefix("python\n")
        space: dict[str, Any] = {"json": json}
        exec(code[code.index("tools = ") : code.index("inputs = ")], space)
        assert space["tools"] == (given if len(given) == 1 else [])
        assert space["messages"] == prompt
        compile(code, "card", "exec")
        assert loaded in code
        assert "look" in code


@pytest.mark.parametrize(
    ("more", "source"),
    [
        ({}, ("runs/one/final", "")),
        ({"repo": "me/model"}, ("me/model", "run-1")),
        ({"is_finished": False, "num_steps": 4}, ("runs/one/checkpoint-4", "")),
        ({"is_finished": False, "num_steps": 4, "repo": "me/model"}, ("runs/one/checkpoint-4", "")),
        ({"is_finished": False, "num_steps": 4, "checkpoints_repo": "me/steps"}, ("me/steps", "run-1-step-4")),
    ],
)
def test_a_card_loads_what_can_be_loaded(more: dict[str, Any], source: tuple[str, str]) -> None:
    facts = ModelFacts("one", "1", "mit", Parent("base model", "small", "d0", "folder"), output="runs/one")
    assert dataclasses.replace(facts, **more).source == source


def test_a_published_model_is_evaluated_on_coding_tasks_that_have_a_test_split_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        open_sandbox()
    except exits.Refused as error:
        pytest.skip(str(error))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    where = FolderDestination(tmp_path)
    (toy, *_) = TOYS
    task = dataclasses.replace(toy.task, bundle_digest="b0")
    bundle = Bundle("b0", "toy", "1", "mit", False, (), (), toy.bundle(tmp_path).read_bytes())
    tables = [
        Table("tasks", [to_row(task) | {"split": "test"}], features_of(Task), "task_id", split=None),
        Table("bundles", [bundle_row(bundle)], bundle_features(), "digest"),
    ]
    publish(
        where,
        "me/tasks",
        tables,
        Card("tasks", "tasks", license="mit", holes=dict.fromkeys(("made", "yields", "licenses"), "")),
    )
    network, _ = small_model("small-coding")
    files = {path.name: path for path in Path(network.name_or_path).iterdir()}
    publish_model(where, "me/coder", files, tag="v1", title="A model")
    words = ["me/coder@v1", "--tasks", "me/tasks@v1.0.0", "--num-tasks", "1", "--attempts", "2", "--to", str(tmp_path)]
    limits = ["--max_completion_length", "48", "--max_tool_calling_iterations", "1", "--format", "json"]
    limits += ["--allow_unverified", "true"]
    done = CliRunner().invoke(evaluate, [*words, *limits], catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert (found["num_tasks"], found["num_attempts"], found["num_lost"]) == (1, 2, 0)
    (tag,) = (tag for tag in where.tags("me/coder", "model") if tag.startswith("eval-"))
    revision = where.resolve("me/coder", tag, "model")
    assert revision
    written = where.files("me/coder", revision, "model")
    (results,) = (path for path in written if path.startswith(".eval_results/"))
    assert "me/tasks" in where.fetch("me/coder", revision, results, "model").read_text()
    assert "| pass@1 |" in where.fetch("me/coder", revision, "README.md", "model").read_text()


def on_hub(server: Any, folder: Path) -> HubDestination:
    return HubDestination("local", HfApi(endpoint=server.endpoint, token=server.token), cache=folder / "cache")


class Lost(Desk):
    """An environment that cannot be reset."""

    def reset(self, **row: Any) -> None:
        raise ConnectionError("the server is down")


class Other(Desk):
    """Another environment for the same tasks."""


def measured(where: Any, folder: Path, *words: str, model: str) -> Published:
    tiny = "--use_cpu true --bf16 false --report_to none --num_eval_tasks 2 --num_eval_samples 1"
    limits = "--max_completion_length 32 --max_tool_calling_iterations 1 --environment desk"
    given = [*tiny.split(), *limits.split(), "--output_dir", str(folder), "--model_name_or_path", model]
    tasks = ["--eval_tasks", "composer_hub.environments.desk:held_out"]
    saved = save(*measure(parse_options([*given, *tasks, *words]), where), where)
    assert isinstance(saved, Published)
    return saved


def publish_small(where: Any, repo: str, name: str, tag: str) -> None:
    files = {path.name: path for path in small_folder(name).iterdir()}
    publish_model(where, repo, files, tag=tag, title="A model")


def test_every_measurement_of_a_version_is_on_the_newest_card(hub_server: Any, hub_repo: Any, tmp_path: Path) -> None:
    where, repo = on_hub(hub_server, tmp_path), hub_repo()
    publish_small(where, repo, "small-beginner", "v1")
    others = ["--environment", f"{__name__}:Other"]
    twice = ["--num_eval_samples", "2"]
    tags = {measured(where, tmp_path, *words, model=f"{repo}@v1").tag for words in ([], twice, others, others)}
    card = where.fetch(repo, where.resolve(repo, "main", "model"), "README.md", "model").read_text()
    assert (len(tags), card.count("| pass@1 |")) == (3, 3)


def test_a_card_gets_no_rate_of_other_weights(hub_server: Any, hub_repo: Any, tmp_path: Path) -> None:
    where, repo = on_hub(hub_server, tmp_path), hub_repo()
    publish_small(where, repo, "small-beginner", "v1")
    publish_small(where, repo, "small-coding", "v2")
    with pytest.raises(exits.Refused, match="other weights than v1"):
        measured(where, tmp_path, model=f"{repo}@v1")


def test_attempts_that_are_all_lost_measure_nothing(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match="the server is down"),
        pytest.raises(EnvironmentFailed, match="All 2 attempts"),
    ):
        measured(FolderDestination(tmp_path), tmp_path, "--environment", f"{__name__}:Lost", model="small-beginner")
