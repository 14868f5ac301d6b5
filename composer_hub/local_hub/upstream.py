"""Repositories of another Hub, fetched once when somebody reads what is not here: `hub serve --upstream URL`.

Only public repositories are fetched, without a token: `main` first, then each branch, tag or commit that is asked for.
A copy has the id of its commit there, but no history. It is read-only, because its namespace belongs to nobody here,
and it stays as it was fetched.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from composer_hub.local_hub.calls import ApiError
from composer_hub.local_hub.store import INLINE_LIMIT, GitRef, NoRevision, Repo, Store, is_commit_id
from composer_hub.local_hub.trees import Operation, PutFile, TreeEntry, check_path, git_oid, lfs_entry

MAIN = "main"
MISSING_SECONDS = 60.0
"""A name that the other Hub did not have is asked for again after this time."""
_PIECE = 1 << 20


@dataclass
class Upstream:
    """Another Hub, and what it did not have."""

    url: str
    _missing: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fetch(self, store: Store, kind: str, name: str, revision: str = MAIN) -> bool:
        """Copy a revision of a repository unless it is here; return whether it is here now."""
        with self._lock:  # two readers at once fetch it once
            repo = store.find_repo(kind, name)
            if repo is not None and _holds(store, repo, revision):
                return True
            key = (kind, name, revision)
            if self._missing.get(key, 0) > time.monotonic():
                return False
            with TemporaryDirectory(dir=store.blobs.unfinished) as scratch:
                found = self._download(store, repo, key, Path(scratch))
                if found is None:
                    self._missing[key] = time.monotonic() + MISSING_SECONDS
                else:
                    _keep(store, kind, name, found, Path(scratch), f"Copy of {self.url} at {found.oid}")
            return found is not None

    def _download(self, store: Store, repo: Repo | None, key: tuple[str, str, str], folder: Path) -> GitRef | None:
        """Download a revision and return the ref to keep it under, or None if it is not there for everybody."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import (
            GatedRepoError,
            HFValidationError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
        from huggingface_hub.utils import httpx

        kind, name, revision = key
        api = HfApi(endpoint=self.url, token=False)
        try:
            oid = api.repo_info(name, repo_type=kind, revision=revision).sha or ""
            if is_commit_id(revision) and revision != oid:
                return None  # a branch or a tag there that poses as a commit
            if repo is None or not _holds(store, repo, oid):
                api.snapshot_download(name, repo_type=kind, revision=oid, local_dir=folder, token=False)
            if revision == MAIN or revision.startswith("refs/"):
                return GitRef(revision if revision.startswith("refs/") else f"refs/heads/{MAIN}", oid)
            refs = api.list_repo_refs(name, repo_type=kind)
            named = [ref.ref for ref in (*refs.branches, *refs.tags) if ref.name == revision]
            return GitRef(named[0] if named else f"refs/copies/{oid}", oid)
        except (RepositoryNotFoundError, RevisionNotFoundError, GatedRepoError, HFValidationError):
            return None
        except (httpx.HTTPError, OSError) as error:
            raise ApiError(502, f"{self.url} cannot be asked for {name} ({type(error).__name__}).") from error


def _holds(store: Store, repo: Repo, revision: str) -> bool:
    try:
        store.resolve(repo, revision)
    except NoRevision:
        return False
    return True


def _keep(store: Store, kind: str, name: str, found: GitRef, folder: Path, title: str) -> None:
    """Make a commit of downloaded files, and the repository if it is the first, in one transaction."""
    operations, small, large = _read(store, folder)
    namespace = name.partition("/")[0]
    with store.write():
        repo = store.find_repo(kind, name)
        is_new = repo is None
        repo = repo or store.create_repo(kind, name, author=namespace)
        if not is_new and _holds(store, repo, found.oid):
            store.create_ref(repo, found.ref, found.oid)
            return
        if not is_new:
            *_, first = store.log(repo, store.resolve(repo, MAIN))
            store.create_ref(repo, found.ref, first.oid)
        for entry in large:
            store.add_lfs(repo, entry.sha256, entry.size)
        store.commit(repo, found.ref, operations, title=title, author=namespace, small=small, oid=found.oid)


def _read(store: Store, folder: Path) -> tuple[list[Operation], list[bytes], list[TreeEntry]]:
    """Return downloaded files as the operations of a commit, its small contents and its large entries."""
    operations: list[Operation] = []
    small: list[bytes] = []
    large: list[TreeEntry] = []
    for path in (path for path in sorted(folder.rglob("*")) if path.is_file()):
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
    return operations, small, large


def _add(store: Store, path: Path) -> TreeEntry:
    with open(path, "rb") as file, store.blobs.writer() as writer:
        while piece := file.read(_PIECE):
            writer.write(piece)
        entry = lfs_entry(writer.sha256, writer.size)
        if not store.blobs.holds(entry.sha256):
            writer.keep(entry.sha256)
    return entry
