"""A set that is older than a column is shown as if each of its rows had the column's default."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from inspector.desk import ReviewDesk
from inspector.library import Dataset, Name, SpaceLibrary
from inspector.pair_index import PairIndex
from inspector.remote import RangeSource
from inspector.verdicts import Reviews, Standing

from composer_hub.hub.tables import Table, build
from composer_hub.ingest.dataset import trace_tables
from composer_hub.pairs.tables import pairs_table
from composer_hub.records import Pair
from tests.factories import make_trace

TRACE = make_trace()
PAIR = Pair(
    pair_id="p", trace_id=TRACE.trace_id, step_id=TRACE.steps[1].step_id, index=1, num_steps=2,
    prompt=TRACE.messages[:4], chosen=TRACE.messages[2:3], rejected=TRACE.messages[4:5], tools=(),
)  # fmt: skip
WITH_DEFAULT = [one.name for one in dataclasses.fields(Pair) if one.default is not dataclasses.MISSING]
FACES = {"pairs": ("pair", "p"), "sessions": ("session", TRACE.trace_id), "overview": ("base", "main")}


class Folder(Dataset):
    """A dataset whose files are here."""

    def groups(self, config: str) -> list[tuple[list[str], list[str]]]:
        return [([str(Path(self.key) / f"{config}.parquet")], [])] if config in self.manifest["tables"] else []

    def indexes(self, config: str) -> list[str]:
        return [self.index_path(config)]


class Shelf(SpaceLibrary):
    """Datasets in folders, which everyone may read."""

    def __init__(self, *datasets: Folder) -> None:
        super().__init__([dataset.name.repo for dataset in datasets])
        self.datasets = {dataset.name.repo: dataset for dataset in datasets}

    def open(self, repo: str, revision: str, token: str | None) -> Dataset:
        return self.datasets[repo]

    def check_access(self, repo: str, token: str | None) -> None:
        """Let everyone in."""


class NoReviews(Reviews):
    """No verdict was ever sent."""

    def _read(self, repo: str, token: str | None) -> Standing:
        return Standing()


def folder_of(tables: list[Table], kind: str, folder: Path, without: str = "") -> Folder:
    """Write a set as it is published, and take a column out of its rows and its index."""
    for table in tables:
        built = build(table, folder / table.config)
        (split,) = built.splits
        (part,) = built.parts
        for path, name in ((split.files[0], table.config), (part.index, f"index-{table.config}")):
            there = f"read_parquet('{built.files[path]}')"
            columns = {row[0] for row in duckdb.execute(f"describe select * from {there}").fetchall()}
            left_out = f'exclude ("{without}")' if without in columns else ""
            duckdb.execute(f"copy (select * {left_out} from {there}) to '{folder / name}.parquet'")
    manifest = {"kind": kind, "tables": {table.config: {} for table in tables}, "counts": {}}
    name = Name(f"me/{kind}")
    source = RangeSource("http://127.0.0.1:9", name.repo, "c", None)
    return Folder(name, "c", manifest, source, str(folder), lambda config: str(folder / f"index-{config}.parquet"))


def everything(folder: Path, traces: Folder, without: str = "") -> Iterator[tuple[str, str]]:
    """Yield each answer of the Space that shows a pair, after its name."""
    folder.mkdir()
    pairs = folder_of([pairs_table([PAIR], {TRACE.trace_id: "train"})], "pairs", folder, without)
    library = Shelf(pairs, dataclasses.replace(traces, tables={}))
    pairs.tables["pairs"] = PairIndex(library, pairs, in_background=False)
    for is_open in (True, False):
        desk = ReviewDesk(library, open_labels=is_open)
        desk.reviews = NoReviews(library.api)
        for view, (name, value) in FACES.items():
            shown = desk.show({"view": view, name: value, "decided": "yes"}, None)
            yield f"{view} {is_open}", f"{shown.list_} {shown.detail}"
        yield f"filters {is_open}", str(desk.filters({"view": "pairs"}, None))
    for part in ("prompt", "chosen", "rejected", "tools"):
        yield part, json.dumps(desk.text({"pair": "p", "part": part, "at": "0"}, None))
    for answer in (desk.search, desk.pair, desk.stats):
        yield answer.__name__, json.dumps(answer({"pair": "p"}, None), sort_keys=True, default=str)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return folder_of(trace_tables(lambda: iter([TRACE])), "traces", tmp_path_factory.mktemp("traces"))


@pytest.fixture(scope="module")
def newest(traces: Folder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The answers of a set with every column, each with its default."""
    return dict(everything(tmp_path_factory.mktemp("newest") / "set", traces))


@pytest.mark.parametrize("column", WITH_DEFAULT)
def test_a_pair_without_a_column_is_shown_as_one_with_its_default(
    column: str, newest: dict[str, str], traces: Folder, tmp_path: Path
) -> None:
    older = dict(everything(tmp_path / "set", traces, column))
    assert older == newest, f"{column}: {sorted(name for name in newest if older[name] != newest[name])}"
