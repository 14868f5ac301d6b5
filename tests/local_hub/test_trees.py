"""Trees and changes: what one commit may do to a flat map of files."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from huggingface_hub._local_folder import get_local_download_paths
from hypothesis import example, given
from hypothesis import strategies as st

from composer_hub.local_hub.trees import (
    BadPath,
    DeleteFile,
    Folder,
    MissingPath,
    PutFile,
    TreeEntry,
    applied,
    changes_of,
    check_no_overlap,
    check_path,
    folders_of,
    git_oid,
    lfs_entry,
    listing,
)
from tests.quick import cases

stable = cases(60)
names = st.text("abc", min_size=1, max_size=3)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
entries = st.integers(0, 5).map(lambda n: TreeEntry(git_oid(b"%d" % n), n))


def test_oids_are_those_of_git(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello\n")
    git = subprocess.run(["git", "hash-object", tmp_path / "file"], capture_output=True, text=True, check=True)
    assert git_oid(b"hello\n") == git.stdout.strip()


def test_the_oid_of_an_lfs_file_is_that_of_its_pointer() -> None:
    assert lfs_entry("ab" * 32, 7).oid == git_oid(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"ab" * 32 + b"\nsize 7\n"
    )


@stable
@given(st.dictionaries(paths, entries), st.dictionaries(paths, entries))
def test_applying_the_changes_of_puts_gives_the_same_as_replacing(tree: dict, new: dict) -> None:
    operations = [PutFile(path, entry) for path, entry in new.items()]
    assert applied(tree, changes_of(tree, operations)) == {**tree, **new}


@stable
@given(st.dictionaries(paths, entries, min_size=1))
def test_deleting_every_file_leaves_nothing(tree: dict) -> None:
    assert applied(tree, changes_of(tree, [DeleteFile(path) for path in tree])) == {}


def test_putting_the_same_file_again_changes_nothing() -> None:
    tree = {"a": TreeEntry("1", 1)}
    assert changes_of(tree, [PutFile("a", TreeEntry("1", 1))]) == {}


def test_a_file_may_be_added_and_removed_in_one_commit() -> None:
    assert changes_of({}, [PutFile("a", TreeEntry("1", 1)), DeleteFile("a")]) == {}


@pytest.mark.parametrize("operation", [DeleteFile("a"), DeleteFile("a/"), DeleteFile("a", is_folder=True)])
def test_a_folder_is_deleted_with_or_without_its_slash(operation: DeleteFile) -> None:
    entry = TreeEntry("1", 1)
    assert changes_of({"a/b": entry, "a/c/d": entry, "ab": entry}, [operation]) == {"a/b": None, "a/c/d": None}


@pytest.mark.parametrize(
    "operation", [DeleteFile("b"), DeleteFile("a/", is_folder=True), DeleteFile("", is_folder=True)]
)
def test_deleting_a_missing_path_is_an_error(operation: DeleteFile) -> None:
    with pytest.raises(MissingPath):
        changes_of({"a": TreeEntry("1", 1)}, [operation])


@pytest.mark.parametrize(("tree", "new"), [({"a": 1}, "a/b"), ({"a/b": 1}, "a"), ({"a/b/c": 1}, "a/b")])
def test_a_path_is_not_a_file_and_a_folder_at_once(tree: dict, new: str) -> None:
    before = dict.fromkeys(tree, TreeEntry("1", 1))
    changes = changes_of(before, [PutFile(new, TreeEntry("2", 1))])
    with pytest.raises(BadPath):
        check_no_overlap(before, changes, applied(before, changes))


def test_a_file_may_take_the_name_of_a_folder_that_goes_in_the_same_commit() -> None:
    before = {"a/b": TreeEntry("1", 1)}
    changes = changes_of(before, [DeleteFile("a", is_folder=True), PutFile("a", TreeEntry("2", 1))])
    check_no_overlap(before, changes, applied(before, changes))


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "..", "a/../b", ".git/config", "a/.GIT/x", "a\\b", "a\nb", "a\x00", "x" * 1025]
)
def test_a_path_that_git_cannot_hold_is_refused(path: str) -> None:
    with pytest.raises(BadPath):
        check_path(path)


@stable
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), min_size=1, max_size=3).map("/".join))
@example("a:b")
@example("d/a:b")
@example("x" * 247)
@example("d" * 250 + "/f")
def test_stock_clients_can_download_every_path_that_is_taken(path: str) -> None:
    try:
        check_path(path)
    except BadPath:
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = get_local_download_paths(Path(folder), path)
        for one in (paths.file_path, paths.metadata_path, paths.lock_path):
            one.touch()


@pytest.mark.parametrize("path", ["a:b", "d/a:b", "1:/x", "ü:x", "x" * 247])
def test_a_path_that_makes_stock_clients_refuse_the_repository_is_refused(path: str) -> None:
    with pytest.raises(BadPath, match="Rename it"):
        check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "results_2026-01-01T10:00:00.json",
        "a",
        "a/b c.txt",
        "ünï/cødé.md",
        ".gitattributes",
        "a/.gitignore",
        "..a",
        "a..b",
    ],
)
def test_an_unusual_path_that_git_can_hold_is_taken(path: str) -> None:
    assert check_path(path) == path


@stable
@given(st.dictionaries(paths, entries, max_size=8))
def test_the_recursive_listing_holds_every_file_and_every_folder_above_one(tree: dict) -> None:
    items = listing(tree, "", recursive=True)
    assert {path for path, item in items.items() if isinstance(item, Folder)} - set(tree) == folders_of(tree) - set(
        tree
    )
    assert {path for path, item in items.items() if isinstance(item, TreeEntry)} >= set(tree) - folders_of(tree)


def test_the_oid_of_a_folder_changes_with_a_file_below_it() -> None:
    before = listing({"a/b": TreeEntry("1", 1), "c/d": TreeEntry("1", 1)}, "", recursive=False)
    after = listing({"a/b": TreeEntry("2", 1), "c/d": TreeEntry("1", 1)}, "", recursive=False)
    assert before["a"] != after["a"]
    assert before["c"] == after["c"]
