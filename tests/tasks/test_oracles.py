"""Hidden oracles: a version is played with its own ones, at the revision that it names, or not at all."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits, hub, tasks
from composer_hub.cli.main import root
from composer_hub.environments import WorldOptions, open_shelf, open_world
from composer_hub.environments.shelf import ORACLES
from composer_hub.local_hub.server import ServerProcess
from composer_hub.train.run.card import ModelFacts, model_card
from tests.hub.clients import hub_at

REPO = "me/tasks"


def published(where: hub.Destination, made: tasks.TaskSet, repo: str = REPO, *, names_oracles: bool = True) -> str:
    """Publish oracles and tasks as `tasks make` does; return the tag of the tasks."""
    hidden = f"{repo}-oracle"
    hub.update(where, hidden, lambda before: tasks.oracle_draft(made, "tasks", before))

    def draft(before: hub.Version | None) -> hub.Draft:
        return tasks.draft(made, "tasks", before, hidden=hub.newest(where, hidden) if names_oracles else None)

    return hub.update(where, repo, draft).tag


def with_other_seed(made: tasks.TaskSet) -> tasks.TaskSet:
    """Return the set with other ids and fewer oracles, as another seed makes it."""
    names = {task.task_id: f"other-{task.task_id}" for task in made.tasks}
    oracles = {names[task_id]: oracle for task_id, oracle in list(made.oracles.items())[:1]}
    renamed = tuple(
        dataclasses.replace(task, task_id=names[task.task_id], has_oracle=names[task.task_id] in oracles)
        for task in made.tasks
    )
    return dataclasses.replace(made, tasks=renamed, oracles=oracles)


def opened(where: hub.Destination, ref: str, venv: Path) -> dict[str, Any]:
    return dict(open_shelf(ref, where, make_venv=lambda requirements: venv).oracles)


def test_a_pinned_version_is_played_with_its_own_oracles(
    made: tasks.TaskSet, venv: Path, hub_server: ServerProcess, hub_repo: Callable[[str], str]
) -> None:
    where, repo = hub_at(hub_server), hub_repo("tasks")
    other = with_other_seed(made)
    tags = [published(where, one, repo) for one in (made, other)]
    assert [opened(where, f"{repo}@{tag}", venv) for tag in tags] == [dict(made.oracles), dict(other.oracles)]
    parents = hub.load(where, f"{repo}@{tags[0]}").manifest["parents"]
    assert [one["role"] for one in parents] == [ORACLES]


def lose_all(folder: Path) -> None:
    shutil.rmtree(folder)


def lose_the_table(folder: Path) -> None:
    for path in folder.rglob("*.parquet"):
        path.unlink()


def damage_the_table(folder: Path) -> None:
    for path in folder.rglob("*.parquet"):
        path.write_bytes(b"not a table")


@pytest.mark.parametrize("lose", [lose_all, lose_the_table, damage_the_table])
def test_tasks_whose_oracles_cannot_be_read_are_refused_by_every_command(
    lose: Callable[[Path], None], made: tasks.TaskSet, tmp_path: Path
) -> None:
    where = hub.FolderDestination(tmp_path)
    published(where, made)
    lose(tmp_path / f"{REPO}-oracle")
    place = ["--from", str(tmp_path)]
    commands: tuple[Callable[[], Any], ...] = (
        lambda: open_world(f"coding:{REPO}", where=where, options=WorldOptions()),
        lambda: root.main(["tasks", "check", REPO, *place], standalone_mode=False),
        lambda: root.main(["tasks", "harbor", REPO, str(tmp_path / "trees"), *place], standalone_mode=False),
    )
    for command in commands:
        with pytest.raises(exits.Refused, match=rf"{len(made.oracles)} of the oracles cannot be read") as caught:
            command()
        assert caught.value.exit_code == exits.REFUSED


def test_a_version_that_lacks_or_does_not_name_its_oracles_is_refused(made: tasks.TaskSet, tmp_path: Path) -> None:
    where = hub.FolderDestination(tmp_path)
    first = next(iter(made.oracles))
    fewer = {task_id: oracle for task_id, oracle in made.oracles.items() if task_id != first}
    published(where, dataclasses.replace(made, oracles=fewer), names_oracles=False)
    with pytest.raises(exits.Refused, match=r"me/tasks-oracle: the version of the tasks names no version"):
        open_world(f"coding:{REPO}", where=where, options=WorldOptions())
    with pytest.raises(exits.ComposerError, match="lacks 1 oracles"):
        tasks.draft(made, "tasks", hidden=hub.newest(where, f"{REPO}-oracle"))


def test_tasks_without_an_oracle_are_played_only_if_they_are_allowed(
    made: tasks.TaskSet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    where = hub.FolderDestination(tmp_path)
    bare = tuple(dataclasses.replace(task, has_oracle=False) for task in made.tasks)
    published(where, dataclasses.replace(made, tasks=bare, oracles={}), names_oracles=False)
    with pytest.raises(exits.Refused, match=r"None of the \d+ tasks .* has a hidden oracle.*--allow_unverified true"):
        open_world(f"coding:{REPO}", where=where, options=WorldOptions())
    assert open_world(f"coding:{REPO}", where=where, options=WorldOptions(allow_unverified=True)).rows


def test_a_run_says_how_many_of_its_tasks_have_an_oracle(
    made: tasks.TaskSet, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    where = hub.FolderDestination(tmp_path)
    bare = next(task.task_id for task in made.tasks if task.split == "train" and task.has_oracle)
    one_less = [dataclasses.replace(task, has_oracle=False) if task.task_id == bare else task for task in made.tasks]
    kept = {name: oracle for name, oracle in made.oracles.items() if name != bare}
    made = dataclasses.replace(made, tasks=tuple(one_less), oracles=kept)
    published(where, made)
    trained = [task for task in made.tasks if task.split == "train"]
    number = sum(task.has_oracle for task in trained)
    assert 0 < number < len(trained)
    strict = open_world(f"coding:{REPO}", where=where, options=WorldOptions())
    assert strict.oracles == (number, len(trained), number)
    assert {row["task_id"] for row in strict.rows or ()} == {task.task_id for task in trained if task.has_oracle}
    world = open_world(f"coding:{REPO}", where=where, options=WorldOptions(allow_unverified=True))
    assert world.oracles == (number, len(trained), len(trained))
    facts = ModelFacts(REPO, "run", "mit", hub.Parent("base model", "me/base", "0" * 40), oracles=world.oracles)
    assert f"{number} of {len(trained)} tasks have a hidden oracle. Visible tests alone decide" in model_card(facts)
    assert "The others are left out." in model_card(dataclasses.replace(facts, oracles=strict.oracles))
    assert world.factory is not None
    shares = set()
    for row in world.rows or ():
        one = world.factory()
        one.reset(**row)
        shares.add((row["task_id"] in made.oracles, one._notes()["rollout/oracle_share"]))
    assert shares == {(True, 1.0), (False, 0.0)}
