"""Rows in, Parquet files and digests out. The same rows give the same digests on every machine.

Rows are spooled to disk, ordered, checked for duplicate ids, digested one by one (`sha256` of their JSON) and written
so that repeated prompts stay small: zstd, large dictionary pages, and row groups that end after 1,000 rows, or after
1.5 MB of distinct values or four rows' worth. So a reader of one row downloads little, and a prompt that grows is still
stored about once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from composer_hub import exits
from composer_hub.hub.manifest import TablePart
from composer_hub.records import canonical_json

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

ROWS_A_GROUP = 1_000
ROWS_A_BATCH = 100
MAX_BATCH_BYTES = 4_000_000  # of JSON; as objects, rows take many times that
MAX_GROUP_BYTES = 32_000_000  # of Arrow, which is what the writer holds
MAX_DISTINCT_BYTES = 1_500_000  # of a row group's distinct values; compressed, a reader of one row downloads them
INDEX_ROWS_A_GROUP = 2_000
SHARD_BYTES = 250_000_000  # of JSON; a reader of one row downloads the footer, which then has some 150 row groups
SHARD_ROWS = 100_000
_DICTIONARY_PAGE = 256 * 1024 * 1024
_INT64 = 2**63
_UINT64 = 2**64


class TableError(exits.ComposerError, ValueError):
    """Rows that cannot be published as they are."""


@dataclass(frozen=True)
class Table:
    """One config of a dataset: its rows, their features, and the name of the id column."""

    config: str
    rows: Iterable[Mapping[str, Any]]
    features: Features
    id_column: str
    order: tuple[str, ...] = ()  # sort columns before the id
    split: str | None = "train"  # None: the `split` value of the row, which is not published as a column
    index_name: str = ""  # name of its file in index/; empty: the config
    index_columns: tuple[str, ...] = ()  # light columns of the index, besides id and digest
    index_derived: Mapping[str, tuple[Any, Callable[[Mapping[str, Any]], Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Split:
    """The files of one split."""

    name: str
    num_rows: int
    num_bytes: int  # of JSON
    digest: str  # over the rows' ids and digests
    files: tuple[str, ...]  # paths in the repository


@dataclass(frozen=True)
class Built:
    """One config: its splits, its files on disk, and those of an earlier version that stay as they are."""

    config: str
    features: Features
    splits: tuple[Split, ...]
    files: dict[str, Path]  # path in the repository -> file on this machine
    parts: tuple[TablePart, ...]
    counts: dict[str, int] = field(default_factory=dict)
    starts: Mapping[str, str] = field(default_factory=dict)  # path in the repository -> first sort value of the file
    kept: Mapping[str, int] = field(default_factory=dict)  # path in the repository -> bytes
    kept_rows: Mapping[str, str] = field(default_factory=dict)  # id -> digest

    @property
    def num_rows(self) -> int:
        return sum(split.num_rows for split in self.splits)

    @property
    def index(self) -> dict[str, str]:
        """Read the digest of each row, by its id."""
        import pyarrow.parquet as pq

        rows = dict(self.kept_rows)
        for part in self.parts:
            if part.index in self.files:
                columns = pq.read_table(self.files[part.index], columns=["id", "digest"]).to_pydict()
                rows |= zip(columns["id"], columns["digest"], strict=True)
        return rows

    @property
    def download_bytes(self) -> int:
        """Return the size of its data files."""
        paths = (path for split in self.splits for path in split.files)
        return sum(self.kept[path] if path in self.kept else self.files[path].stat().st_size for path in paths)

    @property
    def features_digest(self) -> str:
        return hashlib.sha256(canonical_json(self.features.to_dict()).encode()).hexdigest()


def build(
    table: Table,
    folder: Path,
    *,
    shard_bytes: int = SHARD_BYTES,
    shard_rows: int = SHARD_ROWS,
    max_shards: int = 1_000_000,
    part: int = 0,
) -> Built:
    """Write the Parquet files and index of a table into a folder; shards grow if a split would have too many.

    Files of later parts carry the number of their part, so they never replace others.
    """
    mark = f"-part{part:05d}" if part else ""
    with _Spool(folder / f".{table.config}.rows", table) as spool:
        files: dict[str, Path] = {}
        starts: dict[str, str] = {}
        splits = []
        for name in spool.splits():
            # A shard ends before a row that does not fit, so half of the shards are held in reserve.
            needed = 2 * spool.num_bytes(name) // max_shards
            rows = max(shard_rows, 4 * spool.num_rows(name) // max_shards)
            split, paths, firsts = _write_split(spool, table, name, folder, max(shard_bytes, needed), rows, mark)
            splits.append(split)
            files |= paths
            starts |= firsts
        index = f"index/{table.index_name or table.config}{mark}.parquet"
        whole = TablePart(part, index, tuple(files), sum(split.num_bytes for split in splits))
        files[index] = folder / index
        _write_index(spool, table, folder / index)
        return Built(table.config, table.features, tuple(splits), files, (whole,), dict(spool.counts), starts)


# ------------------------------------------------------------------------------------------------------------- spool


class _Spool:
    """Rows on disk in publishing order, so that memory does not grow with the dataset.

    The database has the places of the rows in a plain file: SQLite would hold a large row several times.
    """

    def __init__(self, path: Path, table: Table) -> None:
        self.path, self.table = path, table
        self.counts: dict[str, int] = {}
        self.end = 0  # of the bodies

    def __enter__(self) -> _Spool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self.bodies = self.path.with_suffix(".bodies").open("w+b")
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.executescript(
            "pragma journal_mode=off; pragma synchronous=off;"
            "create table rows(id text primary key, split text, rank text, digest text, num_bytes int, place int,"
            " is_plain int) without rowid;"
        )
        self.db.execute("begin")
        for row in self.table.rows:
            self._add(*_prepared(self.table, row))
        self.db.execute("create index by_rank on rows(split, rank, id)")
        self.db.execute("commit")
        return self

    def __exit__(self, *error: object) -> None:
        self.db.close()
        self.bodies.close()
        self.path.unlink(missing_ok=True)
        Path(self.bodies.name).unlink(missing_ok=True)

    def splits(self) -> list[str]:
        names = [name for (name,) in self.db.execute("select distinct split from rows order by split")]
        return sorted(names, key=lambda name: (name != "train", name)) or [self.table.split or "train"]

    def num_bytes(self, split: str) -> int:
        (total,) = self.db.execute("select coalesce(sum(num_bytes), 0) from rows where split = ?", (split,)).fetchone()
        return total

    def num_rows(self, split: str) -> int:
        (total,) = self.db.execute("select count(*) from rows where split = ?", (split,)).fetchone()
        return total

    def rows(self, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        query = "select num_bytes, place, is_plain from rows where split = ? order by rank, id"
        for num_bytes, place, is_plain in self.db.execute(query, (split,)):
            yield num_bytes, self._row(place, num_bytes, is_plain)

    def digests(self, split: str | None = None) -> Iterator[tuple[str, str, str]]:
        where, values = ("where split = ?", (split,)) if split is not None else ("", ())
        yield from self.db.execute(f"select id, digest, split from rows {where} order by id", values)

    def light_rows(self) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
        needs_rows = bool(self.table.index_columns or self.table.index_derived)
        query = "select id, digest, split, place, num_bytes, is_plain from rows order by id"
        for id, digest, split, *where in self.db.execute(query):
            row = self._row(*where) if needs_rows else {}
            light = {name: row.get(name) for name in self.table.index_columns}
            yield id, digest, split, light | {name: of(row) for name, (_, of) in self.table.index_derived.items()}

    def _row(self, place: int, num_bytes: int, is_plain: int) -> dict[str, Any]:
        self.bodies.seek(place)
        body = self.bodies.read(num_bytes)
        row: dict[str, Any] = orjson.loads(body) if is_plain else json.loads(body)
        return row

    def _add(self, id: str, split: str, rank: str, digest: str, body: bytes, is_plain: bool) -> None:
        values = (id, split, rank, digest, len(body), self.end, is_plain)
        if self.db.execute("insert or ignore into rows values(?,?,?,?,?,?,?)", values).rowcount:
            self.end += self.bodies.write(body)
            return
        if self.db.execute("select digest from rows where id = ?", (id,)).fetchone() != (digest,):
            raise TableError(
                f"Config {self.table.config} has two different rows with the {self.table.id_column} {id!r}: "
                "an id must name one row."
            )
        self.counts["duplicate_rows"] = self.counts.get("duplicate_rows", 0) + 1


def row_digest(table: Table, row: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id and the digest of a row as the index will hold them."""
    id, _, _, digest, *_ = _prepared(table, row)
    return id, digest


def digest_of_rows(rows: Iterable[tuple[str, str]]) -> str:
    """Return the digest of a split, from the id and digest of each row."""
    listing = "\n".join(f"{id} {digest}" for id, digest in sorted(rows))
    return hashlib.sha256(listing.encode()).hexdigest()


def _prepared(table: Table, row: Mapping[str, Any]) -> tuple[str, str, str, str, bytes, bool]:
    """Return id, split, rank, digest and JSON of a row, and whether orjson reads that JSON back exactly."""
    split = table.split or row["split"]
    columns = {name: row.get(name) for name in table.features}
    id = columns[table.id_column]
    if not isinstance(id, str) or not id:
        raise TableError(f"Config {table.config} has a row without a {table.id_column}: {str(row)[:200]}")
    rank = "\x00".join(_sortable(columns[name]) for name in table.order)
    try:
        # Keys are not sorted, because chat templates render the arguments of a call in their order.
        body, is_plain = _dumps(columns)
    except UnicodeEncodeError as error:
        raise TableError(
            f"Row {id} of config {table.config} holds text that is not valid Unicode (a lone surrogate): "
            "replace such characters before publishing."
        ) from error
    return id, split, rank, hashlib.sha256(body).hexdigest(), body, is_plain


def _sortable(value: Any) -> str:
    return f"{value:020d}" if isinstance(value, int) else str(value or "")


# ----------------------------------------------------------------------------------------------------------- parquet


def _write_split(
    spool: _Spool, table: Table, name: str, folder: Path, shard_bytes: int, shard_rows: int, mark: str
) -> tuple[Split, dict[str, Path], dict[str, str]]:
    shards = _shards(spool.rows(name), shard_bytes, shard_rows, table.id_column)
    keys = (*table.order, table.id_column)
    paths: list[Path] = []
    firsts: list[str] = []
    num_rows = num_bytes = 0
    directory = folder / "data" / table.config
    directory.mkdir(parents=True, exist_ok=True)
    for number, shard in enumerate(shards):
        path = directory / f".{name}-{number:05d}"
        with RowWriter(path, table.features, keys) as writer:
            more_rows, more_bytes, first = _write_rows(writer, shard, keys[0])
        firsts += [] if first is None else [first]
        num_rows, num_bytes = num_rows + more_rows, num_bytes + more_bytes
        paths.append(path)
    total = len(paths)
    named = {}
    for number, path in enumerate(paths):
        in_repo = f"data/{table.config}/{name}{mark}-{number:05d}-of-{total:05d}.parquet"
        named[in_repo] = path.rename(folder / in_repo)
    digest = digest_of_rows((id, digest) for id, digest, _ in spool.digests(name))
    split = Split(name, num_rows, num_bytes, digest, tuple(named))
    return split, named, dict(zip(named, firsts, strict=False))  # The file of an empty table has no first row.


def _write_rows(writer: RowWriter, rows: Iterator[tuple[int, dict[str, Any]]], key: str) -> tuple[int, int, str | None]:
    """Write rows; return their number, their size and the first value of a column.

    No variable holds the last row when the file is closed.
    """
    first, num_rows, num_bytes = None, 0, 0
    for size, row in rows:
        first = str(row[key] or "") if first is None else first
        writer.add(row, size)
        num_rows, num_bytes = num_rows + 1, num_bytes + size
    return num_rows, num_bytes, first


def _shards(
    rows: Iterator[tuple[int, dict[str, Any]]], shard_bytes: int, shard_rows: int, id_column: str
) -> Iterator[Iterator[tuple[int, dict[str, Any]]]]:
    """Cut the rows into full shards; an empty table has one empty shard.

    Once a shard is half full, a row's id decides whether the shard ends there. So a row that a later version
    adds changes only its own shard: the shards after it keep their content and are not uploaded again.
    """
    ahead, cut = next(rows, None), max(1, shard_rows // 16)

    def shard() -> Iterator[tuple[int, dict[str, Any]]]:
        nonlocal ahead
        filled = num_rows = 0
        while ahead is not None and (filled == 0 or filled + ahead[0] <= shard_bytes) and num_rows < shard_rows:
            filled, num_rows, id = filled + ahead[0], num_rows + 1, ahead[1][id_column]
            yield ahead
            ahead = None  # the row is written; without this it would be held while the next is read
            ahead = next(rows, None)
            if num_rows >= shard_rows // 2 and int(hashlib.sha256(id.encode()).hexdigest()[:8], 16) % cut == 0:
                return

    yield shard()
    while ahead is not None:
        yield shard()


class RowWriter:
    """A Parquet file that `load_dataset` reads unchanged, with the features in its schema.

    Readers look rows up by `keys`: statistics of long texts would be most of the footer.
    """

    def __init__(self, path: Path, features: Features, keys: Sequence[str] = ()) -> None:
        self.path, self.features, self.keys = path, features, keys
        self.pending: list[Mapping[str, Any]] = []
        self.pending_bytes = 0
        self.converted: list[pa.Table] = []  # rows as Arrow take a fraction of their memory as objects
        self.distinct: list[pa.Array] = []  # of each leaf column, the values of the row group so far
        self.is_full = False  # the row group

    def __enter__(self) -> RowWriter:
        import pyarrow.parquet as pq

        schema = self.features.arrow_schema
        self.writer = pq.ParquetWriter(
            self.path,
            schema,
            compression="zstd",
            use_dictionary=True,
            dictionary_pagesize_limit=_DICTIONARY_PAGE,
            use_content_defined_chunking=True,
            write_page_index=True,
            write_statistics=list(self.keys),
        )
        return self

    def __exit__(self, *error: object) -> None:
        import pyarrow as pa

        self._convert()
        self._flush()
        self.writer.close()
        pa.default_memory_pool().release_unused()  # a row of 100 MB leaves as much behind

    def add(self, row: Mapping[str, Any], num_bytes: int = 0) -> None:
        """Write a row; with its size as JSON, few large ones are held at once."""
        # A full group is written before the next row, when its rows are no longer referenced elsewhere.
        if self.is_full:
            self._flush()
        self.pending.append(row)
        self.pending_bytes += num_bytes
        if len(self.pending) == ROWS_A_BATCH or self.pending_bytes >= MAX_BATCH_BYTES:
            self._convert()

    def add_table(self, table: pa.Table) -> None:
        """Write rows that are in Arrow already; a row group ends after one of these tables."""
        import pyarrow as pa

        if self.is_full:
            self._flush()
        self.converted.append(table)
        leaves = [leaf for column in table.columns for leaf in _leaves(column.combine_chunks())]
        known = self.distinct or [leaf[:0] for leaf in leaves]
        self.distinct = [pa.concat_arrays(both).unique() for both in zip(known, leaves, strict=True)]
        num_bytes = sum(table.nbytes for table in self.converted)
        # The next group may repeat what a row holds. So a group has several times a row, however long its prompt is.
        most = max(MAX_DISTINCT_BYTES, *(4 * one.nbytes // max(1, len(one)) for one in self.converted))
        self.is_full = (
            sum(map(len, self.converted)) >= ROWS_A_GROUP
            or num_bytes >= MAX_GROUP_BYTES
            or sum(values.nbytes for values in self.distinct) >= most
        )

    def _convert(self) -> None:
        if self.pending:
            rows, self.pending, self.pending_bytes = self.pending, [], 0
            self.add_table(to_arrow(rows, self.features))

    def _flush(self) -> None:
        import pyarrow as pa

        if self.converted:
            tables, self.converted, self.distinct, self.is_full = self.converted, [], [], False
            table = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
            del tables
            self.writer.write_table(table, row_group_size=len(table))


def _leaves(column: Any) -> Iterator[pa.Array]:
    """Yield the arrays that Parquet stores a column as."""
    import pyarrow as pa

    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_list(column.type):
        yield from _leaves(column.flatten())
    elif pa.types.is_struct(column.type):
        for inner in column.flatten():
            yield from _leaves(inner)
    else:
        yield column


def to_arrow(rows: Sequence[Mapping[str, Any]], features: Features) -> pa.Table:
    """Return rows as an Arrow table; its JSON columns hold exactly the given values."""
    import pyarrow as pa

    schema = features.arrow_schema
    stored = pa.schema([pa.field(column.name, _storage(column.type)) for column in schema])
    encoders = {name: _encoder(feature) for name, feature in features.items()}
    columns = [
        pa.array([row.get(name) if encode is None else encode(row.get(name)) for row in rows], stored.field(name).type)
        for name, encode in encoders.items()
    ]
    return pa.Table.from_arrays(columns, schema=stored).cast(schema)


def _storage(type: Any) -> Any:
    import pyarrow as pa

    if isinstance(type, pa.BaseExtensionType):
        return type.storage_type
    if pa.types.is_list(type):
        return pa.list_(_storage(type.value_type))
    if pa.types.is_struct(type):
        return pa.struct([pa.field(inner.name, _storage(inner.type)) for inner in type])
    return type


def _encoder(feature: Any) -> Callable[[Any], Any] | None:
    """Return a function that converts a value for Arrow; None if no conversion is needed."""
    from datasets import Json, List

    if isinstance(feature, Json):
        return lambda value: None if value is None else json_text(value)
    if isinstance(feature, List):
        each = _encoder(feature.feature)
        return each and (lambda value: value and [each(item) for item in value])
    if isinstance(feature, dict):
        fields = {name: _encoder(inner) for name, inner in feature.items()}
        if any(fields.values()):
            return lambda value: (
                value
                and {name: encode(value.get(name)) if encode else value.get(name) for name, encode in fields.items()}
            )
    return None


def json_text(value: Any) -> str:
    """Return JSON that every reader of the Hub can parse.

    Integers beyond 64 bits become text, because `datasets` would otherwise return the whole value undecoded.
    """
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return orjson.dumps(_readable(value)).decode()


def _readable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_readable(item) for item in value]
    if isinstance(value, int) and not -_INT64 <= value < _UINT64:
        return str(value)
    return value


def _dumps(value: Any) -> tuple[bytes, bool]:
    try:
        return orjson.dumps(value), True
    except TypeError:  # an integer beyond 64 bits, or text that is not valid Unicode
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), False


def _write_index(spool: _Spool, table: Table, path: Path) -> None:
    """Write id, split, digest and the light columns of every row, by which readers compare versions."""
    import pyarrow.parquet as pq
    from datasets import Features, Value

    light = {name: table.features[name] for name in table.index_columns}
    light |= {name: feature for name, (feature, _) in table.index_derived.items()}
    features = Features({"id": Value("string"), "split": Value("string"), "digest": Value("string"), **light})
    rows = ({"id": id, "split": split, "digest": digest, **values} for id, digest, split, values in spool.light_rows())
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = features.arrow_schema
    with pq.ParquetWriter(path, schema, compression="zstd", use_content_defined_chunking=True) as writer:
        batches = iter(lambda: list(itertools.islice(rows, INDEX_ROWS_A_GROUP)), [])
        # One batch at least, so that an empty index also has its columns.
        for batch in itertools.chain([next(batches, [])], batches):
            writer.write_table(to_arrow(batch, features))
