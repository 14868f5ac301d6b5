"""Names of repositories and versions: `owner/name`, `owner/name@revision`, `vX.Y.Z`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from huggingface_hub.utils import HFValidationError, validate_repo_id

from composer_hub import exits


class RefError(exits.UsageError):
    """A repository or version name that cannot be one."""


@dataclass(frozen=True, slots=True)
class RepoRef:
    """A repository and one of its revisions: a tag, a branch or a commit."""

    repo: str
    revision: str = "main"

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}"


def parse_ref(text: str) -> RepoRef:
    """Read `owner/name` or `owner/name@revision`."""
    repo, _, revision = text.partition("@")
    if "@" in text and not revision:
        raise RefError(f"{text!r} ends in '@': add a tag or a commit, like {repo}@v1.0.0, or leave the '@' out.")
    return RepoRef(check_repo(repo), revision or "main")


def check_repo(repo: str) -> str:
    """Return the name if it is valid on the Hub and has an owner."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise RefError(f"{repo!r} is not a repository name ({error}) Write it as owner/name.") from error
    if repo.count("/") != 1:
        raise RefError(f"{repo!r} has no owner: write it as owner/name, for example me/{repo}.")
    return repo


@dataclass(frozen=True, order=True, slots=True)
class VersionNumber:
    """Three numbers; the tag of a version is `vX.Y.Z`."""

    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def tag(self) -> str:
        return f"v{self}"

    def bump(self, part: str) -> VersionNumber:
        """Return the next version at that part."""
        if part == "major":
            return VersionNumber(self.major + 1, 0, 0)
        if part == "minor":
            return VersionNumber(self.major, self.minor + 1, 0)
        return VersionNumber(self.major, self.minor, self.patch + 1)


FIRST_VERSION = VersionNumber(1, 0, 0)
_VERSION = re.compile(r"v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


def newest_first(tags: Iterable[str]) -> list[str]:
    """Sort tags: versions by their numbers, then other tags by name."""

    def key(tag: str) -> tuple[bool, tuple[int, ...], str]:
        match = _VERSION.fullmatch(tag)
        return match is not None, tuple(map(int, match.groups())) if match else (), tag

    return sorted(tags, key=key, reverse=True)


def parse_version(text: str) -> VersionNumber:
    """Read `1.2.3` or `v1.2.3`."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise RefError(f"{text!r} is not a version: write three numbers, like v1.2.0.")
    return VersionNumber(*map(int, match.groups()))
