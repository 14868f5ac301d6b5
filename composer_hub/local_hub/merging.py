"""The changes of a pull request: the three-way merge of trees by path, and its diff as git prints it. No storage.

In: trees (path -> entry) and a function that reads an entry's bytes. Out: changes, conflicting paths, a unified diff.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator

from composer_hub.local_hub.trees import BadPath, Changes, Tree, TreeEntry, applied, check_no_overlap, pointer

MAX_TEXT = 256 * 1024
MAX_DIFF = 1024 * 1024


def merge(base: Tree, ours: Tree, theirs: Tree) -> tuple[Changes, list[str]]:
    """Return the changes of `theirs` to `ours`, and the paths that both changed differently since `base`."""
    changes: Changes = {}
    conflicts: list[str] = []
    for path in sorted(base.keys() | theirs.keys()):
        wanted = theirs.get(path)
        if wanted == base.get(path) or wanted == ours.get(path):
            continue
        if ours.get(path) == base.get(path):
            changes[path] = wanted
        else:
            conflicts.append(path)
    return changes, conflicts or _overlaps(ours, changes)


def _overlaps(ours: Tree, changes: Changes) -> list[str]:
    """Return the added paths that are a folder on one side and a file on the other."""
    try:
        check_no_overlap(ours, changes, applied(ours, changes))
    except BadPath:
        return [path for path, entry in changes.items() if entry is not None and _clashes(path, ours)]
    return []


def _clashes(path: str, ours: Tree) -> bool:
    return any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in ours)


def unified_diff(before: Tree, changes: Changes, read: Callable[[TreeEntry], bytes]) -> str:
    """Write the changes as `git diff` does; a large or binary file is only named, an LFS file shows its pointer."""
    parts: list[str] = []
    room = MAX_DIFF
    for path in sorted(changes):
        if room <= 0:
            parts.append(f"diff of {len(changes) - len(parts)} more files left out\n")
            break
        part = "".join(_file_diff(path, before.get(path), changes[path], read))
        parts.append(part)
        room -= len(part)
    return "".join(parts)


def _file_diff(
    path: str, old: TreeEntry | None, new: TreeEntry | None, read: Callable[[TreeEntry], bytes]
) -> Iterator[str]:
    yield f"diff --git a/{path} b/{path}\n"
    if old is None:
        yield "new file mode 100644\n"
    if new is None:
        yield "deleted file mode 100644\n"
    yield f"index {old.oid if old else '0' * 40}..{new.oid if new else '0' * 40}\n"
    names = (f"a/{path}" if old else "/dev/null", f"b/{path}" if new else "/dev/null")
    before, after = _text(old, read), _text(new, read)
    if before is None or after is None:
        yield f"Binary files {names[0]} and {names[1]} differ\n"
        return
    for line in difflib.unified_diff(before, after, *names):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _text(entry: TreeEntry | None, read: Callable[[TreeEntry], bytes]) -> list[str] | None:
    """Return the lines that git would compare, or None for what it would call binary."""
    if entry is None:
        return []
    if entry.sha256:
        return pointer(entry.sha256, entry.size).decode().splitlines(keepends=True)
    if entry.size > MAX_TEXT:
        return None
    data = read(entry)
    try:
        return None if b"\0" in data else data.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
