"""Places that hold versions: the Hub, the embedded Hub, or a folder.

`destination("local" | "hub" | FOLDER)` returns a `Destination`, which is all that publishing, loading, diff and lineage
know about the place.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, close_session, constants
from huggingface_hub.errors import (
    BucketNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    JobNotFoundError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import httpx

from composer_hub import exits
from composer_hub.hub.folder import FolderDestination
from composer_hub.hub.protocol import Add, Change, Destination, Entry, HubError, HubRefused, Moved
from composer_hub.hub.reviews import ReviewFile, ReviewFiles
from composer_hub.local_hub.env import without_proxy
from composer_hub.local_hub.errors import LocalHubError
from composer_hub.local_hub.server import RunningHub, ServerProcess, embedded

T = TypeVar("T")


def destination(to: str) -> Destination:
    """Return the destination that `--to` names: `local`, `hub`, or a folder."""
    if to in ("hub", "local") and constants.is_offline_mode():
        raise exits.UsageError(
            f"HF_HUB_OFFLINE is set, which also blocks the embedded Hub. Unset it for --to {to}, or name a folder: "
            "--to ./datasets."
        )
    if to == "hub":
        return HubDestination("hub", HfApi())
    if to == "local":
        try:
            return embedded_hub(embedded())
        except LocalHubError as error:
            raise HubError(str(error)) from error
    if os.sep not in to and to != "." and not Path(to).is_dir():
        raise exits.UsageError(
            f"--to {to!r} is not a destination: use local (the embedded Hub), hub, or a folder like ./{to}."
        )
    root = Path(to).expanduser()
    if root.exists() and not root.is_dir():
        raise exits.UsageError(f"--to {to} is a file. Name a folder.")
    return FolderDestination(root)


def embedded_hub(server: RunningHub | ServerProcess) -> HubDestination:
    """Return a running embedded Hub as a destination, with its own cache beside its store."""
    # Calls to the embedded Hub must not go through a proxy that the environment names.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = without_proxy(os.environ)
    close_session()  # an existing client still uses the proxy
    api = HfApi(endpoint=server.endpoint, token=server.token)
    return HubDestination("local", api, cache=server.root / "home" / "hub")


# ------------------------------------------------------------------------------------------------------------ retries


@dataclass(frozen=True)
class Patience:
    """How often to retry a busy Hub, how long to wait, and how to sleep."""

    max_tries: int = 6
    first_wait_s: float = 0.5
    max_wait_s: float = 30.0
    sleep: Callable[[float], Any] = time.sleep
    jitter: Callable[[], float] = random.random

    def wait_s(self, tried: int, error: Exception) -> float:
        """Return the next wait: the server's Retry-After, else twice the last wait, with jitter."""
        asked = _retry_after(error)
        if asked is not None:
            return min(asked, 10 * self.max_wait_s)
        return min(self.first_wait_s * 2**tried, self.max_wait_s) * (0.5 + self.jitter() / 2)

    def __call__(self, what: str, call: Callable[[], T]) -> T:
        """Retry a call while the Hub is busy, drops the connection or has an error on its side."""
        for tried in range(self.max_tries):
            try:
                return call()
            except (HfHubHTTPError, LocalEntryNotFoundError, httpx.TransportError) as error:
                if not _may_pass(error):
                    raise
                last = error
                if tried + 1 < self.max_tries:
                    self.sleep(self.wait_s(tried, error))
        raise HubError(
            f"{what} failed {self.max_tries} times, last with: {sentence(last)} No partial result is visible; run the "
            "same command again when the Hub answers."
        ) from last


def status_of(error: Exception) -> int | None:
    """Return the HTTP status of an error; None if no response came."""
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)


def _may_pass(error: Exception) -> bool:
    # No status: the connection broke, or a download found neither the Hub nor a copy in the cache.
    status = status_of(error)
    return status is None or status in (408, 409, 429) or (status >= 500 and status != 501)


def _retry_after(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    value = response.headers.get("Retry-After") if response is not None else None
    return float(value) if value and value.strip().isdigit() else None


def sentence(error: Exception) -> str:
    """Return the last line of the server's message, else of the client's."""
    message = getattr(error, "server_message", None) or error
    return (str(message).strip().splitlines() or [type(error).__name__])[-1].rstrip(".") + "."


# ---------------------------------------------------------------------------------------------------------------- Hub


@dataclass
class HubDestination:
    """The Hub, the embedded Hub, or any server that speaks their protocol."""

    name: str
    api: HfApi
    patience: Patience = field(default_factory=Patience)
    cache: Path | None = None  # for downloads; None is the client's default

    @property
    def address(self) -> str:
        return self.api.endpoint

    def resolve(self, repo: str, revision: str, repo_type: str = "dataset") -> str | None:
        try:
            return self.ask(
                f"Reading {repo}@{revision}",
                lambda: self.api.repo_info(repo, revision=revision, repo_type=repo_type).sha,
            )
        except (RepositoryNotFoundError, RevisionNotFoundError):
            return None

    def files(self, repo: str, revision: str, repo_type: str = "dataset") -> dict[str, Entry]:
        def tree() -> dict[str, Entry]:
            items = self.api.list_repo_tree(repo, revision=revision, recursive=True, repo_type=repo_type)
            return {item.path: _entry(item) for item in items if isinstance(item, RepoFile)}

        return self.ask(f"Listing {repo}", tree)

    def fetch(self, repo: str, revision: str, path: str, repo_type: str = "dataset") -> Path | None:
        def download() -> Path:
            return Path(
                self.api.hf_hub_download(repo, path, revision=revision, repo_type=repo_type, cache_dir=self.cache)
            )

        try:
            return self.ask(f"Downloading {repo}/{path}", download)
        except RemoteEntryNotFoundError:
            return None

    def reviews(self, repo: str, revision: str) -> list[ReviewFile]:
        return self.ask(f"Reading the pull requests of {repo}", lambda: ReviewFiles(self.api, repo).merged(revision))

    def tags(self, repo: str, repo_type: str = "dataset") -> dict[str, str]:
        refs = self.ask(f"Listing the tags of {repo}", lambda: self.api.list_repo_refs(repo, repo_type=repo_type))
        return {tag.name: tag.target_commit for tag in refs.tags}

    def is_private(self, repo: str, repo_type: str = "dataset") -> bool | None:
        try:
            info = self.ask(f"Reading {repo}", lambda: self.api.repo_info(repo, repo_type=repo_type))
        except RepositoryNotFoundError:
            return None
        return bool(info.private)

    def exclusive(self, repo: str) -> AbstractContextManager[Any]:
        return nullcontext()  # the Hub refuses a commit on an old head

    def prepare(self, repo: str, *, private: bool, repo_type: str = "dataset") -> None:
        if self.is_private(repo, repo_type) is None:
            # The Hub ignores `private` if the repository exists, so callers read the visibility back.
            self.ask(
                f"Creating {repo}",
                lambda: self.api.create_repo(repo, private=private, repo_type=repo_type, exist_ok=True),
            )
        self.ask(f"Checking write access to {repo}", lambda: self.api.auth_check(repo, repo_type=repo_type, write=True))

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
        num_tries = 0

        def send() -> str:
            nonlocal num_tries
            num_tries += 1
            # Operations remember their upload and cannot be reused, so each try makes new ones.
            operations = [_operation(change) for change in changes]
            try:
                revision = self.api.create_commit(
                    repo,
                    operations,
                    commit_message=title,
                    commit_description=body,
                    parent_commit=parent,
                    repo_type=repo_type,
                ).oid
            except HfHubHTTPError as error:
                if status_of(error) in (409, 412):
                    raise Moved(maybe_by_us=num_tries > 1) from error
                raise
            except httpx.TransportError as error:
                # Only the answer may be lost, not the commit, so read the head again before a second attempt.
                raise Moved(maybe_by_us=True) from error
            # The client leaves out files that the head already has. If it has all of them, nothing is
            # committed, and the head may be another client's.
            if revision != parent and not any(getattr(one, "_is_committed", True) for one in operations):
                raise Moved(maybe_by_us=num_tries > 1)
            return revision

        return self.ask(f"Committing to {repo}", send)

    def tag(self, repo: str, tag: str, revision: str, *, message: str, repo_type: str = "dataset") -> None:
        def create() -> None:
            self.api.create_tag(
                repo, tag=tag, revision=revision, tag_message=message, repo_type=repo_type, exist_ok=True
            )

        self.ask(f"Tagging {repo} as {tag}", create)
        there = self.tags(repo, repo_type).get(tag)
        if there != revision:
            raise HubError(f"{repo} already has a tag {tag} on another commit ({there}). Publish with a free version.")

    def ask(self, what: str, call: Callable[[], T]) -> T:
        """Run a call with retries and explain a refusal; a missing thing keeps the client's exception."""
        try:
            return self.patience(f"{what} at {self.address}", call)
        except (BucketNotFoundError, JobNotFoundError):
            raise
        except (RevisionNotFoundError, RemoteEntryNotFoundError, RepositoryNotFoundError) as error:
            if isinstance(error, RepositoryNotFoundError) and status_of(error) == 401 and self.api.token is None:
                raise HubRefused(
                    f"{what}: you are not logged in at {self.address}, or the repository does not exist. Log in with "
                    "`hf auth login`, or check the name."
                ) from error
            raise
        except GatedRepoError as error:
            raise HubRefused(f"{what}: the repository is gated. Ask for access on its page first.") from error
        except HfHubHTTPError as error:
            raise self.explained(what, error) from error

    def explained(self, what: str, error: HfHubHTTPError) -> Exception:
        """Return the exception that explains a refused call."""
        status = status_of(error)
        if status == 401:
            return HubRefused(f"{what}: the token is not valid at {self.address}. Log in with `hf auth login`.")
        if status == 402:
            return HubRefused(f"{what}: {sentence(error)} Add credit to the account or change its plan.")
        if status == 403:
            return HubRefused(f"{what}: {sentence(error)} Use a token with the right to do this there.")
        if status == 412:
            return HubError(f"{what}: {sentence(error)} It changed meanwhile; run the same command again.")
        return HubError(f"{what}: the Hub answered {status}: {sentence(error)}")


def _operation(change: Change) -> CommitOperationAdd | CommitOperationDelete:
    if isinstance(change, Add):
        return CommitOperationAdd(path_in_repo=change.path, path_or_fileobj=change.content)
    return CommitOperationDelete(path_in_repo=change.path)


def _entry(item: RepoFile) -> Entry:
    return Entry(item.size, item.lfs.sha256 if item.lfs else item.blob_id)
