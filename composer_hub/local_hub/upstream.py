"""Repositories of another Hub, fetched once when somebody reads a name that is not here: `hub serve --upstream URL`.

Only public repositories are fetched, without a token, at the head of `main`. The copy is read-only, because its
namespace belongs to nobody here, and it stays as it was fetched.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from composer_hub.local_hub.calls import ApiError
from composer_hub.local_hub.store import INLINE_LIMIT, Store
from composer_hub.local_hub.trees import Operation, PutFile, TreeEntry, check_path, git_oid, lfs_entry

MISSING_SECONDS = 60.0
"""A name that the other Hub did not have is asked for again after this time."""
_PIECE = 1 << 20


@dataclass
class Upstream:
    """Another Hub, and what it did not have."""

    url: str
    _missing: dict[tuple[str, str], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fetch(self, store: Store, kind: str, name: str) -> bool:
        """Copy a repository unless it is here; return whether there is a new one."""
        with self._lock:  # two readers at once fetch it once
            if store.find_repo(kind, name) is not None:
                return True
            if self._missing.get((kind, name), 0) > time.monotonic():
                return False
            with TemporaryDirectory(dir=store.blobs.unfinished) as scratch:
                folder = Path(scratch)
                revision = self._download(kind, name, folder)
                if revision:
                    _keep(store, kind, name, folder, f"Copy of {self.url} at {revision}")
                else:
                    self._missing[kind, name] = time.monotonic() + MISSING_SECONDS
            return bool(revision)

    def _download(self, kind: str, name: str, folder: Path) -> str:
        """Download the head of main; return its commit, or an empty text if it is not there for everybody."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
        from huggingface_hub.utils import httpx

        api = HfApi(endpoint=self.url, token=False)
        try:
            revision = api.repo_info(name, repo_type=kind).sha or ""
            api.snapshot_download(name, repo_type=kind, revision=revision, local_dir=folder, token=False)
        except (RepositoryNotFoundError, GatedRepoError, HFValidationError):
            return ""
        except (httpx.HTTPError, OSError) as error:
            raise ApiError(502, f"{self.url} cannot be asked for {name} ({type(error).__name__}).") from error
        return revision


def _keep(store: Store, kind: str, name: str, folder: Path, title: str) -> None:
    """Make a repository of downloaded files, in one transaction."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    operations: list[Operation] = []
    small: list[bytes] = []
    large: list[TreeEntry] = []
    for path in paths:
        inside = check_path(path.relative_to(folder).as_posix())
        if inside.startswith(".cache/huggingface/"):
            continue  # the client's own notes
        if path.stat().st_size <= INLINE_LIMIT:
            small.append(path.read_bytes())
            entry = TreeEntry(git_oid(small[-1]), len(small[-1]))
        else:
            entry = _add(store, path)
            large.append(entry)
        operations.append(PutFile(inside, entry))
    namespace = name.partition("/")[0]
    with store.write():
        repo = store.create_repo(kind, name, author=namespace)
        for entry in large:
            store.add_lfs(repo, entry.sha256, entry.size)
        store.commit(repo, "refs/heads/main", operations, title=title, author=namespace, small=small)


def _add(store: Store, path: Path) -> TreeEntry:
    with open(path, "rb") as file, store.blobs.writer() as writer:
        while piece := file.read(_PIECE):
            writer.write(piece)
        entry = lfs_entry(writer.sha256, writer.size)
        if not store.blobs.holds(entry.sha256):
            writer.keep(entry.sha256)
    return entry
