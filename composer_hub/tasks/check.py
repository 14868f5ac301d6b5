"""Published tasks, checked again with the verifier that scores agents: the start must fail, the solution must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.environments.guard import Broken
from composer_hub.environments.sandbox import Sandbox, SandboxError, open_sandbox
from composer_hub.environments.shelf import open_shelf
from composer_hub.environments.trees import bundle_files, edited
from composer_hub.environments.verifier import submission, verify
from composer_hub.hub import Destination
from composer_hub.records import Task


@dataclass(frozen=True)
class TaskCheck:
    """How the verifier scores the two trees of a task; None if something else ended the verification."""

    task_id: str
    kind: str
    start: float | None
    gold: float | None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Return whether the solution, and only it, is rewarded."""
        return self.start == 0 and self.gold == 1


def check_version(
    where: Destination,
    ref: str,
    task_ids: Sequence[str] = (),  # beginnings of ids; empty: every task
    *,
    sandbox: str = "auto",
    on_task: Callable[[int], None] = lambda _: None,  # gets the number of tasks
) -> list[TaskCheck]:
    """Check the tasks of a version with their oracles."""
    shelf = open_shelf(ref, where)
    tasks = [one_of(shelf.tasks.values(), one) for one in task_ids] or list(shelf.tasks.values())
    box, checks = open_sandbox(sandbox), []
    for task in tasks:
        checks.append(check_task(task, shelf.bundles[task.bundle_digest], shelf.venvs[task.bundle_digest],
                                 shelf.oracles.get(task.task_id), box))  # fmt: skip
        on_task(len(tasks))
    return checks


def check_task(
    task: Task, bundle: Path, venv: Path | None, oracle: Mapping[str, Any] | None, sandbox: Sandbox
) -> TaskCheck:
    """Score the tree that an agent gets, and the solution."""
    start = edited(bundle_files(bundle), task.edits)
    gold = edited(start, task.solution)
    try:
        first, last = (
            verify(task, submission(task, tree), bundle, sandbox, venv=venv, oracle=oracle) for tree in (start, gold)
        )
    except (Broken, SandboxError) as error:
        return TaskCheck(task.task_id, task.kind, None, None, str(error))
    why = "" if last.reward else " ".join([last.reason, *last.failed[:2], *last.evidence[:2]]).strip()
    return TaskCheck(task.task_id, task.kind, first.reward, last.reward, why)


def one_of(tasks: Iterable[Task], task_id: str) -> Task:
    """Return the task whose id begins with a text."""
    found = [one for one in tasks if one.task_id.startswith(task_id)]
    if len(found) != 1:
        raise exits.UsageError(f"{len(found)} tasks begin with {task_id!r}. `composer-hub tasks show` lists them.")
    return found[0]
