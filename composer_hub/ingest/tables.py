"""Rows of a table, wherever it lies: a JSON list, JSON lines, a Parquet file, or the files of a Hub dataset.

In: a path, or `hf://datasets/owner/name[@revision][/folder]` with the file system to read it through. Out: (number,
row). Nothing is held but the rows of one batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from composer_hub.exits import ComposerError
from composer_hub.ingest.documents import read_records
from composer_hub.ingest.lines import parse
from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.ingest.values import as_text

if TYPE_CHECKING:
    from huggingface_hub import HfApi, HfFileSystem

BATCH = 16
"""Rows decoded at once; one row may hold megabytes of messages."""

_URI = re.compile(r"hf://datasets/(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<under>.*))?")
_READABLE = (".parquet", ".jsonl", ".json")


class DatasetError(ComposerError, OSError):
    """A Hub dataset that is not there, or holds no rows."""


@dataclass(frozen=True, slots=True)
class HubTable:
    """A dataset at one commit: its files, and the licence of its card."""

    repo: str
    revision: str
    license: str
    files: tuple[str, ...]


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


def hub_table(uri: str, api: HfApi, fs: HfFileSystem) -> HubTable:
    """Find a dataset's files, at the commit that its revision names now."""
    from huggingface_hub.errors import HfHubHTTPError

    match = _URI.fullmatch(uri)
    if match is None:
        raise DatasetError(
            f"{uri!r} names no dataset. Write hf://datasets/owner/name or hf://datasets/owner/name@revision."
        )
    try:
        info = api.dataset_info(match["repo"], revision=match["revision"])
    except HfHubHTTPError as error:
        told = f"{type(error).__name__}, HTTP {error.response.status_code}"
        raise DatasetError(
            f"{uri} cannot be read from {api.endpoint} ({told}). Check its name, its revision and your token."
        ) from error
    root = f"datasets/{match['repo']}@{info.sha}/{match['under'] or ''}".rstrip("/")
    files = tuple(name for name in sorted(fs.find(root)) if name.endswith(_READABLE))
    if not files:
        raise DatasetError(f"{uri} holds no Parquet or JSON file. Name a revision or a folder of it that does.")
    card = info.card_data
    return HubTable(match["repo"], info.sha or "", as_text(card.get("license")) if card else "", files)


def hub_rows(table: HubTable, report: FileReport, fs: HfFileSystem) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a Hub dataset, file by file as they stream in."""
    for name in table.files:
        with fs.open(name, "rb") as file:
            if name.endswith(".parquet"):
                yield from _parquet_rows(file, name, report)
            else:
                yield from _json_rows(file, name, report)


def _parquet_rows(file: IO[bytes], name: str, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=BATCH):
            for row in batch.to_pylist():
                number += 1
                report.add("records")
                yield number, row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SessionError(f"{name} is not Parquet that can be read ({error}), after {number} rows.") from error


def _json_rows(file: IO[bytes], name: str, report: FileReport) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, value in _json_values(file, name, report):
        if isinstance(value, dict):
            report.add("records")
            yield number, value
        else:
            report.corrupt(number, f"of {name} is no object, and was skipped.")


def _json_values(file: IO[bytes], name: str, report: FileReport) -> Iterator[tuple[int, Any]]:
    if name.endswith(".json") and (document := parse(file.read(), report)) is not None:
        yield from enumerate(document if isinstance(document, list) else [document], start=1)
        return
    for number, line in enumerate(file, start=1):
        try:
            if line.strip():
                yield number, parse(line, report)
        except ValueError as error:
            report.corrupt(number, f"of {name} is not JSON ({error}) and was skipped.")
