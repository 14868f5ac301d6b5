"""The store: commits, refs and bytes, without HTTP."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.local_hub.blobs import WrongContent
from composer_hub.local_hub.database import FORMAT, DatabaseError
from composer_hub.local_hub.store import BadRef, Exists, HeadMoved, NoRevision, Repo, Store
from composer_hub.local_hub.trees import DeleteFile, PutFile, TreeEntry, git_oid, lfs_entry
from tests.quick import cases

MAIN = "refs/heads/main"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "hub", clock=lambda: 1_700_000_000.25)
    yield store
    store.close()


@pytest.fixture
def repo(store: Store) -> Repo:
    return store.create_repo("model", "me/a", author="me", files={".gitattributes": b"x"})


def put(store: Store, repo: Repo, path: str, data: bytes, **options: str) -> str:
    operations = [PutFile(path, TreeEntry(git_oid(data), len(data)))]
    return store.commit(repo, MAIN, operations, title=f"put {path}", small=[data], **options).oid


def test_a_commit_can_be_read_back_after_reopening(tmp_path: Path) -> None:
    store = Store(tmp_path / "hub")
    repo = store.create_repo("dataset", "me/d", author="me", files={})
    oid = put(store, repo, "a/b.txt", b"hello")
    store.close()
    again = Store(tmp_path / "hub")
    found = again.find_repo("dataset", "me/d")
    assert found == repo
    assert again.read_bytes(repo, again.resolve(repo, "main"), "a/b.txt") == b"hello"
    assert again.resolve(repo, oid[:10]) == oid
    again.close()


def test_only_the_owner_of_a_folder_may_read_its_database(tmp_path: Path) -> None:
    tmp_path.joinpath("hub.sqlite").touch(0o644)
    Store(tmp_path).close()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("hub.sqlite*")} == {0o600}


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_a_folder_of_another_version_is_refused(tmp_path: Path, other: int) -> None:
    Store(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "hub.sqlite")) as db:
        assert db.execute("pragma user_version").fetchone() == (FORMAT,)
        db.execute(f"pragma user_version = {other}")
    with pytest.raises(DatabaseError, match="another version"):
        Store(tmp_path)


def test_the_log_is_read_only_as_far_as_it_is_asked_for(store: Store, repo: Repo) -> None:
    heads = [put(store, repo, f"f{number}", b"%d" % number) for number in range(300)]
    log = store.log(repo, heads[-1])
    assert [next(log).oid, next(log).oid] == [heads[-1], heads[-2]]
    assert [commit.oid for commit in log][:-1] == heads[-3::-1]


def test_a_listing_follows_permanent_removals(store: Store, repo: Repo) -> None:
    entry = lfs_entry("ab" * 32, 1)
    oid = store.commit(repo, MAIN, [PutFile("data/w.bin", entry)], title="w").oid
    assert set(store.listing(repo, oid, "", recursive=True)) == {".gitattributes", "data", "data/w.bin"}
    store.forget_lfs(repo, {entry.sha256})
    assert set(store.listing(repo, oid, "", recursive=True)) == {".gitattributes"}


def test_times_are_written_as_the_hub_writes_them(store: Store) -> None:
    assert store.now() == "2023-11-14T22:13:20.250Z"


def test_a_commit_on_an_old_parent_is_refused_and_writes_nothing(store: Store, repo: Repo) -> None:
    old = store.resolve(repo, "main")
    head = put(store, repo, "a", b"1")
    with pytest.raises(HeadMoved):
        put(store, repo, "b", b"2", parent=old)
    assert store.resolve(repo, "main") == head


def test_of_eight_racers_on_one_parent_one_wins(store: Store, repo: Repo) -> None:
    parent, outcomes, start = store.resolve(repo, "main"), [], threading.Barrier(8)

    def race(number: int) -> None:
        start.wait()
        try:
            outcomes.append(put(store, repo, f"f{number}", b"%d" % number, parent=parent))
        except HeadMoved:
            outcomes.append("")

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [oid for oid in outcomes if oid]
    assert winners == [store.resolve(repo, "main")]


def test_a_transaction_that_fails_leaves_no_trace(store: Store, repo: Repo) -> None:
    before = store.resolve(repo, "main")

    def fail(db: object, base: str) -> str:
        raise RuntimeError("the part that opens pull requests failed")

    with pytest.raises(RuntimeError):
        store.commit(repo, MAIN, [PutFile("a", TreeEntry(git_oid(b"z"), 1))], title="t", small=[b"z"], before=fail)
    assert store.resolve(repo, "main") == before
    assert store.read().execute("select count(*) from small where data=?", (b"z",)).fetchone() == (0,)


def test_history_rebuilds_every_tree_across_whole_and_partial_commits(tmp_path: Path) -> None:
    dice, expected = random.Random(7), {}
    store = Store(tmp_path / "hub")
    repo = store.create_repo("model", "me/long", author="me", files={})
    current: dict[str, bytes] = {}
    for number in range(300):
        if current and dice.random() < 0.3:
            gone = dice.choice(sorted(current))
            del current[gone]
            oid = store.commit(repo, MAIN, [DeleteFile(gone)], title="delete").oid
        else:
            path = f"d{dice.randrange(5)}/f{dice.randrange(20)}"
            current[path] = b"%d" % number
            oid = put(store, repo, path, current[path])
        expected[oid] = {path: git_oid(data) for path, data in current.items()}
    store.close()
    cold = Store(tmp_path / "hub")
    for oid in dice.sample(sorted(expected), 40):
        assert {path: entry.oid for path, entry in cold.tree(repo, oid).items()} == expected[oid]
    assert len(list(cold.log(repo, cold.resolve(repo, "main")))) == 301
    changes = {commit.oid: changes for commit, changes in cold.log_with_changes(repo, cold.resolve(repo, "main"))}
    assert all(len(changes[oid]) <= 1 for oid in expected)
    cold.close()


def test_a_small_commit_to_a_large_repository_stays_small(store: Store, repo: Repo) -> None:
    many = [PutFile(f"d{i % 50}/f{i}", TreeEntry(git_oid(b"x"), 1)) for i in range(10_000)]
    store.commit(repo, MAIN, many, title="many", small=[b"x"])
    size = "select length(changes) from commits order by number desc limit 1"
    put(store, repo, "one", b"more")
    assert store.read().execute(size).fetchone()[0] < 200


def test_a_reference_is_made_once(store: Store, repo: Repo) -> None:
    head = store.resolve(repo, "main")
    store.create_ref(repo, "refs/tags/v1", head, "first")
    with pytest.raises(Exists):
        store.create_ref(repo, "refs/tags/v1", head)
    assert [(ref.name, ref.message) for ref in store.refs(repo, "refs/tags/")] == [("v1", "first")]
    store.delete_ref(repo, "refs/tags/v1")
    with pytest.raises(NoRevision):
        store.resolve(repo, "v1")


def test_a_squashed_branch_keeps_its_tree_and_a_tag_keeps_the_history(store: Store, repo: Repo) -> None:
    old = put(store, repo, "a", b"1")
    store.create_ref(repo, "refs/tags/v1", old)
    made = store.replace_history(repo, MAIN, title="squashed", author="me")
    assert store.tree(repo, made.oid) == store.tree(repo, old)
    assert [len(list(store.log(repo, store.resolve(repo, name)))) for name in ("main", "v1")] == [1, 2]


def test_a_moved_repository_is_found_from_every_name_it_had(store: Store, repo: Repo) -> None:
    store.move_repo(repo, "me/b")
    store.move_repo(store.repo_by_id(repo.id), "me/c")
    assert [store.moved_to("model", name) for name in ("me/a", "me/b", "me/c")] == ["me/c", "me/c", None]
    store.move_repo(store.repo_by_id(repo.id), "me/a")
    assert [store.moved_to("model", name) for name in ("me/a", "me/b", "me/c")] == [None, "me/a", "me/a"]


def test_forgotten_lfs_files_do_not_come_back_in_any_commit(store: Store, repo: Repo) -> None:
    first, second = lfs_entry("ab" * 32, 1), lfs_entry("cd" * 32, 1)
    oids = [store.commit(repo, MAIN, [PutFile("m.bin", entry)], title="t").oid for entry in (first, second)]
    store.forget_lfs(repo, {second.sha256})
    assert [store.tree(repo, oid).get("m.bin") for oid in oids] == [first, None]


def test_bytes_with_another_hash_are_refused_and_leave_no_file(store: Store) -> None:
    with store.blobs.writer() as writer:
        writer.write(b"hello")
        with pytest.raises(WrongContent):
            writer.check("ab" * 32, 5)
    assert list(store.blobs.unfinished.iterdir()) == []
    assert not store.blobs.holds("ab" * 32)


def test_unfinished_files_are_swept_at_start(tmp_path: Path) -> None:
    store = Store(tmp_path / "hub")
    (store.blobs.unfinished / "left-over").write_bytes(b"half")
    store.close()
    again = Store(tmp_path / "hub")
    assert list(again.blobs.unfinished.iterdir()) == []
    again.close()


@cases(25)
@given(data=st.binary(max_size=3000), cuts=st.lists(st.integers(0, 3000), max_size=4))
def test_bytes_come_back_as_they_were_written_in_whatever_pieces(
    tmp_path_factory, data: bytes, cuts: list[int]
) -> None:
    store = Store(tmp_path_factory.mktemp("store"))
    edges = [0, *sorted(cuts), len(data)]
    sha256 = hashlib.sha256(data).hexdigest()
    with store.blobs.writer() as writer:
        for start, stop in itertools.pairwise(edges):
            writer.write(data[start:stop] if start < stop else b"")
        if writer.size == len(data):
            writer.check(sha256, len(data))
            writer.keep(sha256)
            assert store.blobs.path(sha256).read_bytes() == data
    store.close()


@pytest.mark.parametrize("kind", ["heads", "tags"])
@pytest.mark.parametrize("name", ["0123456789abcdef" * 4, "0123456789" * 4, "ABCDEF0123" * 4])
def test_no_branch_or_tag_looks_like_a_commit(store: Store, repo: Repo, kind: str, name: str) -> None:
    with pytest.raises(BadRef, match="looks like one"):
        store.create_ref(repo, f"refs/{kind}/{name}", store.resolve(repo, "main"))


def test_no_branch_or_tag_takes_the_place_of_a_commit_or_of_each_other(store: Store, repo: Repo) -> None:
    old = store.resolve(repo, "main")
    new = put(store, repo, "b", b"b")
    for number in range(7, 41):
        for kind in ("heads", "tags"):
            with pytest.raises(BadRef, match="name of a commit"):
                store.create_ref(repo, f"refs/{kind}/{old[:number]}", new)
    store.create_ref(repo, "refs/tags/v1.0.0", old)
    store.create_ref(repo, "refs/tags/20261231", old)  # seven or more such digits may be a date
    store.create_ref(repo, "refs/heads/v1.0.0", new)  # as on the Hub
    with pytest.raises(BadRef, match="a branch main"):
        store.create_ref(repo, "refs/tags/main", old)
    with store.write() as db:  # as an earlier version let it be
        db.execute("insert into refs values(?,?,?,'')", (repo.id, f"refs/tags/{old}", new))
    names = ("v1.0.0", "20261231", old, old[:7], new, "main")
    assert [store.resolve(repo, name) for name in names] == [old, old, old, old, new, new]


def test_all_pages_of_a_history_together_read_each_commit_about_once(store: Store, repo: Repo) -> None:
    def num_steps(oid: str) -> int:
        """Count the steps of sqlite for one walk through the pages."""
        steps = []
        store.read().set_progress_handler(lambda: steps.append(1), 100)
        length = len(store.history(repo, oid))
        for start in range(0, length, 10):
            assert len([store.find_commit(repo, one) for one in store.history(repo, oid)[start : start + 10]]) > 0
        store.read().set_progress_handler(None, 100)
        return len(steps)

    *_, first = [put(store, repo, "a", b"%d" % number) for number in range(100)]
    before = num_steps(first)
    assert [one.oid for one in store.log(repo, first)] == store.history(repo, first)
    *_, last = [put(store, repo, "a", b"%d" % number) for number in range(100, 400)]
    assert num_steps(last) < 5 * before
    assert [one.oid for one in store.log(repo, last)] == store.history(repo, last)
