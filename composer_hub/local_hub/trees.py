"""A commit's files as a flat map from path to entry, and what one commit changes in it: pure functions, no storage.

In: a tree and operations. Out: the changes (path -> entry, or None for a deletion) and the listings the Hub shows.
"""

from __future__ import annotations

import collections
import hashlib
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from composer_hub.local_hub.errors import LocalHubError


class TreeEntry(NamedTuple):
    """One file: git's sha1 of its blob, its size, and for an LFS file the sha256 of its content."""

    oid: str
    size: int
    sha256: str = ""

    @property
    def content_id(self) -> str:
        """Return the id under which the bytes are stored: the sha256 of an LFS file, else git's sha1."""
        return self.sha256 or self.oid


_FEW = 16
_MAX_NAME = 255 - len(".metadata")
Tree = Mapping[str, TreeEntry]
Changes = dict[str, TreeEntry | None]


@dataclass(frozen=True, slots=True)
class PutFile:
    """Add a file or replace it."""

    path: str
    entry: TreeEntry


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Remove a file, or everything below a folder."""

    path: str
    is_folder: bool = False


Operation = PutFile | DeleteFile


class MissingPath(LocalHubError, KeyError):
    """A deletion names a path that the tree does not hold."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"A file with the name {self.path!r} does not exist. List the files of the branch and try again."


class BadPath(LocalHubError, ValueError):
    """A path that no git tree can hold, or that would hide another one."""


def git_oid(data: bytes) -> str:
    """Return git's sha1 of a blob with this content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def pointer(sha256: str, size: int) -> bytes:
    """Write the text that git would hold in place of an LFS file."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def lfs_entry(sha256: str, size: int) -> TreeEntry:
    """Return the entry of an LFS file: its oid is that of the pointer, as on the Hub."""
    return TreeEntry(git_oid(pointer(sha256, size)), size, sha256)


def check_path(path: str) -> str:
    """Return the path if a repository may hold it: no `..`, no empty part, no `.git`, no control character.

    Stock clients refuse a repository for one name that is a drive of Windows, or too long for the ending that they add.
    """
    parts = path.split("/")
    ugly = any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)
    if ugly or len(path.encode(errors="replace")) > 1024 or "\\" in path or not path.isprintable():
        raise BadPath(
            f"Invalid path in repo: {path[:200]!r}. Use relative names joined by '/', without '..' or '.git'."
        )
    for part in parts:
        if part[1:2] == ":" or len(part.encode(errors="replace")) > _MAX_NAME:
            what = f"{part[:200]!r} is a drive of Windows or has over {_MAX_NAME} bytes, so clients cannot download it."
            raise BadPath(f"Invalid path in repo: {what} Rename it.")
    return path


def changes_of(tree: Tree, operations: Iterable[Operation]) -> Changes:
    """Apply operations in order and return what differs in the end; deleting what is not there is an error.

    As on the Hub, deleting a path that is a folder deletes the folder.
    """
    changes: Changes = {}
    for operation in operations:
        if isinstance(operation, PutFile):
            changes[operation.path] = operation.entry
        elif not operation.is_folder and _holds(tree, changes, operation.path):
            changes[operation.path] = None
        else:
            prefix = operation.path.rstrip("/") + "/"
            gone = [path for path in (*tree, *changes) if path.startswith(prefix) and _holds(tree, changes, path)]
            if not gone:
                raise MissingPath(operation.path)
            changes.update(dict.fromkeys(gone))
    return {path: entry for path, entry in changes.items() if tree.get(path) != entry}


def applied(tree: Tree, changes: Mapping[str, TreeEntry | None]) -> dict[str, TreeEntry]:
    """Return the tree after the changes."""
    result = dict(tree)
    for path, entry in changes.items():
        if entry is None:
            result.pop(path, None)
        else:
            result[path] = entry
    return result


def check_no_overlap(tree: Tree, changes: Changes, after: Tree) -> None:
    """Refuse a result in which one path is both a file and a folder."""
    for folder in folders_of(path for path, entry in changes.items() if entry is not None) & after.keys():
        raise BadPath(f"{folder!r} is a file, so no file can be below it. Delete it in the same commit.")
    new_files = [path for path, entry in changes.items() if entry is not None and path not in tree]
    for path in _folders_among(new_files, after):
        raise BadPath(f"{path!r} is a folder, so no file can take its name. Delete the folder in the same commit.")


def _folders_among(names: Sequence[str], tree: Tree) -> Collection[str]:
    """Return those names that are folders of a tree."""
    if len(names) > _FEW:
        return folders_of(tree).intersection(names)
    # One search per name is much faster than a step per file. No path holds a line break.
    lines = "\n".join(("", *tree)) if names else ""
    return [name for name in names if f"\n{name}/" in lines]


def folders_of(paths: Iterable[str]) -> set[str]:
    """Return every folder above these paths."""
    fresh = {path.rpartition("/")[0] for path in paths}
    folders: set[str] = set()
    while fresh := fresh - folders - {""}:
        folders |= fresh
        fresh = {folder.rpartition("/")[0] for folder in fresh}
    return folders


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder in a listing; its oid changes whenever anything below it does."""

    oid: str


def listing(tree: Tree, folder: str, *, recursive: bool) -> dict[str, TreeEntry | Folder]:
    """Return the entries below a folder ("" is the root) in order of paths; empty if it does not exist."""
    prefix = f"{folder}/" if folder else ""
    below = {path: entry for path, entry in tree.items() if path.startswith(prefix)}
    names = folders_of(below) - {folder, *parents(folder)}
    if not recursive:
        names = {name for name in names if "/" not in name[len(prefix) :]}
        files = {path: entry for path, entry in below.items() if "/" not in path[len(prefix) :]}
    else:
        files = below
    items: dict[str, TreeEntry | Folder] = {**files, **_folders(below, names)}
    return dict(sorted(items.items()))


def _folders(below: Tree, names: set[str]) -> dict[str, Folder]:
    """Hash each folder over all files below it, in one pass over the sorted files."""
    hashes = {name: hashlib.sha1(usedforsecurity=False) for name in names}
    for path in sorted(below):
        for parent in parents(path):
            if parent in hashes:
                hashes[parent].update(f"{path}\0{below[path].oid}\n".encode())
    return {name: Folder(digest.hexdigest()) for name, digest in hashes.items()}


def parents(path: str) -> list[str]:
    """Return the folders above a path, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:i]) for i in range(1, len(parts))]


def _holds(tree: Tree, changes: Changes, path: str) -> bool:
    return (changes[path] if path in changes else tree.get(path)) is not None


class TreeCache:
    """The trees, listings or histories that were used last, within a bound on their entries; threads may share it."""

    def __init__(self, max_entries: int = 200_000, max_trees: int = 1_000) -> None:
        self.max_entries, self.max_trees = max_entries, max_trees
        self._trees: collections.OrderedDict[tuple[int, str], Collection[Any]] = collections.OrderedDict()
        self._num_entries = 0
        self._lock = threading.Lock()

    def get(self, repo_id: int, oid: str) -> Any | None:
        with self._lock:
            tree = self._trees.get((repo_id, oid))
            if tree is not None:
                self._trees.move_to_end((repo_id, oid))
            return tree

    def put(self, repo_id: int, oid: str, tree: Collection[Any]) -> None:
        """Cache a tree and drop the oldest ones above the limit."""
        with self._lock:
            if (repo_id, oid) in self._trees:
                return
            self._trees[repo_id, oid] = tree
            self._num_entries += len(tree)
            while len(self._trees) > 1 and (self._num_entries > self.max_entries or len(self._trees) > self.max_trees):
                self._num_entries -= len(self._trees.popitem(last=False)[1])
