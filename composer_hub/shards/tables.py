"""Rows of a published version as inputs of shards: ranges of its Parquet files.

The coordinator reads footers only. A worker reads the row groups of its range from the folder at which a job
has mounted the dataset, or else from the Hub, without downloading the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from composer_hub.hub import Destination, HubDestination, Moved, Version, decode_rows
from composer_hub.shards.plan import Input, ShardError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

ROWS_A_RANGE = 32
"""Rows that are not cut further; a worker also converts this many at a time."""


def row_ranges(version: Version, config: str) -> list[Input]:
    """Return the rows of a config in their order, as ranges of a few rows."""
    ranges = []
    for split in version.splits(config):
        for path in version.manifest["tables"][config]["splits"][split]["files"]:
            about = {"dataset": f"{version.repo}@{version.revision}", "path": path}
            with _opened(Input(path, about=about), version.destination) as file:
                first = 0
                for group in map(file.metadata.row_group, range(file.metadata.num_row_groups)):
                    for start in range(0, group.num_rows, ROWS_A_RANGE):
                        number = min(ROWS_A_RANGE, group.num_rows - start)
                        size = group.total_byte_size * number // group.num_rows
                        ranges.append(Input(path, "", size, first + start, first + start + number, about))
                    first += group.num_rows
    return ranges


def merged_ranges(ranges: Sequence[Input]) -> list[Input]:
    """Return ranges that follow each other as one per file."""
    whole: list[Input] = []
    for one in ranges:
        if whole and (whole[-1].name, whole[-1].stop) == (one.name, one.start):
            whole[-1] = replace(whole[-1], stop=one.stop, num_bytes=whole[-1].num_bytes + one.num_bytes)
        else:
            whole.append(one)
    return whole


def rows_in(one: Input, destination: Destination, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Stream the rows of a range; raise ShardError if the place no longer has the version."""
    with _opened(one, destination) as file:
        first = 0
        for number in range(file.metadata.num_row_groups):
            after = first + file.metadata.row_group(number).num_rows
            if one.start < after and (one.stop is None or first < one.stop):
                at = first
                for batch in file.iter_batches(ROWS_A_RANGE, [number], columns):
                    start = max(0, one.start - at)
                    stop = batch.num_rows if one.stop is None else min(batch.num_rows, one.stop - at)
                    if start < stop:
                        yield from decode_rows(batch.slice(start, stop - start))
                    at += batch.num_rows
            first = after


@contextlib.contextmanager
def _opened(one: Input, destination: Destination) -> Iterator[ParquetFile]:
    import pyarrow.parquet as pq

    repo, _, revision = str(one.about["dataset"]).partition("@")
    path = str(one.about["path"])
    if (mounted := one.path).is_absolute():
        source: Any = mounted.open("rb")
    elif isinstance(destination, HubDestination):
        from huggingface_hub import HfFileSystem

        files = HfFileSystem(endpoint=destination.api.endpoint, token=destination.api.token, skip_instance_cache=True)
        source = destination.ask(
            f"Opening {repo}/{path}", lambda: files.open(f"datasets/{repo}@{revision}/{path}", "rb")
        )
    else:
        local = None
        with contextlib.suppress(Moved):
            local = destination.fetch(repo, revision, path)
        source = local.open("rb") if local else None
        # The folder has one version at a time. What is open now stays as it is.
        if local is None or destination.resolve(repo, revision) is None:
            raise ShardError(
                f"{destination.address} no longer holds {repo} at {revision}: another version was published since the "
                "plan was made. Run the same command again."
            )
    with source, pq.ParquetFile(source) as file:
        yield file
