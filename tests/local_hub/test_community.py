"""Discussions and pull requests of the embedded Hub, as the stock client sees them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.community import DiscussionComment, DiscussionCommit, DiscussionStatusChange, DiscussionTitleChange
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.utils import get_session

from composer_hub.local_hub.server import ServerProcess

from .requests import auth


@pytest.fixture
def repo(ada: HfApi) -> str:
    """A public dataset of ada with one file, of its own for each test."""
    name = f"ada/{uuid.uuid4().hex}"
    ada.create_repo(name, repo_type="dataset", private=False)
    put(ada, name, "a.txt", "one\n")
    return name


def put(api: HfApi, repo: str, path: str, text: str, **options: object) -> object:
    operations = [CommitOperationAdd(path, text.encode())]
    return api.create_commit(repo, operations, commit_message=f"put {path}", repo_type="dataset", **options)  # type: ignore[arg-type]


@contextmanager
def refused(status: int, match: str | None = None) -> Iterator[None]:
    """Expect that the Hub refuses a call with this status."""
    with pytest.raises(HfHubHTTPError, match=match) as error:
        yield
    assert error.value.response.status_code == status


def test_a_reader_opens_a_discussion_and_its_parts_come_back(ada: HfApi, bob: HfApi, repo: str) -> None:
    opened = bob.create_discussion(repo, " A <b>question</b> ", description="why?\nbecause", repo_type="dataset")
    assert (opened.num, opened.title, opened.status, opened.author) == (1, "A <b>question</b>", "open", "bob")
    assert opened.diff is None
    assert opened.conflicting_files is None
    (first,) = opened.events
    assert isinstance(first, DiscussionComment)
    assert first.content == "why?\nbecause"
    assert first.rendered == "<p>why?\nbecause</p>"
    assert opened.url.endswith(f"/datasets/{repo}/discussions/1")
    assert ada.get_discussion_details(repo, 1, repo_type="dataset").events[0].id == first.id


def test_comments_are_edited_by_their_author_and_keep_their_history(ada: HfApi, bob: HfApi, repo: str) -> None:
    bob.create_discussion(repo, "Talk", repo_type="dataset")
    comment = bob.comment_discussion(repo, 1, "<script>first</script>", repo_type="dataset")
    assert comment.rendered == "<p>&lt;script&gt;first&lt;/script&gt;</p>"
    edited = bob.edit_discussion_comment(repo, 1, comment.id, "second", repo_type="dataset")
    assert (edited.content, edited.edited, edited.number_of_edits) == ("second", True, 1)
    assert edited.edit_history[0]["raw"] == "<script>first</script>"
    assert edited.last_edited_by == "bob"
    assert edited.last_edited_at >= comment.created_at
    with refused(403):
        ada.edit_discussion_comment(repo, 1, comment.id, "mine now", repo_type="dataset")


def test_a_hidden_comment_loses_its_text_for_good(server: ServerProcess, ada: HfApi, bob: HfApi, repo: str) -> None:
    bob.create_discussion(repo, "Talk", repo_type="dataset")
    comment = bob.comment_discussion(repo, 1, "unsayable-words", repo_type="dataset")
    with pytest.warns(UserWarning, match="irreversible"):
        hidden = ada.hide_discussion_comment(repo, 1, comment.id, repo_type="dataset")
    assert hidden.hidden
    shown = bob.get_discussion_details(repo, 1, repo_type="dataset").events[1]
    assert "unsayable" not in str(shown._event)
    with refused(409):
        bob.edit_discussion_comment(repo, 1, comment.id, "back again", repo_type="dataset")


def test_titles_and_statuses_belong_to_the_author_and_to_writers(ada: HfApi, bob: HfApi, repo: str) -> None:
    ada.create_discussion(repo, "Ada's", repo_type="dataset")
    for forbidden in (
        lambda: bob.rename_discussion(repo, 1, "Bob's", repo_type="dataset"),
        lambda: bob.change_discussion_status(repo, 1, "closed", repo_type="dataset"),
    ):
        with refused(403):
            forbidden()
    bob.create_discussion(repo, "Bob's", repo_type="dataset")
    renamed = ada.rename_discussion(repo, 2, "Better", repo_type="dataset")
    assert isinstance(renamed, DiscussionTitleChange)
    assert (renamed.old_title, renamed.new_title) == ("Bob's", "Better")
    closed = bob.change_discussion_status(repo, 2, "closed", comment="done", repo_type="dataset")
    assert isinstance(closed, DiscussionStatusChange)
    assert closed.new_status == "closed"
    details = bob.get_discussion_details(repo, 2, repo_type="dataset")
    assert (details.title, details.status) == ("Better", "closed")
    assert [event.type for event in details.events] == ["comment", "title-change", "comment", "status-change"]


def test_lists_are_paged_and_filtered_by_author_type_and_status(ada: HfApi, bob: HfApi, repo: str) -> None:
    for number in range(52):
        ada.create_discussion(repo, f"Number {number}", repo_type="dataset")
    bob.create_pull_request(repo, "A change", repo_type="dataset")
    bob.create_discussion(repo, "A word", repo_type="dataset")
    ada.change_discussion_status(repo, 1, "closed", repo_type="dataset")

    def nums(**filters: object) -> list[int]:
        return [found.num for found in ada.get_repo_discussions(repo, repo_type="dataset", **filters)]  # type: ignore[arg-type]

    assert nums() == list(range(54, 0, -1))
    assert nums(author="bob") == [54, 53]
    assert nums(author="bob", discussion_type="pull_request") == [53]
    assert nums(author="bob", discussion_type="discussion") == [54]
    assert nums(discussion_status="closed") == [1]
    assert 1 not in nums(discussion_status="open")
    assert nums(author="nobody") == []


def test_a_reader_proposes_a_commit_and_only_a_writer_merges_it(ada: HfApi, bob: HfApi, repo: str) -> None:
    made = put(bob, repo, "b.txt", "two\n", create_pr=True, commit_description="please")
    assert made.pr_num == 1  # type: ignore[attr-defined]
    details = ada.get_discussion_details(repo, 1, repo_type="dataset")
    assert (details.status, details.author, details.is_pull_request) == ("open", "bob", True)
    assert details.target_branch == "refs/heads/main"
    assert details.conflicting_files == []
    commits = [event for event in details.events if isinstance(event, DiscussionCommit)]
    assert [commit.summary for commit in commits] == ["put b.txt"]
    assert commits[0].oid == made.oid  # type: ignore[attr-defined]
    assert details.diff is not None
    assert "+++ b/b.txt" in details.diff
    assert "+two" in details.diff
    with refused(403):
        bob.merge_pull_request(repo, 1, repo_type="dataset")
    assert not ada.file_exists(repo, "b.txt", repo_type="dataset")
    ada.merge_pull_request(repo, 1, comment="thanks", repo_type="dataset")
    merged = ada.get_discussion_details(repo, 1, repo_type="dataset")
    assert merged.status == "merged"
    head = ada.list_repo_commits(repo, repo_type="dataset")[0]
    assert merged.merge_commit_oid == head.commit_id
    assert head.title == "put b.txt (#1)"
    assert "+two" in (merged.diff or "")
    assert ada.file_exists(repo, "b.txt", repo_type="dataset")
    with refused(409):
        ada.merge_pull_request(repo, 1, repo_type="dataset")


def test_the_author_adds_commits_to_an_open_pull_request_and_strangers_do_not(
    ada: HfApi, bob: HfApi, repo: str, server: ServerProcess
) -> None:
    put(bob, repo, "b.txt", "two\n", create_pr=True)
    put(bob, repo, "c.txt", "three\n", revision="refs/pr/1")
    put(ada, repo, "d.txt", "four\n", revision="refs/pr/1")
    put(bob, repo, "e.txt", "five\n", revision="refs/pr/1")
    with pytest.raises(HfHubHTTPError):
        put(HfApi(endpoint=server.endpoint, token=False), repo, "f.txt", "six\n", revision="refs/pr/1")
    put(ada, repo, "x.txt", "x\n", create_pr=True)
    with refused(403):
        put(bob, repo, "y.txt", "y\n", revision="refs/pr/2")
    summaries = [event.summary for event in events_of(ada, repo, 1) if isinstance(event, DiscussionCommit)]
    assert summaries == ["put b.txt", "put c.txt", "put d.txt", "put e.txt"]
    assert set(ada.list_repo_files(repo, repo_type="dataset", revision="refs/pr/1")) >= {"b.txt", "e.txt"}
    assert "b.txt" not in ada.list_repo_files(repo, repo_type="dataset")


def events_of(api: HfApi, repo: str, num: int) -> list[object]:
    return list(api.get_discussion_details(repo, num, repo_type="dataset").events)


def test_a_draft_takes_commits_and_is_merged_once_it_is_opened(ada: HfApi, bob: HfApi, repo: str) -> None:
    draft = bob.create_pull_request(repo, "Some day", repo_type="dataset")
    assert (draft.status, draft.git_reference, draft.diff) == ("draft", "refs/pr/1", "")
    put(bob, repo, "b.txt", "two\n", revision="refs/pr/1")
    with refused(409):
        ada.merge_pull_request(repo, 1, repo_type="dataset")
    bob.change_discussion_status(repo, 1, "open", repo_type="dataset")
    ada.merge_pull_request(repo, 1, repo_type="dataset")
    assert ada.file_exists(repo, "b.txt", repo_type="dataset")


def test_a_file_changed_on_both_sides_is_a_conflict_until_the_pull_request_takes_mains_version(
    ada: HfApi, bob: HfApi, repo: str
) -> None:
    put(bob, repo, "a.txt", "bob's\n", create_pr=True)
    put(bob, repo, "b.txt", "two\n", revision="refs/pr/1")
    put(ada, repo, "a.txt", "ada's\n")
    assert ada.get_discussion_details(repo, 1, repo_type="dataset").conflicting_files == ["a.txt"]
    with refused(409, match=r"a\.txt"):
        ada.merge_pull_request(repo, 1, repo_type="dataset")
    put(bob, repo, "a.txt", "ada's\n", revision="refs/pr/1")
    ada.merge_pull_request(repo, 1, repo_type="dataset")
    assert read(ada, repo, "a.txt") == "ada's\n"
    assert read(ada, repo, "b.txt") == "two\n"


def read(api: HfApi, repo: str, path: str) -> str:
    return Path(api.hf_hub_download(repo, path, repo_type="dataset")).read_text()


def test_merging_keeps_later_changes_of_main_and_applies_deletions(ada: HfApi, bob: HfApi, repo: str) -> None:
    operations = [CommitOperationDelete("a.txt"), CommitOperationAdd("n.txt", b"new\n")]
    ada.create_commit(repo, operations, commit_message="swap", repo_type="dataset", create_pr=True)
    put(ada, repo, "main.txt", "meanwhile\n")
    diff = ada.get_discussion_details(repo, 1, repo_type="dataset").diff or ""
    assert "deleted file mode" in diff
    assert "main.txt" not in diff
    ada.merge_pull_request(repo, 1, repo_type="dataset")
    assert sorted(ada.list_repo_files(repo, repo_type="dataset")) == [".gitattributes", "main.txt", "n.txt"]


def test_a_folder_and_a_file_of_the_same_name_conflict(ada: HfApi, repo: str) -> None:
    put(ada, repo, "x/y.txt", "below\n", create_pr=True)
    put(ada, repo, "x", "a file\n")
    assert ada.get_discussion_details(repo, 1, repo_type="dataset").conflicting_files == ["x/y.txt"]
    with refused(409):
        ada.merge_pull_request(repo, 1, repo_type="dataset")


def test_a_squashed_main_still_lets_a_pull_request_merge(ada: HfApi, repo: str) -> None:
    put(ada, repo, "b.txt", "two\n", create_pr=True)
    ada.super_squash_history(repo, repo_type="dataset")
    details = ada.get_discussion_details(repo, 1, repo_type="dataset")
    assert "b.txt" in (details.diff or "")
    assert "a.txt" not in (details.diff or "")
    ada.merge_pull_request(repo, 1, repo_type="dataset")
    assert ada.file_exists(repo, "b.txt", repo_type="dataset")


def test_discussions_of_a_private_repository_are_hidden_from_others(ada: HfApi, bob: HfApi, repo: str) -> None:
    ada.create_discussion(repo, "Secret talk", repo_type="dataset")
    ada.update_repo_settings(repo, private=True, repo_type="dataset")
    for forbidden in (
        lambda: list(bob.get_repo_discussions(repo, repo_type="dataset")),
        lambda: bob.get_discussion_details(repo, 1, repo_type="dataset"),
        lambda: bob.comment_discussion(repo, 1, "hello", repo_type="dataset"),
        lambda: put(bob, repo, "b.txt", "two\n", create_pr=True),
    ):
        with pytest.raises(RepositoryNotFoundError):
            forbidden()


def test_a_gated_repository_shows_its_talk_but_not_its_files(ada: HfApi, bob: HfApi, repo: str) -> None:
    put(ada, repo, "b.txt", "behind the gate\n", create_pr=True)
    ada.update_repo_settings(repo, gated="manual", repo_type="dataset")
    shown = bob.get_discussion_details(repo, 1, repo_type="dataset")
    assert shown.title == "put b.txt"
    assert shown.diff is None
    assert "behind the gate" in (ada.get_discussion_details(repo, 1, repo_type="dataset").diff or "")


def test_of_merges_sent_at_once_one_is_done(ada: HfApi, bob: HfApi, repo: str) -> None:
    put(bob, repo, "b.txt", "two\n", create_pr=True)

    def attempt(number: int) -> int:
        try:
            ada.merge_pull_request(repo, 1, repo_type="dataset")
        except HfHubHTTPError as error:
            return error.response.status_code
        return 200

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(attempt, range(6))) == [200] + [409] * 5
    assert len(ada.list_repo_commits(repo, repo_type="dataset")) == 3


def test_an_anonymous_reader_reads_but_does_not_talk(server: ServerProcess, ada: HfApi, repo: str) -> None:
    ada.create_discussion(repo, "Open talk", repo_type="dataset")
    nobody = HfApi(endpoint=server.endpoint, token=False)
    assert nobody.get_discussion_details(repo, 1, repo_type="dataset").title == "Open talk"
    with refused(401):
        nobody.comment_discussion(repo, 1, "hello", repo_type="dataset")


@pytest.mark.parametrize(("path", "body", "status"), [
    pytest.param("", {"title": "ab", "description": "d", "pullRequest": False}, 400, id="short title"),
    pytest.param("", {"title": "t" * 201, "description": "d"}, 400, id="long title"),
    pytest.param("", {"title": ["list"], "description": "d"}, 400, id="title is no text"),
    pytest.param("", {"title": "fine \ud800 title", "description": "\ud800"}, 200, id="lone surrogates"),
    pytest.param("/99/comment", {"comment": "x"}, 404, id="unknown number"),
    pytest.param("/0x1/comment", {"comment": "x"}, 404, id="number that is none"),
    pytest.param("/1/comment", {"comment": "  "}, 400, id="empty comment"),
    pytest.param("/1/comment/feed/edit", {"content": "x"}, 404, id="unknown comment"),
    pytest.param("/1/status", {"status": "merged"}, 400, id="unknown status"),
    pytest.param("/1/merge", {}, 400, id="merge of a discussion"),
])  # fmt: skip
def test_bad_requests_get_a_status_and_a_sentence(
    ada: HfApi, repo: str, path: str, body: dict[str, object], status: int
) -> None:
    ada.create_discussion(repo, "First", repo_type="dataset")
    url = f"{ada.endpoint}/api/datasets/{repo}/discussions{path}"
    headers = auth("ada") | {"Content-Type": "application/json"}
    answer = get_session().post(url, content=json.dumps(body).encode(), headers=headers)
    assert answer.status_code == status
    assert status == 200 or len(answer.json()["error"]) > 20


def test_a_new_repository_of_an_old_name_starts_without_discussions(ada: HfApi, repo: str) -> None:
    ada.create_discussion(repo, "Old", repo_type="dataset")
    ada.delete_repo(repo, repo_type="dataset")
    ada.create_repo(repo, repo_type="dataset", private=False)
    assert list(ada.get_repo_discussions(repo, repo_type="dataset")) == []


def test_the_hf_command_lists_discussions(hf: Any, ada: HfApi, repo: str) -> None:
    ada.create_discussion(repo, "From the command line", repo_type="dataset")
    done = hf("discussions", "list", repo, "--type", "dataset")
    assert done.returncode == 0, done.stderr
    assert "From the command line" in done.stdout
