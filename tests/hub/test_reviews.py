"""Who decided is who sent the file, as the Hub recorded it: whatever its path, its rows and its titles say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.community import DiscussionCommit
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import httpx

from composer_hub import hub, pairs
from composer_hub.hub.reviews import ReviewFiles
from composer_hub.local_hub.server import ServerProcess

DATASET = {"repo_type": "dataset"}


def rows(reviewer: str, verdict: str = "accept", at: str = "2026-01-01T00:00:00+00:00") -> bytes:
    """Return a file of one verdict on the pair p."""
    row = {"verdict_id": f"{reviewer} {verdict}", "target": "pair", "pair_id": "p", "verdict": verdict}
    return json.dumps(row | {"reviewer": reviewer, "created_at": at}).encode() + b"\n"


@dataclass
class Dataset:
    """A dataset of `me` on the test Hub, with others who send files to it."""

    server: ServerProcess
    repo: str
    merges: bool = True

    def api(self, user: str) -> HfApi:
        return HfApi(endpoint=self.server.endpoint, token=f"hf_test_{user}")

    def send(self, user: str, path: str, content: bytes, *, title: str = "Verdicts", **options: Any) -> int:
        """Commit a file as a user: by pull request unless `create_pr` or `revision` is given; return its number."""
        options = {"create_pr": "revision" not in options} | options
        operations = [CommitOperationAdd(path, content)]
        made = self.api(user).create_commit(self.repo, operations, commit_message=title, **DATASET, **options)
        return int(made.pr_num or 0)

    def merge(self, num: int) -> None:
        if self.merges:
            self.api("me").merge_pull_request(self.repo, num, **DATASET)

    def count(self) -> tuple[dict[str, str], list[str]]:
        """Return the last verdict of each reviewer after all merges, and what was refused."""
        where = hub.embedded_hub(self.server)
        head = where.resolve(self.repo, "main")
        assert head is not None
        found, refused = pairs.merged_verdicts(hub.Version(where, self.repo, head, "", {}))
        found.sort(key=lambda verdict: verdict.created_at)
        return {verdict.reviewer: verdict.verdict for verdict in found}, [str(file) for file in refused]


@pytest.fixture
def dataset(hub_server: ServerProcess, hub_repo: Callable[[str], str]) -> Dataset:
    """A public dataset in which ada accepted the pair p: her pull request 1 was merged."""
    made = Dataset(hub_server, hub_repo("reviews"))
    made.api("me").create_repo(made.repo, private=False, **DATASET)
    made.merge(made.send("ada", "verdicts/ada/1.jsonl", rows("ada")))
    return made


def in_her_folder(dataset: Dataset) -> None:
    dataset.merge(dataset.send("eve", "verdicts/ada/2.jsonl", rows("ada", "reject", "2099-01-01")))


def in_her_folder_under_the_number_of_her_pull_request(dataset: Dataset) -> None:
    dataset.merge(dataset.send("eve", "verdicts/ada/2.jsonl", rows("ada", "reject"), title="Verdicts (#1)"))


def in_a_folder_of_the_forger(dataset: Dataset) -> None:
    dataset.merge(dataset.send("eve", "verdicts/eve/2.jsonl", rows("ada", "reject", "2099-01-01")))


def outside_the_folders(dataset: Dataset) -> None:
    dataset.merge(dataset.send("eve", "verdicts/2.jsonl", rows("ada", "reject")))


def deep_in_her_folder(dataset: Dataset) -> None:
    dataset.merge(dataset.send("eve", "verdicts/ada/eve/2.jsonl", rows("eve", "reject")))


def among_verdicts_of_the_forger(dataset: Dataset) -> None:
    dataset.merge(dataset.send("eve", "verdicts/eve/2.jsonl", rows("eve") + rows("ada", "reject")))


def as_the_one_who_merges(dataset: Dataset) -> None:
    dataset.merge(dataset.send("eve", "verdicts/me/2.jsonl", rows("me", "reject")))


def by_the_owner_without_a_pull_request(dataset: Dataset) -> None:
    dataset.send("me", "verdicts/ada/2.jsonl", rows("ada", "reject"), create_pr=False)


def by_the_owner_in_her_pull_request(dataset: Dataset) -> None:
    num = dataset.send("ada", "notes.md", b"a note")
    dataset.send("me", "verdicts/ada/2.jsonl", rows("ada", "reject"), revision=f"refs/pr/{num}")
    dataset.merge(num)


FORGERIES = (
    in_her_folder,
    in_her_folder_under_the_number_of_her_pull_request,
    in_a_folder_of_the_forger,
    outside_the_folders,
    deep_in_her_folder,
    among_verdicts_of_the_forger,
    as_the_one_who_merges,
    by_the_owner_without_a_pull_request,
    by_the_owner_in_her_pull_request,
)


@pytest.mark.parametrize("forge", FORGERIES)
def test_a_forged_file_counts_for_nobody_and_is_named(forge: Callable[[Dataset], None], dataset: Dataset) -> None:
    forge(dataset)
    counted, (refused,) = dataset.count()
    assert counted == {"ada": "accept"}
    assert "2.jsonl" in refused


def test_a_changed_file_is_no_longer_its_first_authors(dataset: Dataset) -> None:
    dataset.merge(dataset.send("eve", "verdicts/ada/1.jsonl", rows("ada", "reject")))
    refusal = "'verdicts/ada/1.jsonl': eve sent it with pull request 2, but it names 'ada' as reviewer"
    assert dataset.count() == ({}, [refusal])


def test_a_squashed_history_has_no_authors_of_files(dataset: Dataset) -> None:
    dataset.api("me").super_squash_history(dataset.repo, **DATASET)
    counted, (refused,) = dataset.count()
    assert not counted
    assert "me sent it with a commit, but it names 'ada'" in refused


def test_an_owner_reviews_with_and_without_a_pull_request(dataset: Dataset) -> None:
    dataset.send("me", "verdicts/me/1.jsonl", rows("me", "reject"), create_pr=False)
    dataset.merge(dataset.send("me", "verdicts/me/2.jsonl", rows("me", "swap")))
    assert dataset.count() == ({"ada": "accept", "me": "swap"}, [])


def test_the_last_verdict_is_the_one_sent_last_whatever_its_date_says_and_whenever_it_was_merged(
    dataset: Dataset,
) -> None:
    first = dataset.send("ada", "verdicts/ada/3.jsonl", rows("ada", "reject", "2099-01-01T00:00:00+00:00"))
    second = dataset.send("ada", "verdicts/ada/2.jsonl", rows("ada", "swap", "1999-01-01T00:00:00+00:00"))
    dataset.merge(second)
    dataset.merge(first)
    assert dataset.count() == ({"ada": "swap"}, [])


@pytest.mark.parametrize("forge", FORGERIES)
def test_an_open_pull_request_speaks_for_its_author_only(forge: Callable[[Dataset], None], dataset: Dataset) -> None:
    dataset.merges = False
    forge(dataset)
    for file in ReviewFiles(dataset.api("me"), dataset.repo).proposed():
        names = {json.loads(line)["reviewer"] for line in read(dataset, file.path, file.revision).splitlines()}
        assert file.signed(names).refusal or names == {file.reviewer} == {"eve"}, file


def read(dataset: Dataset, path: str, revision: str) -> str:
    return Path(dataset.api("me").hf_hub_download(dataset.repo, path, revision=revision, **DATASET)).read_text()


def test_an_open_pull_request_holds_what_its_own_commits_brought(dataset: Dataset) -> None:
    dataset.send("eve", "verdicts/eve/1.jsonl", rows("eve"))
    (file,) = ReviewFiles(dataset.api("me"), dataset.repo).proposed()
    assert (file.path, file.reviewer, file.pull) == ("verdicts/eve/1.jsonl", "eve", 2)


def test_a_file_is_read_at_the_commit_that_was_attributed(dataset: Dataset) -> None:
    (file,) = ReviewFiles(dataset.api("me"), dataset.repo).merged("main")
    dataset.merge(dataset.send("eve", file.path, rows("ada", "reject")))
    assert json.loads(read(dataset, file.path, file.revision))["verdict"] == "accept"


# --------------------------------------------------------------------------------- what the embedded Hub never answers


NOW = datetime(2026, 11, 22, tzinfo=UTC)
COMMIT = SimpleNamespace(oid="c" * 40, title="Verdicts", date=NOW)


@dataclass
class OtherHub:
    """A client whose Hub has one file of verdicts on main, and answers as it is told."""

    authors: list[str] = field(default_factory=lambda: ["ada"])
    last_commit: Any = field(default_factory=lambda: COMMIT)
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # (author, status, author of its commit c)
    status: int = 200

    def list_repo_tree(self, repo: str, path: str, **options: Any) -> Iterator[RepoFile]:
        file = RepoFile(path="verdicts/ada/1.jsonl", size=1, oid="b")
        file.last_commit = self.last_commit
        yield file

    def get_repo_discussions(self, repo: str, **options: Any) -> Iterator[Any]:
        if self.status != 200:
            response = httpx.Response(self.status, request=httpx.Request("GET", "http://hub"))
            raise HfHubHTTPError("no", response=response)
        for num, (author, status, _) in enumerate(self.requests, 1):
            yield SimpleNamespace(num=num, author=author, status=status)

    def get_discussion_details(self, repo: str, num: int, **options: Any) -> Any:
        author, status, committer = self.requests[num - 1]
        commit = DiscussionCommit("e", "commit", NOW, committer, {}, "Verdicts", COMMIT.oid)
        return SimpleNamespace(
            num=num, author=author, status=status, created_at=NOW, merge_commit_oid=None, events=[commit]
        )

    def list_repo_commits(self, repo: str, **options: Any) -> list[Any]:
        return [SimpleNamespace(commit_id=COMMIT.oid, authors=self.authors, created_at=NOW)]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (OtherHub(authors=[]), "does not have one author"),
        (OtherHub(authors=["ada", "eve"]), "does not have one author"),
        (OtherHub(authors=["deleted"]), "does not have one author"),
        (OtherHub(last_commit=None), "does not name its commit"),
        (OtherHub(status=403), "pull requests of the dataset cannot be read"),
        (OtherHub(requests=[("eve", "merged", "eve")]), "eve sent it with pull request 1, but it names 'ada'"),
        # Merged with git on a machine: the commits of the pull request are on main, with an author that eve made up.
        (OtherHub(requests=[("eve", "closed", "ada")]), "pull request 1 is by 'eve', 'ada'"),
        (OtherHub(requests=[("deleted", "merged", "deleted")]), "pull request 1 is by 'deleted'"),
    ],
)
def test_a_file_whose_sender_is_not_known_is_refused(other: OtherHub, reason: str) -> None:
    (file,) = ReviewFiles(other, "me/pairs").merged("main")  # type: ignore[arg-type]
    assert reason in file.refusal


def test_a_commit_of_its_own_reviewer_counts_and_stays_known() -> None:
    other = OtherHub()
    known: dict[tuple[str, str], Any] = {}
    (file,) = ReviewFiles(other, "me/pairs", known=known).merged("main")  # type: ignore[arg-type]
    assert (file.reviewer, file.sent_at) == ("ada", "2026-11-22T00:00:00.000+00:00")
    # A stranger's later pull request that holds the commit as well does not take it away.
    other.requests.append(("eve", "open", "eve"))
    assert ReviewFiles(other, "me/pairs", known=known).merged("main") == [file]  # type: ignore[arg-type]


def test_an_error_of_the_hub_is_not_taken_for_an_answer() -> None:
    with pytest.raises(HfHubHTTPError):
        ReviewFiles(OtherHub(status=503), "me/pairs").merged("main")  # type: ignore[arg-type]


def test_a_folder_has_no_authors(tmp_path: Path) -> None:
    file = tmp_path / "me/pairs/verdicts/ada/1.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(rows("ada"))
    (found,) = hub.FolderDestination(tmp_path).reviews("me/pairs", "main")
    assert "a folder has no authors" in found.refusal
