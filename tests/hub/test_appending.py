"""Rows that are added to a version become new files; files that are there are neither written nor uploaded again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset

from composer_hub.hub import (
    Add,
    Change,
    Delete,
    Draft,
    FolderDestination,
    NothingToPublish,
    Published,
    TableError,
    Version,
    load,
    update,
)
from composer_hub.records import Trace
from tests.factories import make_trace
from tests.hub.test_publish import CARD, REPO, put, tables

A, B, C, D = (make_trace(number) for number in range(1, 5))
CHANGED = dataclasses.replace(B, cwd="/other")


@dataclasses.dataclass
class Watched(FolderDestination):
    """A folder that remembers the changes of its last commit, and lets another publication come first."""

    changes: Sequence[Change] = ()
    before_commit: Any = None

    def exclusive(self, repo: str) -> Any:
        return contextlib.nullcontext()  # as on the Hub, which checks the head instead

    def commit(self, repo: str, changes: Sequence[Change], **options: Any) -> str:
        self.changes = changes
        if self.before_commit is not None:
            (act, self.before_commit) = (self.before_commit, None)
            act()
        return super().commit(repo, changes, **options)

    def written(self) -> set[str]:
        return {change.path for change in self.changes if isinstance(change, Add) and change.path.endswith("parquet")}

    def removed(self) -> set[str]:
        return {change.path for change in self.changes if isinstance(change, Delete)}


def add(where: FolderDestination, *traces: Trace) -> Published:
    return update(where, REPO, lambda before: Draft(tables(traces), CARD, adds=True))


def traces_of(where: FolderDestination) -> dict[str, Trace]:
    return {trace.trace_id: trace for trace in load(where, REPO).records(Trace, "traces")}


@pytest.fixture
def where(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "hub")


def test_added_rows_are_new_files_and_all_rows_are_read(where: Watched) -> None:
    add(where, A)
    first = {path: (where.root / REPO / path).read_bytes() for path in where.written()}
    published = add(where, B, C)
    assert published.tag == "v1.0.1"
    assert published.rows["traces"] == {"added": 2, "removed": 0, "changed": 0, "total": 3}
    assert len(where.written()) == 4
    assert not where.written() & set(first)
    assert {path: (where.root / REPO / path).read_bytes() for path in first} == first
    assert not where.removed()
    assert traces_of(where) == {trace.trace_id: trace for trace in (A, B, C)}
    assert load(where, REPO).ids("traces") == {A.trace_id, B.trace_id, C.trace_id}


def test_rows_added_one_by_one_have_the_content_of_rows_published_at_once(where: Watched, tmp_path: Path) -> None:
    for trace in (B, A, C):
        add(where, trace)
    at_once = FolderDestination(tmp_path / "other")
    put(at_once, [A, B, C])

    def digests(version: Version) -> dict[str, str]:
        return {name: table["splits"]["train"]["digest"] for name, table in version.manifest["tables"].items()}

    assert digests(load(where, REPO)) == digests(load(at_once, REPO))
    with pytest.raises(NothingToPublish):
        put(where, [A, B, C])


def test_rows_that_are_there_are_not_added_again(where: Watched) -> None:
    add(where, A, B)
    with pytest.raises(NothingToPublish):
        add(where, B, A)
    assert add(where, B, C).rows["traces"]["added"] == 1
    assert sum(1 for _ in load(where, REPO).records(Trace, "traces")) == 3


def test_a_changed_row_replaces_the_part_that_holds_it(where: Watched) -> None:
    add(where, A, B)
    add(where, C)
    kept = where.written()
    published = add(where, CHANGED, D)
    assert published.rows["traces"] == {"added": 1, "removed": 0, "changed": 1, "total": 4}
    assert "data/traces/train-00000-of-00001.parquet" in where.removed()
    assert not where.removed() & {path for path in kept if "traces" in path}
    assert traces_of(where) == {trace.trace_id: trace for trace in (A, CHANGED, C, D)}
    add(where, dataclasses.replace(C, cwd="/other"))  # now a part with a number of its own is alone
    assert len(traces_of(where)) == 4


def test_additions_at_the_same_time_are_both_kept(where: Watched) -> None:
    add(where, A)
    where.before_commit = lambda: add(FolderDestination(where.root), B)
    published = add(where, C)
    assert published.tag == "v1.0.2"
    assert set(traces_of(where)) == {A.trace_id, B.trace_id, C.trace_id}


def test_publishing_everything_removes_the_added_files(where: Watched) -> None:
    add(where, A)
    add(where, B)
    added = where.written()
    put(where, [A, C])
    assert added <= where.removed()
    assert set(traces_of(where)) == {A.trace_id, C.trace_id}


def test_load_dataset_reads_all_parts(where: Watched, tmp_path: Path) -> None:
    for trace in (A, B, C):
        add(where, trace)
    loaded = load_dataset(str(where.root / REPO), "steps", split="train", cache_dir=str(tmp_path / "cache"))
    assert len(loaded) == 6


def test_rows_with_other_columns_cannot_be_added(where: Watched) -> None:
    add(where, A)
    other = [dataclasses.replace(table, features=type(table.features)({})) for table in tables([B])[:1]]
    other[0].features["trace_id"] = tables([B])[0].features["trace_id"]
    with pytest.raises(TableError, match="other columns"):
        update(where, REPO, lambda before: Draft([*other, *tables([B])[1:]], CARD, adds=True))
