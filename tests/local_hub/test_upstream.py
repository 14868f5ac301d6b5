"""A Hub with an upstream: public repositories are copied once, when they are read, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

from composer_hub.local_hub.server import ServerProcess, start_server

LARGE = bytes(range(256)) * 800


@pytest.fixture(scope="module")
def copying(hub_server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = ["--user", "zoe:hf_zoe", "--upstream", hub_server.endpoint]
    with start_server(tmp_path_factory.mktemp("copying"), options) as server:
        yield server


@pytest.fixture
def zoe(copying: ServerProcess) -> HfApi:
    return HfApi(endpoint=copying.endpoint, token="hf_zoe")


def test_a_public_repository_is_copied_when_it_is_read_and_stays_as_it_was(
    hub_server: ServerProcess, copying: ServerProcess, zoe: HfApi, tmp_path: Path
) -> None:
    there, name = HfApi(endpoint=hub_server.endpoint, token="hf_test_me"), "me/tutorial"
    there.create_repo(name, repo_type="dataset")
    files = {"README.md": b"# Card", "data/large.bin": LARGE, "data/a b.txt": b"small"}
    adds = [CommitOperationAdd(path, data) for path, data in files.items()]
    there.create_commit(name, adds, repo_type="dataset", commit_message="files")
    where = {"repo_type": "dataset", "endpoint": copying.endpoint, "token": "hf_zoe", "cache_dir": tmp_path}
    for path, data in files.items():
        assert Path(hf_hub_download(name, path, **where)).read_bytes() == data
    there.upload_file(path_or_fileobj=b"new", path_in_repo="new.txt", repo_id=name, repo_type="dataset")
    assert "new.txt" not in zoe.list_repo_files(name, repo_type="dataset")
    with pytest.raises(HfHubHTTPError, match="403"):
        zoe.upload_file(path_or_fileobj=b"x", path_in_repo="x", repo_id=name, repo_type="dataset")
    assert zoe.list_repo_commits(name, repo_type="dataset")[0].title.startswith(f"Copy of {hub_server.endpoint} at ")


def test_other_revisions_are_copied_when_they_are_asked_for_under_their_own_commit_ids(
    hub_server: ServerProcess, copying: ServerProcess, zoe: HfApi, tmp_path: Path
) -> None:
    there, name = HfApi(endpoint=hub_server.endpoint, token="hf_test_me"), "me/versions"
    there.create_repo(name)
    oids = [
        there.upload_file(path_or_fileobj=text, path_in_repo="a.txt", repo_id=name).oid
        for text in (b"one", b"two", LARGE, b"four")
    ]
    there.create_tag(name, tag="v1", revision=oids[0])
    there.create_branch(name, branch="side/way", revision=oids[2])
    there.create_tag(name, tag="newest", revision=oids[3])

    def text(revision: str) -> bytes:
        where = {"endpoint": copying.endpoint, "token": "hf_zoe", "cache_dir": tmp_path}
        return Path(hf_hub_download(name, "a.txt", revision=revision, **where)).read_bytes()

    # The first read of all is of a revision, by the request whose body can be read only once.
    assert zoe.get_paths_info(name, ["a.txt"], revision="v1")[0].size == 3
    assert [text(revision) for revision in ("v1", "side/way", "main", oids[1])] == [b"one", LARGE, b"four", b"two"]
    assert zoe.model_info(name, revision="newest").sha == oids[3] == zoe.model_info(name).sha
    assert zoe.model_info(name, revision=oids[1][:12]).sha == oids[1]
    refs = zoe.list_repo_refs(name)
    assert [ref.name for ref in refs.branches] == ["main", "side/way"]
    assert {ref.name: ref.target_commit for ref in refs.tags} == {"newest": oids[3], "v1": oids[0]}
    # What was copied stays, also when it is gone there.
    there.delete_tag(name, tag="v1")
    assert zoe.list_repo_files(name, revision="v1") == zoe.list_repo_files(name, revision=oids[0])
    for revision in ("v2", "0" * 40, "refs/pr/1"):
        with pytest.raises(RevisionNotFoundError):
            zoe.model_info(name, revision=revision)


def test_private_gated_and_missing_repositories_are_not_copied(hub_server: ServerProcess, zoe: HfApi) -> None:
    there = HfApi(endpoint=hub_server.endpoint, token="hf_test_me")
    there.create_repo("me/secret", private=True)
    there.create_repo("me/closed")
    there.update_repo_settings("me/closed", gated="auto")
    there.create_repo("me/open")
    for name in ("me/secret", "me/closed", "me/never", "zoe/mine"):
        with pytest.raises(RepositoryNotFoundError):
            zoe.model_info(name)
    with pytest.raises(HfHubHTTPError):
        zoe.create_commit("me/open", [CommitOperationAdd("x", b"x")], commit_message="a write copies nothing")
    assert "me/open" not in [model.id for model in zoe.list_models()]
    assert zoe.model_info("me/open").id == "me/open"


def test_an_upstream_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with start_server(tmp_path, ["--user", "zoe:hf_zoe", "--upstream", "http://127.0.0.1:9"]) as server:
        api = HfApi(endpoint=server.endpoint, token="hf_zoe")
        with pytest.raises(HfHubHTTPError, match=r"http://127.0.0.1:9 cannot be asked for me/x"):
            api.model_info("me/x")
