"""Rows become the same Parquet files and digests everywhere, small where prompts repeat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import load_dataset

from composer_hub.hub import Table, TableError, decode_rows
from composer_hub.hub.tables import MAX_DISTINCT_BYTES, build, json_text
from composer_hub.records import Message, Pair, features_of, to_row
from tests.factories import make_pair


def pairs_table(pairs: list[Pair], **changes: Any) -> Table:
    values: dict[str, Any] = {"order": ("trace_id", "index"), "index_columns": ("trace_id", "num_agree")} | changes
    return Table("default", [to_row(pair) for pair in pairs], features_of(Pair), "pair_id", **values)


def read(path: Path) -> list[dict[str, Any]]:
    return [row for batch in pq.ParquetFile(path).iter_batches() for row in decode_rows(batch)]


def test_rows_stand_in_order_whatever_order_they_came_in(tmp_path: Path) -> None:
    pairs = [make_pair(i) for i in range(7)]
    one = build(pairs_table(pairs), tmp_path / "a")
    two = build(pairs_table(pairs[::-1]), tmp_path / "b")
    assert one.splits == two.splits
    rows = read(one.files["data/default/train-00000-of-00001.parquet"])
    keys = [(row["trace_id"], row["index"]) for row in rows]
    assert keys == sorted(keys)
    assert len(rows) == 7


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    pairs = [make_pair(i) for i in range(3)]
    one, two = build(pairs_table(pairs), tmp_path / "a"), build(pairs_table(pairs), tmp_path / "b")
    for path, file in one.files.items():
        assert file.read_bytes() == two.files[path].read_bytes()


def test_one_changed_argument_changes_one_digest(tmp_path: Path) -> None:
    before = build(pairs_table([make_pair(0), make_pair(1)]), tmp_path / "a")
    after = build(pairs_table([make_pair(0), make_pair(1, cost_usd=0.1)]), tmp_path / "b")
    assert before.splits[0].digest != after.splits[0].digest
    assert sum(before.index[id] != after.index[id] for id in before.index) == 1


def test_a_row_given_twice_counts_once(tmp_path: Path) -> None:
    built = build(pairs_table([make_pair(0), make_pair(0)]), tmp_path)
    assert (built.num_rows, built.counts) == (1, {"duplicate_rows": 1})


def test_two_rows_with_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="two different rows with the pair_id"):
        build(pairs_table([make_pair(0), make_pair(0, cost_usd=1.0)]), tmp_path)


def test_a_row_without_an_id_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="without a pair_id"):
        build(pairs_table([make_pair(0, pair_id="")]), tmp_path)


def test_text_that_is_not_unicode_is_refused_with_the_row(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="lone surrogate"):
        build(pairs_table([make_pair(0, prompt=(Message("user", "\ud800"),))]), tmp_path)


def test_an_empty_table_still_has_a_file_with_its_columns(tmp_path: Path) -> None:
    built = build(pairs_table([]), tmp_path)
    (path,) = built.splits[0].files
    assert pq.read_schema(built.files[path]).names == list(features_of(Pair))
    assert built.num_rows == 0


def test_a_full_shard_starts_the_next_one(tmp_path: Path) -> None:
    built = build(pairs_table([make_pair(i) for i in range(9)]), tmp_path, shard_bytes=4_000)
    (split,) = built.splits
    assert len(split.files) > 2
    assert sum(len(read(built.files[path])) for path in split.files) == 9


def test_a_row_larger_than_a_shard_gets_its_own_shard(tmp_path: Path) -> None:
    big = make_pair(1, prompt=(Message("user", "x" * 10_000),))
    built = build(pairs_table([make_pair(0), big, make_pair(2)]), tmp_path, shard_bytes=3_000)
    assert len(built.splits[0].files) == 3


def test_an_added_row_changes_few_files_of_many_and_stock_datasets_reads_them(tmp_path: Path) -> None:
    pairs = [make_pair(i) for i in range(600)]
    before = build(pairs_table(pairs), tmp_path / "a", shard_rows=60)
    after = build(pairs_table([*pairs, make_pair(601)]), tmp_path / "b", shard_rows=60)
    shards = [
        {path.read_bytes() for name, path in built.files.items() if "index" not in name} for built in (before, after)
    ]
    assert len(shards[0]) >= 10
    assert len(shards[1] - shards[0]) <= 4
    files = [str(path) for name, path in sorted(after.files.items()) if "index" not in name]
    loaded = load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    assert sorted(loaded["pair_id"]) == sorted({pair.pair_id for pair in [*pairs, make_pair(601)]})


def test_rows_may_name_their_own_split(tmp_path: Path) -> None:
    rows = [to_row(make_pair(i)) | {"split": "test" if i == 3 else "train"} for i in range(4)]
    built = build(Table("default", rows, features_of(Pair), "pair_id", split=None), tmp_path)
    assert [(split.name, split.num_rows) for split in built.splits] == [("train", 3), ("test", 1)]


def test_the_index_holds_digests_and_light_columns(tmp_path: Path) -> None:
    built = build(pairs_table([make_pair(0), make_pair(1)]), tmp_path)
    rows = read(built.files["index/default.parquet"])
    assert {row["id"]: row["digest"] for row in rows} == built.index
    assert [row["num_agree"] for row in rows] == [2, 2]


def test_a_prompt_that_grows_is_stored_about_once(tmp_path: Path) -> None:
    import random

    source = random.Random(1)
    messages = [Message("user", "".join(source.choices("abcdefgh \n", k=4_000))) for _ in range(60)]
    pairs = [make_pair(i, trace_id="t", prompt=tuple(messages[: i + 1])) for i in range(60)]
    built = build(pairs_table(pairs), tmp_path)
    text = sum(len(message.content) for pair in pairs for message in pair.prompt)
    stored = built.files[built.splits[0].files[0]].stat().st_size
    assert stored < text / 25


def test_a_row_group_holds_about_a_thousand_rows(tmp_path: Path) -> None:
    built = build(pairs_table([make_pair(i) for i in range(2_500)]), tmp_path)
    file = pq.ParquetFile(built.files[built.splits[0].files[0]])
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [1000, 1000, 500]
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"


def test_a_row_group_ends_once_a_reader_of_one_row_would_download_much(tmp_path: Path) -> None:
    import random

    source = random.Random(1)
    pairs = [make_pair(i, prompt=(Message("user", source.randbytes(5_000).hex()),)) for i in range(1_000)]
    built = build(pairs_table(pairs), tmp_path)
    file = pq.ParquetFile(built.files[built.splits[0].files[0]])
    groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
    assert sum(group.num_rows for group in groups) == 1_000
    assert max(group.total_byte_size for group in groups) <= MAX_DISTINCT_BYTES + 100 * 11_000


def test_a_long_prompt_that_every_row_repeats_is_stored_a_few_times_at_most(tmp_path: Path) -> None:
    import random

    source = random.Random(1)
    prompt = (Message("user", source.randbytes(MAX_DISTINCT_BYTES).hex()),)  # more than a row group may have
    built = build(pairs_table([make_pair(i, trace_id="t", prompt=prompt) for i in range(40)]), tmp_path)
    assert built.files[built.splits[0].files[0]].stat().st_size < 7 * MAX_DISTINCT_BYTES


def test_the_first_trace_of_each_file_is_named_and_its_statistics_are_those_of_the_keys(tmp_path: Path) -> None:
    pairs = [make_pair(i, trace_id=f"t{i // 2}") for i in range(9)]
    built = build(pairs_table(pairs), tmp_path, shard_bytes=4_000)
    files = built.splits[0].files
    assert len(files) > 2
    assert built.starts == {path: read(built.files[path])[0]["trace_id"] for path in files}
    columns = pq.read_metadata(built.files[files[0]]).row_group(0).to_dict()["columns"]
    assert {one["path_in_schema"] for one in columns if one["statistics"]} == {"trace_id", "index", "pair_id"}


def test_an_empty_table_names_no_first_trace(tmp_path: Path) -> None:
    assert build(pairs_table([]), tmp_path).starts == {}


def test_a_row_group_of_huge_rows_that_repeat_ends_at_32_megabytes(tmp_path: Path) -> None:
    prompt = (Message("user", "x" * 5_000_000),)
    built = build(pairs_table([make_pair(i, prompt=prompt) for i in range(10)]), tmp_path)
    file = pq.ParquetFile(built.files[built.splits[0].files[0]])
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [7, 3]


def test_json_text_keeps_the_order_of_keys() -> None:
    assert json_text({"z": 1, "a": [2**70]}) == '{"z":1,"a":["1180591620717411303424"]}'
