"""Sessions in SQLite databases: a path in, tables and rows out; the user's files are never written or locked.

Harnesses keep their databases open in WAL mode: new rows are in `NAME-wal` until a checkpoint moves them. Such a
database is read from a copy of both files, which is taken again if one of them changed meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub.ingest.files import size_of, stat_of, wal_of
from composer_hub.ingest.report import SessionError

if TYPE_CHECKING:
    import sqlite3

MAGIC = b"SQLite format 3\x00"
_TRIES = 3


def tables_of(head: bytes, path: Path) -> dict[str, frozenset[str]]:
    """Return the columns of each table of a database; nothing if the file is none or cannot be read."""
    return _tables(path, stat_of(path)) if head.startswith(MAGIC) else {}


@functools.lru_cache(maxsize=2)  # every reader of databases asks
def _tables(path: Path, stat: tuple[int, ...]) -> dict[str, frozenset[str]]:
    try:
        with opened(path) as database:
            names = [row["name"] for row in rows(database, "SELECT name FROM sqlite_master WHERE type = 'table'")]
            return {name: _columns(database, name) for name in names}
    except (SessionError, OSError):
        return {}


def _columns(database: sqlite3.Connection, table: str) -> frozenset[str]:
    return frozenset(row["name"] for row in rows(database, "SELECT name FROM pragma_table_info(?)", table))


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading until the block ends; raise SessionError if it is damaged or keeps changing."""
    import sqlite3

    with contextlib.ExitStack() as stack:
        if size_of(wal_of(path)):
            path = _copied(path, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="composer-database-"))))
        # `immutable` takes no lock and creates no files beside the database.
        uri = f"{path.absolute().as_uri()}?mode=ro{'' if size_of(wal_of(path)) else '&immutable=1'}"
        try:
            database = stack.enter_context(contextlib.closing(sqlite3.connect(uri, uri=True)))
            database.row_factory = sqlite3.Row
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            database.execute("PRAGMA trusted_schema = OFF")
            yield database
        except sqlite3.Error as error:
            raise SessionError(
                f"{path.name} cannot be read as a SQLite database ({error}). If its harness is running, try again."
            ) from error


def _copied(path: Path, folder: Path) -> Path:
    copy = folder / path.name
    for _ in range(_TRIES):
        before = stat_of(path)
        shutil.copyfile(path, copy)
        shutil.copyfile(wal_of(path), wal_of(copy))
        if stat_of(path) == before:
            return copy
    raise SessionError(f"{path} changed while it was copied, {_TRIES} times. Try again when its harness is idle.")


def rows(database: sqlite3.Connection, query: str, *values: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a query by the names of their columns, which differ between versions of a harness."""
    return (dict(row) for row in database.execute(query, values))
