"""Volumes of a local job: a process cannot mount `/data` as a container does, so it gets a folder with the same files.

In: volumes as clients send them. Out: one folder per volume, the job's command with folders instead of mount paths, and
after the job its changes to a writable bucket. Paths inside the job's own files are not replaced; there the
environment variable `COMPOSER_JOB_MOUNT_…` (for `/data`: `COMPOSER_JOB_MOUNT_DATA`) names the folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.local_hub import xetclient
from composer_hub.local_hub.bucketstore import Bucket, walk
from composer_hub.local_hub.calls import ApiError, Hub
from composer_hub.local_hub.contents import Content
from composer_hub.local_hub.store import KINDS, Repo, Store
from composer_hub.local_hub.trees import BadPath, check_path

MAX_VOLUMES = 20
_MOUNT_PATH = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+")

Signature = tuple[int, int, int]
"""Size, time of change and inode: a file with the same three was not changed."""


@dataclass(frozen=True)
class Volume:
    """A requested mount with its source: a bucket, or a repository at a commit."""

    source: Bucket | Repo
    mount_path: str
    folder: str = ""
    revision: str = ""
    is_writable: bool = False

    @property
    def variable(self) -> str:
        """Return the environment variable that names the mount's folder."""
        return "COMPOSER_JOB_MOUNT_" + re.sub(r"[^A-Z0-9]+", "_", self.mount_path.strip("/").upper())


@dataclass(frozen=True)
class Mount:
    """A volume in a folder, with the signatures of its files before the job."""

    volume: Volume
    root: Path
    before: dict[str, Signature] = field(default_factory=dict)


def read_volume(raw: Any) -> dict[str, Any]:
    """Check the form of one volume of a request; access to its source is checked later, with the caller."""
    if not isinstance(raw, dict) or raw.get("type") not in ("bucket", *KINDS):
        raise ApiError(400, "A volume has a `type` among bucket, model, dataset and space.", "BadRequest")
    for key in ("source", "mountPath"):
        if not isinstance(raw.get(key), str):
            raise ApiError(400, f"A volume needs the text `{key}`.", "BadRequest")
    if not _MOUNT_PATH.fullmatch(raw["mountPath"]) or ".." in raw["mountPath"].split("/"):
        raise ApiError(400, f"{raw['mountPath'][:200]!r} cannot be a mount path. Write an absolute one such as /data.")
    folder = str(raw.get("path") or "").strip("/")
    if folder:
        check_path(folder)
    return {
        "type": raw["type"],
        "source": raw["source"],
        "mountPath": raw["mountPath"],
        "revision": str(raw["revision"]) if raw.get("revision") else None,
        "readOnly": raw["type"] != "bucket" or raw.get("readOnly") is True,
        "path": folder or None,
    }


def fill(hub: Hub, volumes: Sequence[Volume], root: Path) -> list[Mount]:
    """Copy every volume to a folder below `root`, so that a job cannot reach the files of the store."""
    return [_fill(hub, volume, root / str(number)) for number, volume in enumerate(volumes)]


def _fill(hub: Hub, volume: Volume, root: Path) -> Mount:
    root.mkdir(parents=True)
    if isinstance(volume.source, Repo):
        _copy_repo(hub.store, volume.source, volume, root)
    else:
        _copy_bucket(hub, volume.source, volume, root)
    if not volume.is_writable:
        for path in _files(root):
            path.chmod(0o444)
    return Mount(volume, root, signatures(root) if volume.is_writable else {})


def _copy_repo(store: Store, repo: Repo, volume: Volume, root: Path) -> None:
    for path, entry in store.tree(repo, volume.revision).items():
        relative = _below(path, volume.folder)
        if relative is None:
            continue
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(store, store.content(repo, entry), target)


def _copy_bucket(hub: Hub, bucket: Bucket, volume: Volume, root: Path) -> None:
    for file in walk(hub.store.read(), bucket, volume.folder):
        target = root / (_below(file.path, volume.folder) or file.path.rpartition("/")[2])
        target.parent.mkdir(parents=True, exist_ok=True)
        content = hub.store.chunks.find(bucket.scope, file.xet_hash) if file.size else b""
        if content is None:
            raise FileNotFoundError(f"The chunks of {file.path} are missing from the folder of the embedded Hub.")
        _write(hub.store, content, target)


def _write(store: Store, content: Content, target: Path) -> None:
    with open(target, "wb") as file:
        file.writelines(store.pieces(content))


def _below(path: str, folder: str) -> str | None:
    """Return a path relative to a folder, or None if it is not below it."""
    if not folder:
        return path
    return path[len(folder) + 1 :] if path.startswith(folder + "/") else None


def replace_paths(words: Iterable[str], mounts: Sequence[Mount]) -> list[str]:
    """Replace mount paths by their folders, both whole paths and parents of paths."""
    folders = {mount.volume.mount_path: str(mount.root) for mount in mounts}
    if not folders:
        return list(words)
    choices = "|".join(re.escape(path) for path in sorted(folders, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w.~/-])({choices})(?![\w.-])")
    return [pattern.sub(lambda found: folders[found.group(1)], word) for word in words]


def variables(mounts: Sequence[Mount]) -> dict[str, str]:
    """Return the environment of a job: the variable of each volume -> the folder that holds its copy."""
    return {mount.volume.variable: str(mount.root) for mount in mounts}


def note(mounts: Sequence[Mount]) -> str:
    """Describe the mounts in one sentence."""
    if not mounts:
        return ""
    names = ", ".join(f"{mount.volume.mount_path} is ${mount.volume.variable}" for mount in mounts)
    return f" Mounts are folders: {names}; in the command and the environment their paths were replaced."


def signatures(root: Path) -> dict[str, Signature]:
    """Return the signature of each file below a folder."""
    found = {}
    for path in _files(root):
        state = path.stat()
        found[path.relative_to(root).as_posix()] = (state.st_size, state.st_mtime_ns, state.st_ino)
    return found


def _files(root: Path) -> list[Path]:
    """Return the regular files below a folder, without links, which may lead anywhere."""
    paths = (Path(folder) / name for folder, _, names in os.walk(root) for name in names)
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def changes_to_bucket(hub: Hub, bucket: Bucket, mount: Mount, user: str) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Upload the changes of a job; return the operations for the bucket, and the names that it cannot hold."""
    after = signatures(mount.root)
    prefix = f"{mount.volume.folder}/" if mount.volume.folder else ""
    written: list[tuple[str, Path]] = []
    refused: list[str] = []
    for path in sorted(path for path in after if after[path] != mount.before.get(path)):
        try:
            written.append((check_path(prefix + path), mount.root / path))
        except (BadPath, UnicodeEncodeError):
            refused.append(path)
    hashes = xetclient.upload(hub, bucket.scope, user, [source for _, source in written]) if written else []
    operations: list[Mapping[str, Any]] = [
        {"type": "deleteFile", "path": prefix + path} for path in mount.before if path not in after
    ]
    for (path, source), xet_hash in zip(written, hashes, strict=True):
        mtime = source.stat().st_mtime_ns // 1_000_000
        operations.append({"type": "addFile", "path": path, "xetHash": xet_hash, "mtime": mtime})
    return operations, refused
