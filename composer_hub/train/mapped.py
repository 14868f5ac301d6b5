"""Token rows in an Arrow file that all ranks of a machine map into memory.

In: an iterator of pairs or hint sites. Out: `MappedRows`, a sequence that reads one row at a time. The pages of the
file belong to the page cache, so they exist once per machine and the system may drop them.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import orjson
import pyarrow as pa
from datasets import Dataset

from composer_hub.records import Hint, from_row, to_row
from composer_hub.train.batch import HintSite
from composer_hub.train.pair_loader import TokenPair

R = TypeVar("R")
_ROWS_A_BATCH = 64
_IDS = pa.list_(pa.int32())
PAIRS = pa.schema({"pair_id": pa.string(), "prompt_ids": _IDS, "chosen_ids": _IDS, "rejected_ids": _IDS})
SITES = pa.schema(
    {
        "hint": pa.binary(), "prefix_ids": _IDS, "cut": pa.int32(), "inserted_ids": _IDS, "action_ids": _IDS,
        "corrected_ids": _IDS, "step": pa.int32(), "is_exact": pa.bool_(),
    }
)  # fmt: skip


@dataclass(frozen=True)
class MappedRows(Sequence[R], Generic[R]):
    """Rows of a mapped file; `read` makes a row from its columns and its place."""

    table: Dataset
    read: Callable[[Mapping[str, Any], int], R] = field(repr=False)

    @classmethod
    def open(cls, path: Path, read: Callable[[Mapping[str, Any], int], R]) -> MappedRows[R]:
        """Map a file that `write` has made; it may be removed once it is mapped."""
        return cls(Dataset.from_file(str(path)).with_format("arrow"), read)

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, place: int) -> R: ...
    @overload
    def __getitem__(self, place: slice) -> list[R]: ...
    def __getitem__(self, place: int | slice) -> R | list[R]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(len(self)))]
        row = self.table[place]
        return self.read({name: _value(row.column(name).chunk(0)) for name in row.column_names}, place)


def write(path: Path, schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write rows as Arrow, a few at a time, and return their number."""
    rows, num_rows = iter(rows), 0
    with path.open("wb") as file, pa.ipc.new_stream(file, schema) as writer:
        while part := list(itertools.islice(rows, _ROWS_A_BATCH)):
            writer.write_batch(pa.RecordBatch.from_pylist(part, schema))
            num_rows += len(part)
    return num_rows


def pair_row(pair_id: str, pair: TokenPair) -> dict[str, Any]:
    """Return a pair as the columns of `PAIRS`."""
    return {"pair_id": pair_id, **{name: getattr(pair, name) for name in PAIRS.names[1:]}}


def site_row(site: HintSite) -> dict[str, Any]:
    """Return a site of a published trace as the columns of `SITES`."""
    return {name: getattr(site, name) for name in SITES.names} | {"hint": orjson.dumps(to_row(site.hint))}


def read_site(row: Mapping[str, Any], place: int) -> HintSite:
    """Return the site that `site_row` stored."""
    return HintSite(**{**row, "hint": from_row(Hint, orjson.loads(row["hint"]))})


def read_pair(logps: Sequence[float]) -> Callable[[Mapping[str, Any], int], TokenPair]:
    """Return the reader of pairs whose reference log-probs are `logps`, two a pair in the order of the file."""

    def read(row: Mapping[str, Any], place: int) -> TokenPair:
        return TokenPair(
            row["prompt_ids"], row["chosen_ids"], row["rejected_ids"], logps[2 * place], logps[2 * place + 1]
        )

    return read


def _value(column: pa.Array) -> Any:
    # Tokens become the arrays that encoders return, so that all readers of a row see one type.
    value = column[0]
    return array("i", value.values.to_numpy().tobytes()) if pa.types.is_list(column.type) else value.as_py()
