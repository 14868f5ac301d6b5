"""One sqlite file under a folder: one writer at a time, a reader for each thread, and what the folder is known by.

Readers never wait for the writer. Writers wait for those of this process and of others, but not forever: then they are
`DatabaseBusy`. The writes of a transaction outlive this process once its block ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from composer_hub.local_hub.errors import LocalHubError

FORMAT = 2
"""The number of the folder's format: of its tables and of the files beside them."""
PATIENCE = 30.0
"""How long a transaction waits for the others, in seconds."""
_PAGES_AT_ONCE = 2000


class DatabaseError(LocalHubError, RuntimeError):
    """The folder of the embedded Hub cannot be used."""


class DatabaseBusy(LocalHubError, TimeoutError):
    """Other writers did not end in time."""


class Database:
    """Transactions on one folder's `hub.sqlite`; `id` and `secret` are drawn when the folder is new."""

    def __init__(
        self,
        root: Path,
        *,
        clock: Callable[[], float] = time.time,
        patience: float = PATIENCE,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.clock = clock
        self.patience = patience
        self._local = threading.local()
        self._lock = threading.RLock()
        self._writer = self._connect()
        self._check_format()
        self.add_schema("create table if not exists meta(key text primary key, value text not null) without rowid;")
        self.id = self._remembered("id")
        self.secret = self._remembered("secret")

    def add_schema(self, sql: str) -> None:
        """Create a part's tables if they are not there; statements must be repeatable."""
        with self._lock:
            self._writer.executescript(sql)

    def _check_format(self) -> None:
        """Number a new folder, and refuse one that another version of this module wrote."""
        if self._writer.execute("select 1 from sqlite_master limit 1").fetchone() is None:
            self._writer.execute(f"pragma user_version = {FORMAT}")
        (version,) = self._writer.execute("pragma user_version").fetchone()
        if version != FORMAT:
            raise DatabaseError(
                f"{self.root} was written by another version of the embedded Hub (format {version}; this one reads "
                f"{FORMAT}). Use that version of composer_hub, or serve another folder with --data."
            )

    def read(self) -> sqlite3.Connection:
        """Return this thread's connection for queries; it sees no transaction that is still open."""
        if not hasattr(self._local, "connection"):
            self._local.connection = self._connect()
        return self._local.connection

    @contextlib.contextmanager
    def write(self, patience: float | None = None) -> Iterator[sqlite3.Connection]:
        """Run one transaction: all of it is kept when the block ends, nothing of it when the block raises."""
        patience = self.patience if patience is None else patience
        until = time.monotonic() + patience
        if not self._lock.acquire(timeout=patience):
            raise DatabaseBusy(f"Another request is still writing to {self.root}. Try again.")
        try:
            if self._writer.in_transaction:
                yield self._writer
                return
            self._begin(until)
            try:
                yield self._writer
                self._writer.execute("commit")
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("rollback")
                raise
        finally:
            self._lock.release()

    def _begin(self, until: float) -> None:
        """Begin a transaction when no other process is in one."""
        self._writer.execute(f"pragma busy_timeout={max(0, int(1000 * (until - time.monotonic())))}").fetchall()
        try:
            self._writer.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            raise DatabaseBusy(f"Another process is still writing to {self.root}. Try again.") from error

    def current(self) -> sqlite3.Connection:
        """Return the connection for a query that may run in a transaction of this thread, and then sees its writes."""
        if self._lock.acquire(blocking=False):
            try:
                if self._writer.in_transaction:
                    return self._writer
            finally:
                self._lock.release()
        return self.read()

    def find_row(self, query: str, *values: str | int) -> Any:
        """Return the first row that `current` finds, None if there is none."""
        return self.current().execute(query, values).fetchone()

    def num_unused_bytes(self, db: sqlite3.Connection) -> int:
        """Return the size of the pages that hold nothing."""
        ((num_pages,), (size,)) = (db.execute(f"pragma {name}").fetchone() for name in ("freelist_count", "page_size"))
        return num_pages * size

    def shrink(self) -> None:
        """Give unused pages back to the system, in short transactions: others may write in between."""
        before = None
        while (left := self.num_unused_bytes(self.read())) and left != before:
            before = left
            with self.write() as db:
                db.execute(f"pragma incremental_vacuum({_PAGES_AT_ONCE})").fetchall()
        # The file itself becomes shorter when the log is copied into it; if others use it, they do that later.
        with self._lock:
            self._writer.execute("pragma wal_checkpoint(truncate)").fetchall()

    def now(self) -> str:
        """Return the time as the Hub writes it."""
        moment = datetime.fromtimestamp(self.clock(), UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"

    def close(self) -> None:
        with self._lock:
            self._writer.close()

    def _connect(self) -> sqlite3.Connection:
        path = self.root / "hub.sqlite"
        # Private files and the signing secret are in it: no other account of the machine may read it. A file that is
        # there must not be opened: closing it would end the locks that this process holds on it, and another process
        # would then remove the log that this one writes to.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        path.chmod(0o600)
        connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=self.patience)
        if connection.execute("pragma page_count").fetchone() == (0,):
            # It must come before the first page. In a file with pages it would wait for other writers, and readers
            # do not wait.
            connection.execute("pragma auto_vacuum=incremental")
        # In WAL mode a killed process loses nothing with `normal`; a power cut may take back the last commits, whole.
        connection.executescript("pragma journal_mode=wal; pragma synchronous=normal; pragma foreign_keys=on;")
        # Pages of the log are copied and flushed every 16 MB: small commits change the same ones again and again.
        connection.execute("pragma wal_autocheckpoint=4000")
        return connection

    def _remembered(self, key: str) -> str:
        query = "select value from meta where key=?"
        if (row := self._writer.execute(query, (key,)).fetchone()) is None:
            with self.write() as db:
                db.execute("insert or ignore into meta values(?,?)", (key, secrets.token_hex(16)))
                row = db.execute(query, (key,)).fetchone()
        return row[0]


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Return whether another process kept the database for longer than we wait."""
    return "locked" in str(error)
