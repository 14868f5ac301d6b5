"""The files of verdicts in a dataset, and who sent them: as the Hub recorded it, never as a file claims.

Anyone may open a pull request with a file under `verdicts/ada/`, and the commit of its merge has the owner as
author. So a file is the decision of the account that opened the pull request which brought it to main;
without one, of the only author of its commit. A file that names another account is ignored, and so is a file
whose sender the Hub does not name.

The Space has this file as well (`space/inspector/reviews.py` is a link to it), so it imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import islice

from huggingface_hub import Discussion, DiscussionWithDetails, HfApi
from huggingface_hub.community import DiscussionCommit
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RevisionNotFoundError
from huggingface_hub.hf_api import GitCommitInfo, RepoFile

REVIEWS = "verdicts"
"""The folder to which reviewers' pull requests only ever add files."""
_OPEN = ("open", "draft")
_NOBODY = ("", "deleted")  # the second is the client's word for an account that is gone
_MAX_OPEN = 50  # pull requests that are read for their files
_MAX_PULLS = 1_000  # that are searched for a commit


def is_review(path: str) -> bool:
    """Return whether a path of a dataset is a file of verdicts."""
    return path.startswith(f"{REVIEWS}/") and path.endswith(".jsonl")


@dataclass(frozen=True, slots=True)
class ReviewFile:
    """A file of verdicts: its sender and time, and in `refusal` why it is ignored, if it is."""

    path: str
    revision: str  # the commit that brought it; "" if that is not known
    pull: int = 0  # the pull request that brought it; 0 for a commit to main
    reviewer: str = ""
    sent_at: str = ""  # ISO 8601 in UTC
    refusal: str = ""

    def __str__(self) -> str:
        return f"{self.path!r}: {self.refusal}" if self.refusal else self.path

    def refused(self, reason: str) -> ReviewFile:
        """Return the file as one whose sender is not known."""
        return replace(self, refusal=f"who sent it is not known, because {reason}")

    def signed(self, names: Iterable[str]) -> ReviewFile:
        """Return the file, refused if it names another reviewer than the account that sent it."""
        others = sorted(set(names) - {self.reviewer})
        if self.refusal or not others:
            return self
        way = f"with pull request {self.pull}" if self.pull else "with a commit"
        return replace(self, refusal=f"{self.reviewer} sent it {way}, but it names {_listed(others)} as reviewer")


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The record of a pull request: its author, the authors of its commits, and the commits it brought."""

    num: int
    authors: tuple[str, ...]  # who opened it, then others who committed to it
    oids: frozenset[str]
    sent_at: datetime

    @classmethod
    def of(cls, pull: DiscussionWithDetails) -> PullRequest:
        """Keep what is needed of a pull request; the rest, such as its diff, can be large."""
        commits = [event for event in pull.events if isinstance(event, DiscussionCommit)]
        others = sorted({commit.author for commit in commits} - {pull.author})
        oids = frozenset(commit.oid for commit in commits) | {pull.merge_commit_oid or ""}
        sent_at = max((commit.created_at for commit in commits), default=pull.created_at)
        return cls(pull.num, (pull.author, *others), oids, sent_at)

    def attributed(self, file: ReviewFile) -> ReviewFile:
        """Return a file of this pull request as the decision of its only author."""
        if len(self.authors) > 1 or self.authors[0] in _NOBODY:
            return file.refused(f"pull request {self.num} is by {_listed(self.authors)}")
        return _sent_by(replace(file, pull=self.num), self.authors[0], self.sent_at)


@dataclass
class ReviewFiles:
    """The files of verdicts of one dataset on the Hub."""

    api: HfApi
    repo: str
    token: str | bool | None = None
    # (path, commit) -> its file. A commit that no pull request had when it was seen first was made on main.
    known: MutableMapping[tuple[str, str], ReviewFile] = field(default_factory=dict)
    _requests: dict[int, PullRequest] = field(default_factory=dict, init=False)
    _log: dict[str, GitCommitInfo] = field(default_factory=dict, init=False)

    def merged(self, revision: str) -> list[ReviewFile]:
        """Return the files that a revision of main holds."""
        return [self._merged(item) for item in self._tree(revision)]

    def proposed(self) -> Iterator[ReviewFile]:
        """Yield the files that open pull requests add or change, the newest request first."""
        for pull in islice((pull for pull in self.pulls or () if pull.status in _OPEN), _MAX_OPEN):
            request = self._request(pull)
            for item in self._tree(f"refs/pr/{pull.num}"):
                if item.last_commit is not None and item.last_commit.oid in request.oids:
                    yield request.attributed(ReviewFile(item.path, item.last_commit.oid))

    @cached_property
    def pulls(self) -> list[Discussion] | None:
        """All pull requests, the newest first, or None if the Hub does not show them."""
        try:
            found = self.api.get_repo_discussions(
                self.repo, repo_type="dataset", discussion_type="pull_request", token=self.token
            )
            return list(islice(found, _MAX_PULLS + 1))
        except HfHubHTTPError as error:
            if error.response is not None and error.response.status_code in (401, 403, 404, 410):
                return None  # An owner can turn them off.
            raise

    def _merged(self, item: RepoFile) -> ReviewFile:
        last = item.last_commit
        if last is None:
            return ReviewFile(item.path, "").refused("the Hub does not name its commit")
        file = self.known.get((item.path, last.oid))
        if file is None:
            file = self._attributed(ReviewFile(item.path, last.oid), last.title)
            if not file.refusal:
                self.known[item.path, last.oid] = file
        return file

    def _attributed(self, file: ReviewFile, title: str) -> ReviewFile:
        """Find who sent a file of main, given the title of its commit."""
        if self.pulls is None:
            return file.refused("the pull requests of the dataset cannot be read")
        # The number in the title of a merge saves reading other requests first. It proves nothing.
        for pull in sorted(self.pulls, key=lambda pull: f"(#{pull.num})" not in title):
            # A request that was merged with git leaves its own commits on main. Their authors prove nothing.
            if file.revision in self._request(pull).oids:
                return self._request(pull).attributed(file)
        if len(self.pulls) > _MAX_PULLS:
            return file.refused(f"the dataset has over {_MAX_PULLS:,} pull requests")
        if file.revision not in self._log:
            commits = self.api.list_repo_commits(
                self.repo, repo_type="dataset", revision=file.revision, token=self.token
            )
            self._log |= {commit.commit_id: commit for commit in commits}
        commit = self._log.get(file.revision)
        if commit is None or len(commit.authors) != 1 or commit.authors[0] in _NOBODY:
            return file.refused(f"commit {file.revision[:10]} does not have one author")
        return _sent_by(file, commit.authors[0], commit.created_at)

    def _request(self, pull: Discussion) -> PullRequest:
        if pull.num not in self._requests:
            details = self.api.get_discussion_details(self.repo, pull.num, repo_type="dataset", token=self.token)
            self._requests[pull.num] = PullRequest.of(details)
        return self._requests[pull.num]

    def _tree(self, revision: str) -> list[RepoFile]:
        try:
            entries = self.api.list_repo_tree(
                self.repo,
                REVIEWS,
                recursive=True,
                expand=True,  # for the last commit of each file
                revision=revision,
                repo_type="dataset",
                token=self.token,
            )
            files = [entry for entry in entries if isinstance(entry, RepoFile) and is_review(entry.path)]
        except (EntryNotFoundError, RevisionNotFoundError):
            return []
        return sorted(files, key=lambda file: file.path)


def _sent_by(file: ReviewFile, author: str, when: datetime) -> ReviewFile:
    """Return the file with its sender, refused if it lies in another reviewer's folder."""
    folders = file.path.split("/")[1:-1]
    return replace(file, reviewer=author, sent_at=when.isoformat(timespec="milliseconds")).signed(folders[:1])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"{name[:60]!r}" for name in names[:5])
