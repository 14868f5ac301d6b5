"""Which project a session belongs to: the folder that it ran in -> the root of the project."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from composer_hub.report.causes import folded


def projects_of(folders: Iterable[str]) -> dict[str, str]:
    """Return the project of each folder: the git repository on this machine, else the folder; a worktree is folded.

    Folders of one name in the homes of several people, as in sessions that a team shares, are one project.
    """
    roots = {folder: _root_of(folded(folder)) for folder in set(folders)}
    homes: dict[str, str] = {}  # name -> the first root below a home
    owners: dict[str, str] = {}
    merged = {}
    for root in sorted(set(roots.values())):
        home, name = _HOME.match(root), root.rpartition("/")[2]
        first = homes.setdefault(name, root) if home else root
        other = owners.setdefault(name, home[1]) if home else ""
        merged[root] = first if home and home[1] != other else root
    return {folder: merged[root] for folder, root in roots.items()}


_HOME = re.compile(r"((?:/Users|/home|[A-Za-z]:/Users)/[^/]+)/")


def _root_of(folder: str) -> str:
    path = Path(folder)
    if not path.is_absolute():
        return folder
    try:
        return next((str(one) for one in (path, *path.parents) if (one / ".git").exists()), folder)
    except OSError:
        return folder


def short_names(projects: Iterable[str]) -> dict[str, str]:
    """Return a name for each project that is as short as it can be and still its own."""
    known = sorted(set(projects))
    names = {}
    for project in known:
        parts = project.rstrip("/").split("/")
        for length in range(1, len(parts) + 1):
            name = "/".join(parts[-length:])
            if sum(other == project or other.endswith(f"/{name}") for other in known) == 1 or length == len(parts):
                names[project] = name or project
                break
    return names
