"""Bytes over HTTP: ranges, conditions, raw files, copies within the Hub, and listings with the last commits."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError

from composer_hub.local_hub.server import ServerProcess
from composer_hub.local_hub.trees import git_oid

from .requests import auth, commit, create, file, lfs_file, upload

needs_xet = pytest.mark.skipif(importlib.util.find_spec("hf_xet") is None, reason="needs hf_xet")
LARGE = bytes(range(256)) * 2000


@pytest.fixture
def me(hub_server: ServerProcess) -> HfApi:
    return HfApi(endpoint=hub_server.endpoint, token=hub_server.token)


@pytest.fixture
def eve(hub_server: ServerProcess) -> HfApi:
    return HfApi(endpoint=hub_server.endpoint, token="hf_test_eve")


@pytest.fixture
def name(http: Any, hub_repo: Callable[[str], str]) -> str:
    """A repository with a small file and a large one that came by LFS."""
    name = hub_repo("files")
    create(http, name)
    upload(http, name, LARGE).raise_for_status()
    commit(http, name, [file("a.txt", b"0123456789"), lfs_file("d/l.bin", LARGE)]).raise_for_status()
    return name


@pytest.mark.parametrize("path", ["a.txt", "d/l.bin"])
def test_a_file_that_the_client_has_is_not_sent_again(http: Any, name: str, path: str) -> None:
    url = f"/{name}/resolve/main/{path}"
    whole = http.get(url)
    etag = whole.headers["etag"]
    for condition in (etag, f"W/{etag}", f'"other", {etag}', f'W/"other",W/{etag}'):
        again = http.get(url, headers={"If-None-Match": condition})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert http.get(url, headers={"If-None-Match": '"other"'}).content == whole.content


@pytest.mark.parametrize("path", ["a.txt", "d/l.bin"])
def test_a_range_is_of_the_file_that_the_client_began_with_or_the_whole_file_comes(
    http: Any, name: str, path: str
) -> None:
    url = f"/{name}/resolve/main/{path}"
    whole = http.get(url)
    same = http.get(url, headers={"Range": "bytes=2-4", "If-Range": whole.headers["etag"]})
    assert (same.status_code, same.content) == (206, whole.content[2:5])
    for other in ('"other"', "Wed, 21 Oct 2015 07:28:00 GMT"):
        changed = http.get(url, headers={"Range": "bytes=2-4", "If-Range": other})
        assert (changed.status_code, changed.content) == (200, whole.content)


def test_head_answers_as_get_without_the_bytes(http: Any, name: str) -> None:
    for path, size in (("a.txt", 10), ("d/l.bin", len(LARGE))):
        head = http.head(f"/{name}/resolve/main/{path}")
        assert (head.status_code, head.headers["content-length"], head.content) == (200, str(size), b"")


def test_a_repository_whose_card_is_lost_still_answers(
    http: Any, hub_server: ServerProcess, hub_repo: Callable[[str], str]
) -> None:
    name, card = hub_repo("lost"), b"---\nlicense: mit\n---\n" + b"x" * 100_000
    create(http, name)
    commit(http, name, [file("README.md", card)]).raise_for_status()
    assert http.get(f"/api/models/{name}").json()["cardData"] == {"license": "mit"}
    oid = git_oid(card)
    (hub_server.root / "blobs" / oid[:2] / oid).unlink()
    assert http.get(f"/api/models/{name}").json()["cardData"] == {}
    lost = http.get(f"/{name}/resolve/main/README.md")
    assert (lost.status_code, "missing" in lost.json()["error"]) == (500, True)


def test_raw_is_what_git_has_and_head_is_main(http: Any, name: str) -> None:
    assert http.get(f"/{name}/raw/HEAD/a.txt").content == b"0123456789"
    pointer = http.get(f"/{name}/raw/main/d/l.bin").text
    assert pointer.startswith("version https://git-lfs.github.com/spec/v1\n")
    assert pointer.endswith(f"size {len(LARGE)}\n")
    assert http.get(f"/{name}/raw/main/missing").headers["x-error-code"] == "EntryNotFound"
    main = http.get(f"/api/models/{name}/revision/main").json()
    assert http.get(f"/api/models/{name}/revision/HEAD").json() == main


def test_a_duplicate_has_the_history_the_tags_and_the_visibility(
    http: Any, me: HfApi, eve: HfApi, name: str, hub_repo: Callable[..., str]
) -> None:
    me.create_tag(name, tag="v1")
    copy = hub_repo("copy", "eve")
    assert eve.duplicate_repo(name, copy).repo_id == copy
    me.delete_repo(name)
    assert eve.list_repo_refs(copy).tags[0].name == "v1"
    assert [item.title for item in eve.list_repo_commits(copy)] == ["test", "initial commit"]
    assert http.get(f"/{copy}/resolve/v1/d/l.bin").content == LARGE
    assert eve.duplicate_repo(copy, copy, exist_ok=True).repo_id == copy
    with pytest.raises(HfHubHTTPError, match="already created"):
        eve.duplicate_repo(copy, copy)
    with pytest.raises(HfHubHTTPError, match="rights"):
        eve.duplicate_repo(copy, hub_repo("copy", "me"))


def test_who_may_not_read_may_not_duplicate_or_copy(
    http: Any, me: HfApi, eve: HfApi, name: str, hub_repo: Callable[..., str]
) -> None:
    copy = hub_repo("copy", "eve")
    eve.create_repo(copy)
    ask = {"target": {"type": "model", "name": copy}, "files": [{"sha256": lfs_file("", LARGE)[1]["oid"]}]}
    url = f"/api/models/{name}/lfs-files/duplicate"
    assert http.post(url, json=ask, headers=auth("ada")).status_code == 403
    for settings in ({"gated": "manual"}, {"gated": False, "visibility": "private"}):
        http.put(f"/api/models/{name}/settings", json=settings, headers=auth("me")).raise_for_status()
        assert http.post(url, json=ask, headers=auth("eve")).status_code in (403, 404)
        with pytest.raises(HfHubHTTPError):
            eve.duplicate_repo(name, hub_repo("copy", "eve"))
    assert commit(http, copy, [lfs_file("l.bin", LARGE)], "eve").status_code == 400
    assert http.post(url, json=ask | {"files": [{}]}, headers=auth("eve")).status_code == 404


@needs_xet
def test_large_files_are_copied_between_repositories_and_into_buckets(
    http: Any, me: HfApi, eve: HfApi, hub_repo: Callable[..., str]
) -> None:
    source, target, data = hub_repo("from"), hub_repo("to", "eve"), b"weights " * 100_000
    me.create_repo(source)
    me.create_commit(
        source, [CommitOperationAdd("w.bin", data), CommitOperationAdd("s.txt", b"small")], commit_message="w"
    )
    eve.create_repo(target)
    copies = [
        CommitOperationCopy(path, f"copied/{path}", src_repo_id=source, src_repo_type="model")
        for path in ("w.bin", "s.txt")
    ]
    eve.create_commit(target, copies, commit_message="copied")
    eve.create_bucket(target)
    eve.copy_files(f"hf://{source}/w.bin", f"hf://buckets/{target}/w.bin")
    me.delete_repo(source)
    assert http.get(f"/{target}/resolve/main/copied/w.bin").content == data
    assert http.get(f"/buckets/{target}/resolve/w.bin").content == data


def test_a_tree_with_last_commits_is_the_same_in_any_page(http: Any, me: HfApi, hub_repo: Callable[[str], str]) -> None:
    name = hub_repo("tree")
    me.create_repo(name)
    for number in range(3):
        adds = [CommitOperationAdd(f"d{i % 4}/f{i}.txt", b"%d" % number) for i in range(number, 60, 3 - number)]
        me.create_commit(name, adds, commit_message=f"commit {number}")
    me.create_commit(name, [CommitOperationDelete("d0/f4.txt")], commit_message="deleted")
    items = {item.path: item for item in me.list_repo_tree(name, recursive=True, expand=True)}
    assert len(items) == 60 + 4
    for path, item in items.items():
        [alone] = me.get_paths_info(name, [path], expand=True)
        assert alone.last_commit == item.last_commit
    titles = {path: item.last_commit.title for path, item in items.items()}
    assert titles["d0"] == "deleted"
    assert titles[".gitattributes"] == "initial commit"
    assert (titles["d1/f1.txt"], titles["d2/f2.txt"], titles["d0/f0.txt"]) == ("commit 1", "commit 2", "commit 0")
