"""Tasks with everything that an episode needs: a version of tasks in, a `TaskShelf` out.

The oracles come from a second, private repository, `NAME-oracle`, at the revision that the version of tasks names.
Tasks that lack theirs are refused: without an oracle the visible tests decide alone, and a forged report passes them.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub import exits
from composer_hub.environments.node import manifest_of, modules_for
from composer_hub.environments.trees import Files, bundle_files, edited
from composer_hub.environments.venvs import venv_for
from composer_hub.named_files import write_whole
from composer_hub.output import plural
from composer_hub.records import Task

if TYPE_CHECKING:
    from composer_hub.hub import Destination, Version

TABLE, BUNDLES, ORACLE = "tasks", "bundles", "oracle"
ORACLES = "oracles"
"""The role of the version of oracles among the parents of a version of tasks."""


class ShelfError(exits.UsageError):
    """Tasks that cannot be played."""


class OraclesMissing(exits.Refused, LookupError):
    """Tasks whose hidden oracles cannot be read."""


@dataclass(frozen=True)
class TaskShelf:
    """Tasks by id, with their bundles, virtual environments and oracles."""

    tasks: Mapping[str, Task]
    bundles: Mapping[str, Path]  # by digest
    venvs: Mapping[str, Path | None]  # by digest of the bundle
    oracles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by task
    pin: str = ""

    def task(self, task_id: str) -> Task:
        if task_id not in self.tasks:
            raise ShelfError(f"There is no task {task_id!r} among these {len(self.tasks)}.")
        return self.tasks[task_id]

    def verified(self) -> TaskShelf:
        """Return the tasks with a hidden oracle: the reward of the others is what visible tests say."""
        return replace(self, tasks={name: task for name, task in self.tasks.items() if name in self.oracles})

    def coverage(self, split: str = "train") -> tuple[int, int]:
        """Return how many tasks of a split have an oracle, and how many there are."""
        chosen = [task.task_id for task in self.tasks.values() if split in ("all", task.split)]
        return sum(one in self.oracles for one in chosen), len(chosen)

    def start(self, task: Task) -> Files:
        """Return the tree that the agent starts from."""
        return edited(bundle_files(self.bundles[task.bundle_digest]), task.edits)

    def rows(self, split: str = "train") -> list[dict[str, Any]]:
        """Return task rows as trainers take them: a prompt and the task's id."""
        return [
            {"prompt": [{"role": "user", "content": prompt_of(task)}], "task_id": task.task_id}
            for task in self.tasks.values()
            if split in ("all", task.split)
        ]


def prompt_of(task: Task) -> str:
    """Return the text that an agent gets."""
    return (
        f"{task.statement}\n\nThe package {task.package} is in the working directory. Change its source "
        "files with the tools, run the tests, and stop when the task is done. Changes to tests and configuration do "
        "not count."
    )


def open_shelf(
    ref: str,
    where: Destination,
    *,
    make_venv: Callable[[Iterable[str]], Path] = lambda requirements: venv_for(sorted(requirements)),
) -> TaskShelf:
    """Fetch a version of tasks with its bundles and its oracles; `OraclesMissing` if those cannot be read."""
    from composer_hub.hub import load

    version = load(where, ref)
    if TABLE not in version.manifest["tables"]:
        held = ", ".join(version.manifest["tables"])
        raise ShelfError(f"{ref} holds {held}, not tasks. Make tasks with `composer-hub tasks make`.")
    tasks = {
        task.task_id: replace(task, split=split)  # the split is the name of a file, not a column
        for split in version.splits(TABLE)
        for task in version.records(Task, TABLE, split)
    }
    oracles = _oracles(version, {task.task_id for task in tasks.values() if task.has_oracle})
    shelf = shelf_of(tasks.values(), version.rows(BUNDLES), oracles, _cache(), make_venv=make_venv)
    return replace(shelf, pin=f"{version.repo}@{version.revision}")


def _oracles(version: Version, wanted: Set[str]) -> dict[str, Any]:
    """Return the oracles of some tasks of a version."""
    if not wanted:
        return {}
    why = "they are not there."
    try:
        rows = _oracle_version(version).rows(ORACLE)
        oracles = {row["task_id"]: row["oracle"] for row in rows if row["task_id"] in wanted}
    except (exits.ComposerError, OSError, ValueError, LookupError) as error:
        oracles, why = {}, str(error)
    if num_missing := len(wanted - oracles.keys()):
        raise OraclesMissing(
            f"{version.repo}@{version.tag or version.revision} has {plural(len(wanted), 'task')} with a hidden oracle, "
            f"and {num_missing:,} of the oracles cannot be read in {version.repo}-oracle: {why} Without them hacks "
            "would be rewarded. Get access to that repository, or make the tasks again."
        )
    return oracles


def _oracle_version(version: Version) -> Version:
    """Return the version of the oracles that a version of tasks names."""
    from composer_hub.hub import LoadError, load

    named = next((one for one in version.manifest.get("parents", ()) if one["role"] == ORACLES), None)
    if named is None:
        raise LoadError("the version of the tasks names no version of them.")
    return load(version.destination, f"{named['repo']}@{named['revision']}")


def shelf_of(
    tasks: Iterable[Task],
    bundles: Iterable[Mapping[str, Any]],  # rows
    oracles: Mapping[str, Mapping[str, Any]],
    folder: Path,  # that bundles are written to
    *,
    make_venv: Callable[[Iterable[str]], Path] = lambda requirements: venv_for(sorted(requirements)),
) -> TaskShelf:
    """Return the shelf of some tasks with the rows of their bundles."""
    by_id = {task.task_id: task for task in tasks}
    scripts = {task.bundle_digest for task in by_id.values() if task.language == "javascript"}
    paths, venvs = dict[str, Path](), dict[str, Path | None]()
    for row in bundles:
        paths[row["digest"]] = _kept(folder, row["digest"], base64.b64decode(row["data"]))
        is_script = row["digest"] in scripts
        venvs[row["digest"]] = _modules(paths[row["digest"]]) if is_script else make_venv(row["requirements"])
    if missing := {task.bundle_digest for task in by_id.values()} - set(paths):
        raise ShelfError(
            f"The bundles {', '.join(sorted(missing))[:200]} are missing. Make and publish the tasks again."
        )
    return TaskShelf(by_id, paths, venvs, oracles)


def _modules(bundle: Path) -> Path:
    """Return the installed packages that a bundle's manifest and lock name."""
    files = bundle_files(bundle)
    return modules_for(manifest_of(files["package.json"]), files.get("package-lock.json"))


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "composer-hub", "bundles")


def _kept(cache: Path, digest: str, data: bytes) -> Path:
    """Write a bundle to the cache once."""
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{hashlib.sha256(digest.encode() + data).hexdigest()[:32]}.tar.gz"
    if not path.exists():
        write_whole(path, data, private=True)
    return path
