"""The interface between publishing and a place that holds versions, with its errors.

`HubDestination` and `FolderDestination` implement `Destination`; everything else in this room uses only the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from composer_hub import exits
from composer_hub.hub.reviews import ReviewFile


class HubError(exits.ComposerError, OSError):
    """The Hub did not do what was asked."""


class HubRefused(exits.Refused, PermissionError):
    """The token or the visibility forbids it."""


class Moved(HubError):
    """The branch has moved since the plan was made, so a new plan is needed.

    `maybe_by_us` means that the commit may have been made, and only its answer was lost.
    """

    def __init__(self, text: str = "The branch has moved: run it again.", *, maybe_by_us: bool = False) -> None:
        super().__init__(text)
        self.maybe_by_us = maybe_by_us


@dataclass(frozen=True, slots=True)
class Add:
    """A file to write: bytes, or a path on this machine."""

    path: str
    content: bytes | Path
    num_bytes: int

    @classmethod
    def of(cls, path: str, content: bytes | Path) -> Add:
        size = len(content) if isinstance(content, bytes) else content.stat().st_size
        return cls(path, content, size)


@dataclass(frozen=True, slots=True)
class Delete:
    """A file to remove."""

    path: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a revision: its size and a digest that changes with its bytes."""

    num_bytes: int
    digest: str


Change = Add | Delete


class Destination(Protocol):
    """A place that holds versions: the Hub, the embedded Hub, or a folder."""

    name: str

    @property
    def address(self) -> str:
        """Return the endpoint or the folder, for messages."""

    def resolve(self, repo: str, revision: str, repo_type: str = "dataset") -> str | None:
        """Return the commit that a revision names, or None if the repository or revision does not exist."""

    def files(self, repo: str, revision: str, repo_type: str = "dataset") -> dict[str, Entry]:
        """Return path -> entry of a commit."""

    def fetch(self, repo: str, revision: str, path: str, repo_type: str = "dataset") -> Path | None:
        """Return a local copy of a file of a commit, or None if the commit lacks it.

        A place that keeps one version at a time raises `Moved` if it holds another one.
        """

    def reviews(self, repo: str, revision: str) -> list[ReviewFile]:
        """Return the files of verdicts of a commit, with the accounts that sent them."""

    def tags(self, repo: str, repo_type: str = "dataset") -> dict[str, str]:
        """Return tag -> commit."""

    def is_private(self, repo: str, repo_type: str = "dataset") -> bool | None:
        """Return the current visibility, or None if the repository does not exist."""

    def exclusive(self, repo: str) -> AbstractContextManager[Any]:
        """Keep other publications away meanwhile, if the place cannot refuse a commit on an old head by itself."""

    def prepare(self, repo: str, *, private: bool, repo_type: str = "dataset") -> None:
        """Make sure that the repository exists and may be written."""

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
        """Write all changes as one commit on top of `parent`; raise `Moved` if that is no longer the head."""

    def tag(self, repo: str, tag: str, revision: str, *, message: str, repo_type: str = "dataset") -> None:
        """Name a commit."""
