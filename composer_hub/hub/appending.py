"""New rows as new files beside those of an earlier version, so that nothing is uploaded twice.

In: a version and a table. Out: a `Built` whose new rows are in new files, a *part*, and whose other files stay
as they are on the Hub. Rows that the version holds are left out. If a row has changed, the part that holds it is
written again into the new one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from composer_hub.hub.loading import Version
from composer_hub.hub.manifest import ManifestError, TablePart, parts_of, read_rows_of_index
from composer_hub.hub.protocol import Entry
from composer_hub.hub.tables import Built, Split, Table, TableError, build, digest_of_rows, row_digest


def build_onto(before: Version, table: Table, folder: Path, *, shard_bytes: int, max_shards: int) -> Built:
    """Write the rows that a version lacks, and return the table with its old and its new files."""
    published = before.manifest["tables"].get(table.config)
    if published is None:
        return build(table, folder, shard_bytes=shard_bytes, max_shards=max_shards)
    if table.split is None:
        raise TableError(f"Config {table.config} has several splits: rows can be added to a config with one.")
    kept = list(parts_of(published))
    index = {part.number: read_rows_of_index(before.destination, before.repo, before.revision, part) for part in kept}
    known = {id: digest for rows in index.values() for id, digest, _ in rows}
    changed: set[str] = set()

    def fresh() -> Iterator[Mapping[str, Any]]:
        for row in table.rows:
            id, digest = row_digest(table, row)
            if known.get(id) != digest:
                if id in known:
                    changed.add(id)
                yield row
        for part in [part for part in kept if changed & {id for id, _, _ in index[part.number]}]:
            kept.remove(part)
            for row in before.rows_of(part.files):
                if row[table.id_column] not in changed:
                    yield row

    number = 1 + max(part.number for part in kept)
    new = build(
        dataclasses.replace(table, rows=fresh()), folder, shard_bytes=shard_bytes, max_shards=max_shards, part=number
    )
    if published["features_digest"] != new.features_digest:
        # Files of one config must have the same columns.
        raise TableError(
            f"Config {table.config} of {before.repo} was published with other columns, so rows cannot be added to it. "
            "Publish all rows to another repository."
        )
    kept_files = {path for part in kept for path in part.files}
    starts = {path: start for path, start in published.get("starts", {}).items() if path in kept_files}
    new = dataclasses.replace(new, starts=starts | dict(new.starts))
    return _merged(before, new, kept, [row for part in kept for row in index[part.number]])


def _merged(before: Version, new: Built, kept: list[TablePart], rows: list[tuple[str, str, str]]) -> Built:
    there = before.destination.files(before.repo, before.revision)
    (split,) = new.splits
    parts = [*kept, *new.parts] if split.num_rows else kept
    total = Split(
        split.name,
        len(rows) + split.num_rows,
        sum(part.num_bytes for part in parts),
        digest_of_rows([*((id, digest) for id, digest, _ in rows), *new.index.items()]),
        tuple(path for part in parts for path in part.files),
    )
    return dataclasses.replace(
        new,
        splits=(total,),
        files=new.files if split.num_rows else {},
        parts=tuple(parts),
        kept={path: _size(there, path) for part in kept for path in (*part.files, part.index)},
        kept_rows={id: digest for id, digest, _ in rows},
    )


def _size(there: Mapping[str, Entry], path: str) -> int:
    if path not in there:
        raise ManifestError(f"{path} is gone, although the manifest names it. Publish all rows again.")
    return there[path].num_bytes
