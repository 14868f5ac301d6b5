"""Which project a session belongs to: the folder that it ran in -> the root of the project."""

from __future__ import annotations

import contextlib
import os.path
import re
from collections.abc import Iterable
from pathlib import Path

from composer_hub import exits
from composer_hub.named_files import text_of


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


def folded(path: str) -> str:
    """Return a path as in the main work tree: agents work in many worktrees of one project."""
    path = path.replace("\\", "/")
    path = path[0].upper() + path[1:] if path[1:3] == ":/" else path
    return _WORKTREE.sub(r"\1", path).rstrip("/")


_WORKTREE = re.compile(r"^(.{2,200}?)(?:/\.(?:claude|git|entire|codex)/|/?[._-]+)worktrees?/[^/]+(?=/|$)")


_GITDIR = re.compile(r"gitdir: ([^\n]{1,1000}?)[ \t\r]*(?:\n|$)")
_HOME = re.compile(r"((?:/Users|/home|[A-Za-z]:/Users)/[^/]+)/")


def _root_of(folder: str) -> str:
    path = Path(folder)
    if not path.is_absolute():
        return folder
    try:
        root = next((one for one in (path, *path.parents) if (one / ".git").exists()), None)
        return str(_main_tree(root)) if root else folder
    except (OSError, exits.UsageError):
        return folder


def _main_tree(root: Path) -> Path:
    """Return the main work tree of a repository: the `.git` of a linked one is a file that names it."""
    if (root / ".git").is_dir():
        return root
    named = _GITDIR.match(text_of(root / ".git", errors="replace"))
    folder = Path(os.path.normpath(root / named[1])) if named else root
    return folder.parents[2] if folder.parent.name == "worktrees" and folder.parents[1].name == ".git" else root


def folder_below(folder: str) -> str:
    """Return the path of a session's folder in its own work tree, with a leading slash; "" at the root."""
    path = Path(folded(folder))
    with contextlib.suppress(OSError):
        root = next((one for one in (path, *path.parents) if path.is_absolute() and (one / ".git").exists()), path)
        return str(path).removeprefix(str(root))
    return ""


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
