"""A version in a plain folder: the tree of a repository, replaced as a whole."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from composer_hub.hub.manifest import MANIFEST
from composer_hub.hub.protocol import Change, Delete, Entry, HubError, Moved
from composer_hub.hub.reviews import ReviewFile, is_review


@dataclass
class FolderDestination:
    """A folder `<root>/<owner>/<name>` with the tree of the repository; it holds one version at a time."""

    root: Path
    name: str = "folder"
    _digests: dict[tuple[int, ...], str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def address(self) -> str:
        return str(self.root)

    def resolve(self, repo: str, revision: str, repo_type: str = "dataset") -> str | None:
        head = self._head(repo)
        return head if head is not None and revision in ("main", head, *self.tags(repo)) else None

    def files(self, repo: str, revision: str, repo_type: str = "dataset") -> dict[str, Entry]:
        folder = self._folder(repo)
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
        return {path.relative_to(folder).as_posix(): Entry(path.stat().st_size, self._sha256(path)) for path in paths}

    def fetch(self, repo: str, revision: str, path: str, repo_type: str = "dataset") -> Path | None:
        folder = self._folder(repo)
        local = folder / path
        # One version of a dataset replaces another, in a new folder; files of a model are only added.
        is_version = repo_type == "dataset" and folder.is_dir()
        if is_version and revision != (self._digests.get(_key_of(folder)) or self._head(repo)):
            raise Moved(
                f"{folder} no longer holds {revision}: another version was published meanwhile. Run the same command "
                "again."
            )
        return local if local.is_file() else None

    def reviews(self, repo: str, revision: str) -> list[ReviewFile]:
        paths = (path for path in sorted(self.files(repo, revision)) if is_review(path))
        return [ReviewFile(path, revision).refused("a folder has no authors") for path in paths]

    def tags(self, repo: str, repo_type: str = "dataset") -> dict[str, str]:
        tag = self._folder(repo) / ".version"
        head = self._head(repo)
        return {tag.read_text().strip(): head} if head is not None and tag.is_file() else {}

    def is_private(self, repo: str, repo_type: str = "dataset") -> bool | None:
        return True if self._folder(repo).is_dir() else None

    def exclusive(self, repo: str) -> AbstractContextManager[Any]:
        parent = self._folder(repo).parent
        with _disk_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            return FileLock(parent / f".{self._folder(repo).name}.lock")

    def prepare(self, repo: str, *, private: bool, repo_type: str = "dataset") -> None:
        parent = self._folder(repo).parent
        with _disk_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            _tidy(self._folder(repo))
        manifest = self._folder(repo) / MANIFEST  # a dataset's has tables, a model's has none
        if repo_type != "dataset" and manifest.is_file() and b'"tables": {' in manifest.read_bytes():
            raise HubError(f"{self._folder(repo)} holds a dataset. Choose another name for the {repo_type}.")

    def commit(
        self,
        repo: str,
        changes: Sequence[Change],
        *,
        title: str,
        body: str,
        parent: str | None,
        repo_type: str = "dataset",
    ) -> str:
        folder = self._folder(repo)
        if self._head(repo) != parent:
            raise Moved
        with _disk_errors(folder):
            # The new tree is built beside the old one, so that readers see one version or the other.
            fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.new-", dir=folder.parent))
            fresh.chmod(0o755)
            if folder.is_dir():
                shutil.copytree(folder, fresh, dirs_exist_ok=True, copy_function=_link_or_copy)
            (fresh / ".version").unlink(missing_ok=True)
            for change in changes:
                _apply(fresh, change)
            _swap(folder, fresh)
        head = self._head(repo)
        assert head is not None  # the tree was just written
        return head

    def tag(self, repo: str, tag: str, revision: str, *, message: str, repo_type: str = "dataset") -> None:
        with _disk_errors(self._folder(repo)):
            (self._folder(repo) / ".version").write_text(tag + "\n")

    def _folder(self, repo: str) -> Path:
        return self.root / repo

    def _head(self, repo: str) -> str | None:
        if not self._folder(repo).is_dir():
            return None
        key = _key_of(self._folder(repo))  # before the files, which may change meanwhile
        files = {path: entry for path, entry in self.files(repo, "main").items() if path != ".version"}
        if not files:
            return None
        listing = "\n".join(f"{path} {entry.digest}" for path, entry in sorted(files.items()))
        self._digests[key] = head = hashlib.sha1(listing.encode()).hexdigest()
        return head

    def _sha256(self, path: Path) -> str:
        """Hash a file once: an unchanged file keeps its inode from one tree to the next."""
        key = _key_of(path)
        if key not in self._digests:
            self._digests[key] = _sha256(path)
        return self._digests[key]


def _key_of(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _apply(folder: Path, change: Change) -> None:
    target = folder / change.path
    target.unlink(missing_ok=True)  # maybe a link to the file of the old version, so do not write through it
    if isinstance(change, Delete):
        while target.parent != folder and not any(target.parent.iterdir()):
            target = target.parent
            target.rmdir()
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(change.content, bytes):
        target.write_bytes(change.content)
    else:
        shutil.copyfile(change.content, target)


def _tidy(folder: Path) -> None:
    """Clean up after an interrupted commit; restore the old tree if the new one did not replace it."""
    for old in folder.parent.glob(f".{folder.name}.old-*"):
        if not folder.exists():
            old.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    for fresh in folder.parent.glob(f".{folder.name}.new-*"):
        shutil.rmtree(fresh, ignore_errors=True)


def _swap(folder: Path, fresh: Path) -> None:
    old = fresh.with_name(fresh.name.replace(".new-", ".old-"))
    if folder.is_dir():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _disk_errors(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise HubError(f"The disk of {where} is full: free some space and run the same command again.") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise HubError(f"{where} cannot be written ({error.strerror}): choose another folder for --to.") from error
        raise
