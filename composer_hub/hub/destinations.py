"""Where versions go and come from: the Hub, the embedded Hub, or a folder; one small set of operations for all three.

`destination("local" | "hub" | FOLDER)` gives a `Destination`. Publishing, loading, diff and lineage know nothing else.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, close_session, constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import httpx

from composer_hub import exits

if TYPE_CHECKING:
    from composer_hub.local_hub.server import Running, ServerProcess

T = TypeVar("T")


class HubError(exits.ComposerError, OSError):
    """The Hub did not do what was asked."""


class HubRefused(exits.Refused, PermissionError):
    """The token or the visibility forbids it."""


class Moved(Exception):
    """The branch has moved since the plan was made; the plan has to be made anew."""


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
    """The operations that publishing and loading need."""

    name: str

    @property
    def address(self) -> str:
        """Return where it is, for people."""

    def resolve(self, repo: str, revision: str, repo_type: str = "dataset") -> str | None:
        """Return the commit a revision names, or None where repository or revision do not exist."""

    def files(self, repo: str, revision: str, repo_type: str = "dataset") -> dict[str, Entry]:
        """Return path -> entry of a commit."""

    def fetch(self, repo: str, revision: str, path: str, repo_type: str = "dataset") -> Path | None:
        """Return a local copy of a file of a commit, or None where there is none."""

    def tags(self, repo: str, repo_type: str = "dataset") -> dict[str, str]:
        """Return tag -> commit."""

    def is_private(self, repo: str, repo_type: str = "dataset") -> bool | None:
        """Return the visibility as it is now, or None where the repository does not exist."""

    def prepare(self, repo: str, *, private: bool, repo_type: str = "dataset") -> None:
        """Make sure the repository exists and may be written."""

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
        """Write all changes as one commit on top of `parent`; raise `Moved` where that is no longer the head."""

    def tag(self, repo: str, tag: str, revision: str, *, message: str, repo_type: str = "dataset") -> None:
        """Name a commit."""


def destination(to: str) -> Destination:
    """Return the destination that `--to` names: `local`, `hub`, or a folder."""
    if to in ("hub", "local") and constants.is_offline_mode():
        raise exits.UsageError(
            f"HF_HUB_OFFLINE is set: clients ask nothing with it, the embedded Hub included. Unset it for --to {to}, "
            "or name a folder: --to ./datasets."
        )
    if to == "hub":
        return HubDestination("hub", HfApi())
    if to == "local":
        from composer_hub.local_hub.errors import LocalHubError
        from composer_hub.local_hub.server import embedded

        try:
            return embedded_hub(embedded())
        except LocalHubError as error:
            raise HubError(str(error)) from error
    if os.sep not in to and to != "." and not Path(to).is_dir():
        raise exits.UsageError(
            f"--to {to!r}: say local (the embedded Hub), hub, or a folder with a slash in it, like ./{to}."
        )
    root = Path(to).expanduser()
    if root.exists() and not root.is_dir():
        raise exits.UsageError(f"--to {to}: that is a file. Name a folder.")
    from composer_hub.hub.folder import FolderDestination

    return FolderDestination(root)


def embedded_hub(server: Running | ServerProcess) -> HubDestination:
    """Return an embedded Hub that runs as a destination, with a cache of its own beside its store."""
    from composer_hub.local_hub.env import without_proxy

    # Calls to the embedded Hub must not go through a proxy that the environment names.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = without_proxy(os.environ)
    close_session()  # a client that was made before knows only the proxy
    api = HfApi(endpoint=server.endpoint, token=server.token)
    return HubDestination("local", api, cache=server.root / "home" / "hub")


# ------------------------------------------------------------------------------------------------------------ retries


@dataclass(frozen=True)
class Patience:
    """How long to go on with a Hub that is busy: the number of tries, the waits, and who sleeps."""

    max_tries: int = 6
    first_wait_s: float = 0.5
    max_wait_s: float = 30.0
    sleep: Callable[[float], Any] = time.sleep
    jitter: Callable[[], float] = random.random

    def wait_s(self, tried: int, error: Exception) -> float:
        """Return how long to wait: what the server asked for, else twice as long as the last time, jittered."""
        asked = _retry_after(error)
        if asked is not None:
            return min(asked, 10 * self.max_wait_s)
        return min(self.first_wait_s * 2**tried, self.max_wait_s) * (0.5 + self.jitter() / 2)

    def __call__(self, what: str, call: Callable[[], T]) -> T:
        """Run a call again while the Hub says busy, breaks off or fails on its own side."""
        for tried in range(self.max_tries):
            try:
                return call()
            except (HfHubHTTPError, LocalEntryNotFoundError, httpx.TransportError) as error:
                if not may_pass(error):
                    raise
                last = error
                if tried + 1 < self.max_tries:
                    self.sleep(self.wait_s(tried, error))
        raise HubError(
            f"{what} failed {self.max_tries} times, last with: {sentence(last)} Nothing half-done is visible; "
            "run the same command again when the Hub answers."
        ) from last


def status_of(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)


def may_pass(error: Exception) -> bool:
    # No status: the connection broke, or a download found neither the Hub nor a copy in the cache.
    status = status_of(error)
    return status is None or status in (408, 409, 429) or (status >= 500 and status != 501)


def _retry_after(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    value = response.headers.get("Retry-After") if response is not None else None
    return float(value) if value and value.strip().isdigit() else None


def sentence(error: Exception) -> str:
    """Return the last line of what the server said, else of what the client made of it."""
    said = getattr(error, "server_message", None) or error
    return (str(said).strip().splitlines() or [type(error).__name__])[-1].rstrip(".") + "."


# ---------------------------------------------------------------------------------------------------------------- Hub


@dataclass
class HubDestination:
    """The Hub, or the embedded Hub: anything that speaks its protocol."""

    name: str
    api: HfApi
    patience: Patience = field(default_factory=Patience)
    cache: Path | None = None  # of downloads; the clients' own where None

    @property
    def address(self) -> str:
        return self.api.endpoint

    def resolve(self, repo: str, revision: str, repo_type: str = "dataset") -> str | None:
        try:
            return self._ask(
                f"Reading {repo}@{revision}",
                lambda: self.api.repo_info(repo, revision=revision, repo_type=repo_type).sha,
            )
        except (RepositoryNotFoundError, RevisionNotFoundError):
            return None

    def files(self, repo: str, revision: str, repo_type: str = "dataset") -> dict[str, Entry]:
        def tree() -> dict[str, Entry]:
            items = self.api.list_repo_tree(repo, revision=revision, recursive=True, repo_type=repo_type)
            return {item.path: _entry(item) for item in items if isinstance(item, RepoFile)}

        return self._ask(f"Listing {repo}", tree)

    def fetch(self, repo: str, revision: str, path: str, repo_type: str = "dataset") -> Path | None:
        def download() -> Path:
            return Path(
                self.api.hf_hub_download(repo, path, revision=revision, repo_type=repo_type, cache_dir=self.cache)
            )

        try:
            return self._ask(f"Downloading {repo}/{path}", download)
        except RemoteEntryNotFoundError:
            return None

    def tags(self, repo: str, repo_type: str = "dataset") -> dict[str, str]:
        refs = self._ask(f"Listing the tags of {repo}", lambda: self.api.list_repo_refs(repo, repo_type=repo_type))
        return {tag.name: tag.target_commit for tag in refs.tags}

    def is_private(self, repo: str, repo_type: str = "dataset") -> bool | None:
        try:
            info = self._ask(f"Reading {repo}", lambda: self.api.repo_info(repo, repo_type=repo_type))
        except RepositoryNotFoundError:
            return None
        return bool(info.private)

    def prepare(self, repo: str, *, private: bool, repo_type: str = "dataset") -> None:
        if self.is_private(repo, repo_type) is None:
            # `private` counts only for a repository that is made now; the caller reads the visibility back.
            self._ask(
                f"Creating {repo}",
                lambda: self.api.create_repo(repo, private=private, repo_type=repo_type, exist_ok=True),
            )
        self._ask(
            f"Asking for the right to write {repo}", lambda: self.api.auth_check(repo, repo_type=repo_type, write=True)
        )

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
        def send() -> str:
            # Operations remember what was uploaded and may not be used twice, so each try makes its own.
            try:
                return self.api.create_commit(
                    repo,
                    [_operation(change) for change in changes],
                    commit_message=title,
                    commit_description=body,
                    parent_commit=parent,
                    repo_type=repo_type,
                ).oid
            except HfHubHTTPError as error:
                if status_of(error) in (409, 412):
                    raise Moved from error
                raise
            except httpx.TransportError as error:
                # The answer got lost, the commit may not have: look at the head again before sending it twice.
                raise Moved from error

        return self._ask(f"Committing to {repo}", send)

    def tag(self, repo: str, tag: str, revision: str, *, message: str, repo_type: str = "dataset") -> None:
        def create() -> None:
            self.api.create_tag(
                repo, tag=tag, revision=revision, tag_message=message, repo_type=repo_type, exist_ok=True
            )

        self._ask(f"Tagging {repo} as {tag}", create)
        there = self.tags(repo, repo_type).get(tag)
        if there != revision:
            raise HubError(f"{repo} has a tag {tag} on another commit ({there}): publish again with a free version.")

    def _ask(self, what: str, call: Callable[[], T]) -> T:
        """Run a call patiently; say plainly what a refusal means."""
        try:
            return self.patience(what, call)
        except (RevisionNotFoundError, RemoteEntryNotFoundError, RepositoryNotFoundError) as error:
            if isinstance(error, RepositoryNotFoundError) and status_of(error) == 401 and self.api.token is None:
                raise HubRefused(
                    f"{what}: {self.address} does not know you, or there is no such repository. "
                    "Log in with `hf auth login`, or check the name."
                ) from error
            raise
        except GatedRepoError as error:
            raise HubRefused(f"{what}: the repository is gated. Ask for access on its page first.") from error
        except HfHubHTTPError as error:
            raise self._explained(what, error) from error

    def _explained(self, what: str, error: HfHubHTTPError) -> Exception:
        status = status_of(error)
        if status == 401:
            return HubRefused(f"{what}: the token is not valid at {self.address}. Log in with `hf auth login`.")
        if status == 402:
            return HubRefused(f"{what}: {sentence(error)} The account's plan does not include this.")
        if status == 403:
            return HubRefused(f"{what}: {sentence(error)} Use a token with write access to that owner.")
        return HubError(f"{what}: the Hub answered {status}: {sentence(error)}")


def _operation(change: Change) -> CommitOperationAdd | CommitOperationDelete:
    if isinstance(change, Delete):
        return CommitOperationDelete(path_in_repo=change.path)
    return CommitOperationAdd(path_in_repo=change.path, path_or_fileobj=change.content)


def _entry(item: RepoFile) -> Entry:
    return Entry(item.size, item.lfs.sha256 if item.lfs else item.blob_id)
