"""Harbor tasks: a folder or a dataset of tasks in, a `World` out.

Each task is a folder with `task.toml`, `instruction.md`, `environment/` and `tests/`. With the environment `bubblewrap`
the trees are played by `harbor_tree`, without Harbor and Docker. All others go through TRL's adapter, which needs
Harbor, Python 3.12 and mostly Docker, and which ignores what protects a task: such tasks are refused there.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from composer_hub import exits, extras
from composer_hub.environments.world import EnvironmentFactory, World, load_object

if TYPE_CHECKING:
    from composer_hub.hub import Destination


BUBBLEWRAP = "bubblewrap"


def check(rest: str, environment: str = "docker") -> None:
    """Refuse a name without tasks, and a missing package."""
    if not rest:
        raise exits.UsageError("harbor: does not name tasks. Write harbor:folder or harbor:owner/name@revision.")
    if environment == BUBBLEWRAP:
        return
    if sys.version_info < (3, 12):
        raise exits.UsageError(f"harbor:{rest} needs Python 3.12 or newer; this is {sys.version[:4]}.")
    extras.need(f"harbor:{rest}", "harbor", "harbor")


def world_of(rest: str, where: Destination, *, agent: str = "bash", environment: str = "docker") -> World:
    """Return the tasks with their sandboxes, and the verifier as the reward."""
    folder, pin = Path(rest).expanduser(), f"harbor:{rest}"
    if not folder.is_dir():
        folder, pin = _fetched(rest, where)
    if not _roots(folder):
        raise exits.UsageError(f"harbor:{rest} holds no tasks: folders with a task.toml, in it or in its tasks/.")
    if environment == BUBBLEWRAP:
        from composer_hub.environments.harbor_tree import rows_of, tree_factory

        return World(f"harbor:{rest}", tree_factory(), rows=rows_of(_roots(folder)), pin=pin)
    _refuse_protected(_roots(folder))
    from trl.experimental.harbor import AGENTS, HarborSpec

    if agent not in AGENTS and ":" not in agent:
        raise exits.UsageError(f"There is no Harbor agent {agent!r}. Name {', '.join(AGENTS)}, or pkg.module:Class.")
    tools: Any = AGENTS[agent] if agent in AGENTS else load_object(agent, "Harbor agent")
    try:
        spec = HarborSpec(str(folder), agent=tools, environment_type=environment)
    except TypeError as error:
        raise exits.UsageError(f"{agent} is not a Harbor agent: {error}.") from error
    rows = [_without_unused(row) for row in spec.train_dataset]
    factory = cast("EnvironmentFactory", spec.environment_factory)
    return World(f"harbor:{rest}", factory, (spec.reward_funcs,), rows, pin=pin)


def _refuse_protected(folders: list[Path]) -> None:
    """Refuse tasks whose verifier, network mode or user TRL's adapter would ignore."""
    for folder in folders:
        config = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        parts = {name: config.get(name) or {} for name in ("verifier", "environment", "agent")}
        ignored = [
            *(["its separate verifier"] if parts["verifier"].get("environment_mode") == "separate" else []),
            *(["its network mode"] if parts["environment"].get("network_mode", "public") != "public" else []),
            *(["its user"] if parts["agent"].get("user") else []),
        ]
        if ignored:
            raise exits.Refused(
                f"{folder.name} would lose {' and '.join(ignored)} in TRL's adapter. Add --harbor_environment "
                f"{BUBBLEWRAP}, which keeps them."
            )


def _roots(folder: Path) -> list[Path]:
    root = folder / "tasks" if (folder / "tasks").is_dir() else folder
    return sorted(path.parent for path in root.glob("*/task.toml"))


def _fetched(rest: str, where: Destination) -> tuple[Path, str]:
    """Fetch a task tree at one commit; TRL itself would take the newest."""
    from composer_hub.hub import LoadError, commit_of, parse_ref

    ref = parse_ref(rest)
    try:
        revision = commit_of(where, ref)
    except LoadError as error:
        raise exits.UsageError(f"{error} There is no folder of that name either.") from error
    folder = None
    for path in where.files(ref.repo, revision):
        if path.startswith("tasks/") and (local := where.fetch(ref.repo, revision, path)) is not None:
            folder = local.parents[path.count("/")]
    if folder is None:
        raise exits.UsageError(f"{ref} has no folder tasks/, so it is not a dataset of Harbor tasks.")
    return folder, f"harbor:{ref.repo}@{revision}"


def _without_unused(row: dict[str, Any]) -> dict[str, Any]:
    """Drop the columns that this suite does not use: TRL fills them with None, which has no type."""
    return {name: value for name, value in row.items() if value is not None}
