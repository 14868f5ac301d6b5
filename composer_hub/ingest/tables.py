"""Rows of a table: a JSON list, JSON lines or a Parquet file in, (number, row) out, a batch in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from composer_hub.ingest.documents import read_records
from composer_hub.ingest.report import FileReport, SessionError

BATCH = 16
"""Rows decoded at once; one row may hold megabytes of messages."""


def read_rows(path: Path, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a Parquet or JSON file with their line or position."""
    with path.open("rb") as file:
        if file.read(4) == b"PAR1":
            yield from _parquet_rows(file, str(path), report)
            return
    yield from read_records(path, report)


def parquet_columns(path: Path) -> set[str]:
    """Return the columns of a Parquet file; none where it cannot be read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.read_schema(path).names)
    except (pa.ArrowException, OSError):
        return set()


def _parquet_rows(file: IO[bytes], name: str, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=BATCH):
            for row in batch.to_pylist():
                number += 1
                report.add("records")
                yield number, _without_padding(row)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SessionError(f"{name} is not Parquet that can be read ({error}), after {number} rows.") from error


def _without_padding(value: Any) -> Any:
    """Leave out the nulls of structs: a column has every row's fields, and none of them were written here."""
    if isinstance(value, dict):
        return {key: _without_padding(item) for key, item in value.items() if item is not None}
    return [_without_padding(item) for item in value] if isinstance(value, list) else value
