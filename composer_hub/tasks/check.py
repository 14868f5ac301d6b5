"""Published tasks, checked again with the verifier that scores agents: the start must fail, the solution must pass."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.environments.sandbox import open_sandbox
from composer_hub.environments.trees import bundle_files, edited
from composer_hub.environments.venvs import venv_for
from composer_hub.environments.verifier import submission, verify
from composer_hub.records import Task


@dataclass(frozen=True)
class TaskCheck:
    """How the verifier scores the two trees of a task."""

    task_id: str
    kind: str
    start: float
    gold: float
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Return whether the solution, and only it, is rewarded; a contradiction has none."""
        return self.start == 0 and self.gold == (self.kind != "contradiction")


def check_tasks(
    tasks: Sequence[Task],
    bundles: Mapping[str, bytes],  # digest -> tar.gz
    requirements: Mapping[str, Sequence[str]],  # digest -> what to install
    oracles: Mapping[str, Mapping[str, Any]],
    *,
    sandbox: str = "auto",
    on_task: Callable[[TaskCheck], None] = lambda _: None,
) -> Iterator[TaskCheck]:
    """Yield the check of each task."""
    box = open_sandbox(sandbox)
    with tempfile.TemporaryDirectory(prefix="composer-check-") as folder:
        paths = {digest: Path(folder, f"{digest}.tar.gz") for digest in bundles}
        for digest, data in bundles.items():
            paths[digest].write_bytes(data)
        for task in tasks:
            bundle, venv = paths[task.bundle_digest], venv_for(requirements[task.bundle_digest])
            oracle = oracles.get(task.task_id)
            start = edited(bundle_files(bundle), task.edits)
            gold = edited(start, task.solution)
            first, last = (
                verify(task, submission(task, tree), bundle, box, venv=venv, oracle=oracle) for tree in (start, gold)
            )
            why = (
                ""
                if last.reward
                else f"{last.reason} {' '.join(last.failed[:2])} {' '.join(last.evidence[:2])}".strip()
            )
            done = TaskCheck(task.task_id, task.kind, first.reward, last.reward, why)
            on_task(done)
            yield done
