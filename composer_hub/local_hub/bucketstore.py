"""Buckets in the store: mutable folders of files known by their Xet hash. One batch is one transaction. No HTTP here.

In: operations as clients send them (`addFile`, `copyFile`, `deleteFile`). Out: listings, and per operation what failed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from composer_hub.local_hub.chunkstore import Chunks, forget_scope
from composer_hub.local_hub.store import Exists, Store
from composer_hub.local_hub.trees import BadPath, check_path

SCHEMA = """
create table if not exists buckets(
    id integer primary key autoincrement, name text not null unique, visibility text not null, created_by text not null,
    created_at text not null);
create table if not exists bucket_files(
    bucket integer, path text, xet_hash text not null, size integer not null, mtime integer not null,
    uploaded_at text not null, primary key(bucket, path)) without rowid;
create index if not exists bucket_files_by_hash on bucket_files(bucket, xet_hash);
"""
_HASH = re.compile(r"[0-9a-f]{64}")
_MAX_MTIME = 1 << 50
_FILE = "path, xet_hash, size, mtime, uploaded_at"

FindSource = Callable[[sqlite3.Connection, str, str, str], str]
"""(connection, source type, source id, Xet hash) -> who holds this file, or "" if the caller may not read it there."""


class BadOperation(Exception):
    """One operation of a batch cannot be applied; the message goes to the client beside its path."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket; `name` is `namespace/name`."""

    id: int
    name: str
    visibility: str
    created_by: str
    created_at: str

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    @property
    def is_private(self) -> bool:
        return self.visibility == "private"

    @property
    def scope(self) -> str:
        """Return the name under which the bucket holds files of chunks."""
        return f"bucket-{self.id}"


@dataclass(frozen=True, slots=True)
class BucketFile:
    """One file of a bucket; `mtime` is in milliseconds."""

    path: str
    xet_hash: str
    size: int
    mtime: int
    uploaded_at: str

    def shown(self) -> dict[str, Any]:
        """Return the file as clients read it."""
        mtime = datetime.fromtimestamp(self.mtime / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        return {
            "type": "file",
            "path": self.path,
            "size": self.size,
            "xetHash": self.xet_hash,
            "mtime": mtime,
            "uploadedAt": self.uploaded_at,
        }


def find_bucket(db: sqlite3.Connection, name: str) -> Bucket | None:
    """Return a bucket by its full name, `namespace/name`, for any caller; None if it does not exist."""
    row = db.execute(
        "select id, name, visibility, created_by, created_at from buckets where name=?", (name,)
    ).fetchone()
    return Bucket(*row) if row else None


def buckets_of(db: sqlite3.Connection, namespace: str) -> list[Bucket]:
    """Return all buckets of a namespace, private ones included, sorted by name."""
    rows = db.execute(
        "select id, name, visibility, created_by, created_at from buckets where name>=? and name<? order by name",
        (namespace + "/", namespace + "0"),
    )
    return [Bucket(*row) for row in rows]


def create_bucket(store: Store, name: str, visibility: str, author: str) -> Bucket:
    """Create an empty bucket and return it; raise Exists if the name is taken."""
    with store.write() as db:
        if find_bucket(db, name) is not None:
            raise Exists(f"The bucket {name} already exists.")
        values = (name, visibility, author, store.now())
        db.execute("insert into buckets(name, visibility, created_by, created_at) values(?,?,?,?)", values)
        bucket = find_bucket(db, name)
        assert bucket is not None
        return bucket


def delete_bucket(store: Store, bucket: Bucket) -> None:
    """Delete a bucket with its files and pending uploads, in one transaction."""
    with store.write() as db:
        db.execute("delete from bucket_files where bucket=?", (bucket.id,))
        forget_scope(db, bucket.scope)
        db.execute("delete from buckets where id=?", (bucket.id,))


def set_visibility(store: Store, bucket: Bucket, visibility: str) -> None:
    """Make a bucket `public` or `private`; the caller checks the word."""
    with store.write() as db:
        db.execute("update buckets set visibility=? where id=?", (visibility, bucket.id))


def totals(db: sqlite3.Connection, bucket: Bucket) -> tuple[int, int]:
    """Return a bucket's size in bytes and its number of files."""
    query = "select coalesce(sum(size), 0), count(*) from bucket_files where bucket=?"
    size, count = db.execute(query, (bucket.id,)).fetchone()
    return size, count


def files_at(db: sqlite3.Connection, bucket: Bucket, paths: Iterable[str]) -> list[BucketFile]:
    """Return the files among these paths that exist."""
    found = (
        db.execute(f"select {_FILE} from bucket_files where bucket=? and path=?", (bucket.id, path)).fetchone()
        for path in paths
    )
    return [BucketFile(*row) for row in found if row]


def holds(db: sqlite3.Connection, bucket: Bucket, xet_hash: str) -> bool:
    """Return whether a file of the bucket has this Xet hash, so that its readers may copy the content."""
    query = "select 1 from bucket_files where bucket=? and xet_hash=? limit 1"
    return db.execute(query, (bucket.id, xet_hash)).fetchone() is not None


def walk(db: sqlite3.Connection, bucket: Bucket, prefix: str = "", after: str = "") -> Iterator[BucketFile]:
    """Yield the files below a folder (or the file of that name), in order of their paths, from `after` on."""
    where, values = "bucket=? and path>?", [bucket.id, after]
    if prefix:
        where, values = f"{where} and (path=? or (path>=? and path<?))", [*values, prefix, prefix + "/", prefix + "0"]
    for row in db.execute(f"select {_FILE} from bucket_files where {where} order by path", values):
        yield BucketFile(*row)


def listing(
    db: sqlite3.Connection, bucket: Bucket, prefix: str, after: str, limit: int
) -> tuple[list[dict[str, Any]], str]:
    """Return one page of the entries directly in a folder, and the cursor of the next page (or an empty text).

    A subfolder is one entry however many files it holds: the query jumps over them.
    """
    items: list[dict[str, Any]] = []
    start = prefix + "/" if prefix else ""
    end = prefix + "0" if prefix else "\U0010ffff"
    if prefix and not after:
        items += [file.shown() for file in files_at(db, bucket, [prefix])]
    at = after or start
    while True:
        row = db.execute(
            f"select {_FILE} from bucket_files where bucket=? and path>=? and path<? order by path limit 1",
            (bucket.id, at, end),
        ).fetchone()
        if row is None:
            return items, ""
        if len(items) >= limit:
            return items, at
        name, slash, _ = row[0][len(start) :].partition("/")
        if slash:
            items.append(_folder(db, bucket, start + name))
            at = f"{start}{name}0"  # the character after "/", so the next path outside of this folder
        else:
            items.append(BucketFile(*row).shown())
            at = row[0] + "\0"


def _folder(db: sqlite3.Connection, bucket: Bucket, path: str) -> dict[str, Any]:
    query = "select max(uploaded_at) from bucket_files where bucket=? and path>=? and path<?"
    (uploaded_at,) = db.execute(query, (bucket.id, path + "/", path + "0")).fetchone()
    return {"type": "directory", "path": path, "uploadedAt": uploaded_at}


def apply_batch(
    store: Store, bucket: Bucket, operations: Sequence[Mapping[str, Any]], area: str, find_source: FindSource
) -> list[dict[str, str]]:
    """Apply operations in order, in one transaction; return path and reason of those that could not be applied.

    `area` names the caller's uploads to the bucket.
    """
    failed: list[dict[str, str]] = []
    with store.write() as db:
        now = store.now()
        if db.execute("select 1 from buckets where id=?", (bucket.id,)).fetchone() is None:
            return [{"path": str(item.get("path"))[:1024], "error": "The bucket is gone."} for item in operations]
        for operation in operations:
            try:
                _apply(db, store.chunks, bucket, operation, now, area, find_source)
            except (BadOperation, BadPath) as error:
                failed.append({"path": str(operation.get("path"))[:1024], "error": str(error)})
    return failed


def _apply(
    db: sqlite3.Connection,
    chunks: Chunks,
    bucket: Bucket,
    operation: Mapping[str, Any],
    now: str,
    area: str,
    find_source: FindSource,
) -> None:
    kind, path = operation.get("type"), operation.get("path")
    if not isinstance(path, str):
        raise BadOperation("The operation has no path.")
    if kind == "deleteFile":
        # Deleting a missing file is not an error, so that a batch can be sent again.
        db.execute("delete from bucket_files where bucket=? and path=?", (bucket.id, path))
        return
    if kind not in ("addFile", "copyFile"):
        raise BadOperation(f"{str(kind)[:40]!r} is not one of addFile, copyFile, deleteFile.")
    check_path(path)
    xet_hash, mtime = operation.get("xetHash"), operation.get("mtime", 0)
    if not isinstance(xet_hash, str) or not _HASH.fullmatch(xet_hash):
        raise BadOperation("xetHash must be 64 hexadecimal digits.")
    if isinstance(mtime, bool) or not isinstance(mtime, int) or not 0 <= mtime < _MAX_MTIME:
        raise BadOperation("mtime must be a time in milliseconds.")
    if kind == "copyFile":
        source = str(operation.get("sourceRepoType")), str(operation.get("sourceRepoId"))
        area = find_source(db, *source, xet_hash)
        if not area:
            raise BadOperation("The source of the copy holds no such file, or you may not read it.")
    # To know the hash of another's file is not enough: it was uploaded by the caller, or the bucket has it already.
    file = next((file for scope in (area, bucket.scope) if (file := chunks.find(scope, xet_hash))), None)
    if file is None:
        raise BadOperation(f"No file with xetHash {xet_hash} was uploaded to this bucket. Upload it first.")
    _check_no_overlap(db, bucket, path)
    chunks.give(db, bucket.scope, file)
    db.execute(
        f"insert or replace into bucket_files(bucket, {_FILE}) values(?,?,?,?,?,?)",
        (bucket.id, path, xet_hash, file.size, mtime, now),
    )


def _check_no_overlap(db: sqlite3.Connection, bucket: Bucket, path: str) -> None:
    """Refuse a path that would be a file and a folder at once: such a bucket could not be mounted."""
    parts = path.split("/")
    for above in ("/".join(parts[:depth]) for depth in range(1, len(parts))):
        if files_at(db, bucket, [above]):
            raise BadOperation(f"{above!r} is a file, so no file can be below it.")
    below = "select 1 from bucket_files where bucket=? and path>=? and path<? limit 1"
    if db.execute(below, (bucket.id, path + "/", path + "0")).fetchone():
        raise BadOperation(f"{path!r} is a folder, so no file can take its name.")
