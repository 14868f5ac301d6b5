"""Datasets as a source: what their card says, and which files of a published version are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub import exits
from composer_hub.hub import Card, FolderDestination, PublishOptions, Table, publish
from composer_hub.ingest.dataset import trace_tables
from composer_hub.ingest.downloads import card_license, local_files, local_sources
from composer_hub.records import Pair, features_of, to_row
from tests.factories import make_pair, make_trace


@pytest.mark.parametrize(("card", "license"), [
    ("---\nlicense: cc-by-4.0\n---\n# Chats", "cc-by-4.0"),
    ("---\nlicense: other\nlicense_name: house-rules\n---\n", "house-rules"),
    ("---\nlicense: other\n---\n", "other"),
    ("---\nlicense: [mit, apache-2.0]\n---\n", "mit, apache-2.0"),
    ("---\ntags: [x]\n---\n", ""),
    ("---\nlicense: [}\n---\n", ""),
    ("---\n- a list\n---\n", ""),
    ("# No card", ""),
])  # fmt: skip
def test_the_license_of_a_card_is_read_if_there_is_one(card: str, license: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(card)
    assert card_license(tmp_path / "README.md") == license


def test_a_dataset_without_a_card_has_no_license() -> None:
    assert card_license(None) == ""


@pytest.fixture
def published(tmp_path: Path) -> FolderDestination:
    """A folder with a version of traces in two files, and one of pairs."""
    where = FolderDestination(tmp_path / "shelf")
    holes = {"origin": "", "redaction": "", "policy": "", "report": ""}
    traces = [make_trace(number) for number in range(4)]
    card = Card("traces", "Traces", "mit", holes=holes)
    publish(where, "me/traces", trace_tables(lambda: iter(traces)), card, options=PublishOptions(shard_bytes=2_500))
    pairs = Table("default", [to_row(make_pair())], features_of(Pair), "pair_id")
    publish(where, "me/pairs", [pairs], Card("pairs", "Pairs", "mit", holes=holes))
    return where


def test_only_the_traces_of_a_published_version_are_read(published: FolderDestination) -> None:
    folder = published.root / "me" / "traces"
    expected = sorted(folder.glob("data/traces/*.parquet")) or sorted(folder.rglob("traces*/*.parquet"))
    assert len(expected) > 1
    assert local_files(folder) == expected
    paths, origins = local_sources(["hf://datasets/me/traces"], published)
    assert paths == expected
    assert {origin.provenance["dataset"] for origin in origins.values()} == {"me/traces"}
    assert {origin.license for origin in origins.values()} == {"mit"}


@pytest.mark.parametrize("source", ["{folder}", "hf://datasets/me/pairs"])
def test_a_version_without_traces_is_named_with_what_it_holds(published: FolderDestination, source: str) -> None:
    folder = published.root / "me" / "pairs"
    with pytest.raises(exits.UsageError, match=r"me/pairs was published by composer_hub and holds default, but no"):
        local_sources([source.format(folder=folder)], published)


def test_a_copy_of_a_version_that_lacks_a_table_is_not_read_in_part(published: FolderDestination) -> None:
    folder = published.root / "me" / "traces"
    local_files(folder)[-1].unlink()
    with pytest.raises(exits.UsageError, match=r"lacks .*\.parquet, which its manifest names"):
        local_files(folder)


def test_a_folder_with_another_file_of_that_name_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "composer_manifest.json").write_text("{")
    assert local_files(tmp_path) == [tmp_path]
    assert local_files(tmp_path / "none") == [tmp_path / "none"]


def test_an_empty_source_is_not_the_folder_of_the_command():
    with pytest.raises(exits.UsageError, match="A source is empty"):
        local_sources([""], None)
