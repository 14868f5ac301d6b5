"""Environments by name, and real runs whose environment hangs, raises or returns NaN."""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from composer_hub import exits  # noqa: E402
from composer_hub.environments import (  # noqa: E402
    EnvironmentFailed,
    RewardError,
    WorldOptions,
    check_environment,
    guarded,
    harbor,
    is_lost,
    open_world,
    release,
)
from composer_hub.environments.desk import Desk, tasks  # noqa: E402
from composer_hub.environments.rewards import checked_reward, one_by_one  # noqa: E402
from composer_hub.hub import FolderDestination  # noqa: E402
from composer_hub.train.checkpoints import last_complete  # noqa: E402
from composer_hub.train.failure import TrainerError  # noqa: E402
from composer_hub.train.run.export import read_rollouts  # noqa: E402
from composer_hub.train.run.main import run  # noqa: E402
from composer_hub.train.run.options import parse_options, settings_of  # noqa: E402

# ------------------------------------------------------------------- environments and rewards that runs below name


class Troubled(Desk):
    """A desk whose failures depend on the task."""

    _notes: tuple[str, ...] = ()  # a user's own names, which are no hooks of the product
    _facts = _keep = "mine"

    def reset(self, a: int = 0, b: int = 0, trouble: str = "", **_: Any) -> str | None:
        self.trouble = trouble
        super().reset(a, b)
        if trouble == "reset":
            raise OSError("no room left")
        return " =" if trouble == "speaks" else None

    def add(self, a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: First.
            b: Second.
        """
        if self.trouble == "hangs":
            time.sleep(60)
        return super().add(a, b)

    def get_reward(self) -> float:
        return float("nan") if self.trouble == "nan" else super().get_reward()


class AsyncDesk(Desk):
    """A desk whose tool and reward are coroutines."""

    async def add(self, a: int, b: int) -> str:  # type: ignore[override]
        """Add two numbers.

        Args:
            a: First.
            b: Second.
        """
        await asyncio.sleep(60 if self.wanted[0] == 3 else 0.001)
        return super().add(a, b)

    async def get_reward(self) -> float:  # type: ignore[override]
        return super().get_reward()


async def length_reward(completions: list[Any], **_: Any) -> list[float | None]:
    await asyncio.sleep(0)
    return [None if number == 0 else float(len(talk)) for number, talk in enumerate(completions)]


async def late_nan(completions: list[Any], **_: Any) -> list[float]:
    return [float("nan") for _ in completions]


async def late_error(**_: Any) -> list[float]:
    raise ZeroDivisionError("division by zero")


def one_number(**_: Any) -> Any:
    return 0.5


def all_reset(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    return [row | {"trouble": "reset"} for row in tasks(count, seed=seed)]


def some_trouble(count: int, *, seed: int = 0) -> list[dict[str, Any]]:
    kinds = ("hangs", "reset", "nan", "speaks")
    return [row | {"trouble": kinds[number % 4]} for number, row in enumerate(tasks(count, seed=seed))]


HERE = "tests.environments.test_environments"
WORDS = (
    "--num_tasks 4 --max_steps 2 --per_device_train_batch_size 16 --num_generations 4 --max_completion_length 200 "
    "--max_tool_calling_iterations 2 --alpha_sdpo 0.5 --teacher live --use_cpu true --bf16 false --report_to none "
    "--gradient_checkpointing false --logging_steps 1 --disable_tqdm true --seed 3 --env_timeout_s 0.5"
)


def words(world: Any, folder: Path, *more: str) -> list[str]:
    place = ["--model_name_or_path", world[0].name_or_path, "--to", str(folder), "--output_dir", str(folder / "run")]
    return [*shlex.split(WORDS), *place, *more]


def steps_of(folder: Path) -> list[dict[str, Any]]:
    state = json.loads((last_complete(folder / "run") / "trainer_state.json").read_text())  # type: ignore[operator]
    return [line for line in state["log_history"] if "grad_norm" in line]


# --------------------------------------------------------------------------------------------------------------- runs


@pytest.mark.filterwarnings("ignore:The environment:UserWarning")
def test_a_run_continues_when_some_episodes_hang_or_fail(world: Any, tmp_path: Path) -> None:
    run(parse_options(words(world, tmp_path, "--environment", f"{HERE}:Troubled", "--tasks", f"{HERE}:some_trouble")))
    steps = steps_of(tmp_path)
    assert min(step["rollout/env_lost"] for step in steps) >= 8  # every episode of "reset" and of "nan"
    assert sum(step["rollout/env_timeouts"] for step in steps) > 0
    assert all(torch.isfinite(torch.tensor(step["grad_norm"])) for step in steps)
    traces = list(read_rollouts(tmp_path / "run" / "rollouts"))
    sites = [site for trace in traces for step in trace.steps for site in step.error_sites]
    late = [site for site in sites if site.rule == "rollout.environment_lost"]
    assert {(site.kind, site.blame) for site in late} >= {("timeout", "env"), ("tool_error", "env")}
    lost = [trace for trace in traces if trace.provenance["rewards"] == {"Troubled": None}]
    assert len(lost) == sum(step["rollout/env_lost"] for step in steps)
    assert {trace.provenance["advantage"] for trace in lost} == {0.0}
    assert not any(step.hints for trace in lost for step in trace.steps if step.error_sites[:1] == late[:1])
    # The exported prompt has the text of the environment's reset.
    assert any(trace.messages[0].content.endswith(" =") for trace in traces)


@pytest.mark.filterwarnings("ignore:The environment:UserWarning")
def test_asynchronous_tools_and_rewards_have_the_same_limits(world: Any, tmp_path: Path) -> None:
    more = ["--environment", f"{HERE}:AsyncDesk", "--tasks", "composer_hub.environments.desk:tasks", "--max_steps", "1"]
    run(parse_options(words(world, tmp_path, *more, "--rewards", f"{HERE}:length_reward")))
    steps = steps_of(tmp_path)
    assert sum(step["rollout/env_timeouts"] for step in steps) > 0
    assert {name for name in steps[0] if name.startswith("rewards/")} == {
        f"rewards/{name}/{what}" for name in ("AsyncDesk", "length_reward") for what in ("mean", "std")
    }
    assert steps[0]["rewards/length_reward/mean"] > 1


@pytest.mark.filterwarnings("ignore:The environment:UserWarning")
def test_a_run_ends_when_every_episode_of_a_batch_is_lost(world: Any, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailed, match=r"All 16 episodes.* is lost: reset failed \(OSError: no room left\)"):
        run(parse_options(words(world, tmp_path, "--environment", f"{HERE}:Troubled", "--tasks", f"{HERE}:all_reset")))


def test_fewer_tasks_than_one_batch_needs_are_refused(world: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match="One generation batch takes 4 tasks, but there are only 3"):
        run(parse_options(words(world, tmp_path, "--environment", "desk", "--num_tasks", "3")))


@pytest.mark.parametrize(("reward", "says"), [
    ("late_nan", "late_nan returned NaN"),
    ("late_error", "late_error raised ZeroDivisionError: division by zero"),
    ("one_number", "one_number returned 0.5. Return a number or None"),
])  # fmt: skip
def test_a_failing_reward_function_ends_the_run_with_its_name(
    reward: str, says: str, world: Any, tmp_path: Path
) -> None:
    with pytest.raises(RewardError, match=says):
        run(parse_options(words(world, tmp_path, "--environment", "desk", "--rewards", f"{HERE}:{reward}")))


# -------------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(("name", "says"), [
    ("nowhere", "no environment 'nowhere'"),
    ("nowhere:Class", "cannot be imported"),
    ("composer_hub.environments.desk:Chair", "cannot be imported"),
    ("openenv:", "does not name a server"),
    ("harbor:", "does not name tasks"),
])  # fmt: skip
def test_an_unusable_name_is_refused_before_anything_is_fetched(name: str, says: str) -> None:
    with pytest.raises(exits.UsageError, match=says):
        check_environment(name)


def test_a_missing_package_is_named() -> None:
    import importlib.util

    if importlib.util.find_spec("openenv") is None:
        with pytest.raises(exits.UsageError, match=r"needs openenv: pip install .*\[openenv\]"):
            check_environment("openenv:http://127.0.0.1:1")
    if importlib.util.find_spec("harbor") is None:
        with pytest.raises(exits.UsageError, match=r"Python 3.12|pip install .*\[harbor\]"):
            check_environment("harbor:tasks")


def test_a_world_has_its_tasks_and_its_pin(tmp_path: Path) -> None:
    where = FolderDestination(tmp_path)
    assert open_world(None, where=where, options=WorldOptions()).factory is None
    desk = open_world("desk", where=where, options=WorldOptions())
    assert (desk.name, desk.pin, desk.task_function) == ("desk", "desk", "composer_hub.environments.desk:tasks")
    assert desk.factory is not None
    assert type(desk.factory()).__name__ == "Desk"
    assert settings_of({"environment": "harbor:/home/me/tasks", "tasks": "/home/me/x.jsonl"}, {}) == {
        "environment": "harbor:tasks",
        "tasks": "x.jsonl",
    }


def test_reward_functions_are_checked_when_they_are_called() -> None:
    with pytest.raises(RewardError, match=r"pkg:bad raised ZeroDivisionError"):
        checked_reward(lambda **_: [1 / 0], "pkg:bad")()
    with pytest.raises(RewardError, match="pkg:nan returned NaN"):
        checked_reward(lambda **_: [float("nan")], "pkg:nan")()
    with pytest.raises(RewardError, match="Return a number or None"):
        checked_reward(lambda **_: ["good"], "pkg:word")()
    with pytest.raises(RewardError, match="1 rewards for 2 completions"):
        checked_reward(lambda **_: [1.0], "pkg:short")(completions=["a", "b"])
    with pytest.raises(exits.UsageError, match="Name a function"):
        checked_reward("good", "pkg:text")  # type: ignore[arg-type]
    assert checked_reward(lambda **_: [None, 1.0], "pkg:fine")() == [None, 1.0]

    class Judge:
        async def __call__(self, **_: Any) -> list[float]:
            return [1.0]

    assert asyncio.run(checked_reward(Judge(), "pkg:judge")()) == [1.0]


@pytest.mark.filterwarnings("ignore:The environment:UserWarning")
def test_an_episode_that_cannot_be_scored_is_lost_alone() -> None:
    def solved(environments: list[Any], **_: Any) -> list[float]:
        return [1 / environments[0].wanted[0]]

    make = guarded(Desk, "desk", timeout_s=5)
    good, bad = make(), make()
    good.reset(a=2, b=2)
    bad.reset(a=0, b=2)
    assert one_by_one(solved)(environments=[good, bad]) == [0.5, None]
    assert (is_lost(good), is_lost(bad)) == (False, True)


# ------------------------------------------------------------------------------------------------------------- Harbor


def harbor_task(folder: Path, name: str, wanted: str) -> None:
    task = folder / name
    (task / "environment").mkdir(parents=True)
    (task / "tests").mkdir()
    (task / "environment" / "Dockerfile").write_text("FROM debian:stable-slim\n")
    (task / "instruction.md").write_text(f"Write {wanted} to /workdir/answer.txt.\n")
    (task / "task.toml").write_text('schema_version = "1.1"\n[metadata]\ndifficulty_level = "easy"\n')
    (task / "tests" / "test.sh").write_text(
        f'#!/bin/bash\ngrep -qx "{wanted}" /workdir/answer.txt && echo 1 > /logs/verifier/reward.txt '
        "|| echo 0 > /logs/verifier/reward.txt\n"
    )


def test_harbor_tasks_become_rows_tools_and_a_reward(tmp_path: Path) -> None:
    where = FolderDestination(tmp_path / "hub")
    for name, wanted in (("b", "4"), ("a", "7")):
        harbor_task(tmp_path / "suite" / "tasks", name, wanted)
    world = harbor.world_of(str(tmp_path / "suite"), where)
    assert world.rows is not None
    assert [Path(row["task_dir"]).name for row in world.rows] == ["a", "b"]
    assert world.rows[0]["difficulty_level"] == "easy"
    assert "gold_answer" not in world.rows[0]
    assert world.factory is not None
    one = guarded(world.factory, world.name, timeout_s=5)()
    assert callable(one.bash)
    assert type(one).__name__ == "HarborBashEnv"
    assert one_by_one(world.rewards[0])(environments=[one]) == [0.0]  # TRL's rule for an episode that never began


def test_a_dataset_of_harbor_tasks_is_fetched_at_one_commit(tmp_path: Path) -> None:
    from composer_hub.hub import Add

    harbor_task(tmp_path / "suite" / "tasks", "a", "7")
    where = FolderDestination(tmp_path / "hub")
    where.prepare("me/suite", private=True)
    files = [path for path in (tmp_path / "suite").rglob("*") if path.is_file()]
    adds = [Add.of(path.relative_to(tmp_path / "suite").as_posix(), path) for path in files]
    revision = where.commit("me/suite", adds, title="tasks", body="", parent=None, repo_type="dataset")
    world = harbor.world_of("me/suite@main", where)
    assert world.pin == f"harbor:me/suite@{revision}"
    assert world.rows is not None
    assert len(world.rows) == 1


@pytest.mark.parametrize(("rest", "agent", "says"), [
    ("empty", "bash", "holds no tasks"),
    ("me/nothing@v1", "bash", "There is no me/nothing@v1 at"),
    ("suite", "fish", "no Harbor agent 'fish'"),
    ("suite", "composer_hub.environments.desk:Desk", "is not a Harbor agent"),
])  # fmt: skip
def test_harbor_tasks_that_cannot_be_run_are_refused(
    rest: str, agent: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    harbor_task(tmp_path / "suite", "a", "7")
    with pytest.raises(exits.UsageError, match=says):
        harbor.world_of(rest, FolderDestination(tmp_path / "hub"), agent=agent)


def harbor_is_here() -> None:
    pytest.importorskip("harbor", reason="Harbor is an optional extra and needs Python 3.12")


def test_harbors_own_verifier_scores_an_episode(tmp_path: Path) -> None:
    harbor_is_here()
    harbor_task(tmp_path / "suite", "a", "7")
    harbor_task(tmp_path / "suite", "b", "4")
    check_environment(f"harbor:{tmp_path / 'suite'}")
    options = WorldOptions(timeout_s=20, harbor_agent="tests.environments.local_harbor:FolderAgent")
    world = open_world(f"harbor:{tmp_path / 'suite'}", where=FolderDestination(tmp_path / "hub"), options=options)
    assert world.rows is not None
    assert world.factory is not None
    one, other = world.factory(), world.factory()
    assert one.reset(**world.rows[0]).startswith("Write 7 to /workdir/answer.txt.")
    assert other.reset(**world.rows[1]).startswith("Write 4 to /workdir/answer.txt.")
    assert one.bash(command="echo 7 > /workdir/answer.txt && cat /workdir/answer.txt") == "7\n"
    assert world.rewards[0](environments=[one, other]) == [1.0, 0.0]


@pytest.mark.filterwarnings("ignore:The environment:UserWarning")
def test_a_harbor_task_whose_verifier_leaves_no_reward_is_lost(tmp_path: Path) -> None:
    harbor_is_here()
    harbor_task(tmp_path / "suite", "a", "7")
    (tmp_path / "suite" / "a" / "tests" / "test.sh").write_text("#!/bin/bash\n")
    options = WorldOptions(timeout_s=20, harbor_agent="tests.environments.local_harbor:FolderAgent")
    world = open_world(f"harbor:{tmp_path / 'suite'}", where=FolderDestination(tmp_path / "hub"), options=options)
    assert world.rows is not None
    assert world.factory is not None
    one = world.factory()
    one.reset(**world.rows[0])
    assert world.rewards[0](environments=[one]) == [None]
    assert is_lost(one)
    root = one._home.inner._env.root
    release([one])
    assert not root.exists()  # the sandbox is gone with its environment


def test_a_run_trains_on_harbor_tasks(world: Any, tmp_path: Path) -> None:
    harbor_is_here()
    for name in "abcd":
        harbor_task(tmp_path / "suite", name, "7")
    more = [
        "--environment",
        f"harbor:{tmp_path / 'suite'}",
        "--harbor_agent",
        "tests.environments.local_harbor:FolderAgent",
    ]
    final = run(parse_options(words(world, tmp_path, *more, "--max_steps", "1", "--env_timeout_s", "60")))
    (step,) = steps_of(tmp_path)
    assert (step["rollout/env_lost"], step["reward"]) == (0, 0)  # the tiny model knows no bash
    card = (final / "README.md").read_text()
    assert "in the environment `harbor:suite`" in card
    assert str(tmp_path) not in card
    traces = list(read_rollouts(tmp_path / "run" / "rollouts"))
    assert all("Write 7 to /workdir/answer.txt" in trace.messages[0].content for trace in traces)
    assert {trace.provenance["environment"] for trace in traces} == {"harbor:suite"}
