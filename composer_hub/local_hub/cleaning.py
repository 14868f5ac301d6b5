"""Remove what nothing names: commits without a ref, and bytes without a commit, a bucket's file or a recent upload.

A pack of chunks is written again if only some of them are named.
Safe while the server runs and files go up. Everything is decided and removed in write transactions, a commit checks in
its own transaction that the bytes it names are there, and uploads write down their bytes' names before the bytes. What
came within the last `min_age` seconds stays, as the commit that will name it may be on its way.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from composer_hub.local_hub.chunkstore import write_file, write_pack
from composer_hub.local_hub.store import Store
from composer_hub.local_hub.xorbs import HOLE

MIN_AGE = 2 * 3600
"""Longer than a token for uploads is valid."""
_BATCH = 32
_SIDE_ROOTS = "select repo, base from discussions union select repo, merged_as from discussions"


@dataclass
class Freed:
    """Counts of what was removed, and of uploads that stay only because they are recent."""

    num_commits: int = 0
    num_objects: int = 0
    num_bytes: int = 0
    num_recent_uploads: int = 0


@dataclass
class _Names:
    """The content ids that commits name, for all repositories and for each."""

    ids: set[str] = field(default_factory=set)
    lfs: set[tuple[int, str]] = field(default_factory=set)
    _seen: set[tuple[int, str]] = field(default_factory=set)

    def update(self, db: sqlite3.Connection) -> None:
        """Read the commits that something leads to and that are new since the last call."""
        for repo, oid in _reachable(db) - self._seen:
            self._seen.add((repo, oid))
            row = db.execute("select changes from commits where repo=? and oid=?", (repo, oid)).fetchone()
            for entry in filter(None, json.loads(row[0]).values() if row else ()):  # no row: deleted meanwhile
                self.ids.add(entry[2] or entry[0])
                if entry[2]:
                    self.lfs.add((repo, entry[2]))


class _Undo(Exception):
    """Takes back the transaction of a dry run."""


def clean(store: Store, *, min_age: float = MIN_AGE, dry_run: bool = False) -> Freed:
    """Remove what nothing names, or with `dry_run` only count it."""
    freed, names = Freed(), _Names()
    moment = datetime.fromtimestamp(store.clock() - min_age, UTC)
    cutoff = moment.strftime("%Y-%m-%dT%H:%M:%S.999Z")
    names.update(store.read())  # the slow part, before the others have to wait
    with contextlib.suppress(_Undo), store.write() as db:
        freed.num_commits = _clean_commits(db)
        names.update(db)
        unused = _clean_rows(store, db, names, cutoff, freed)
        freed.num_bytes += store.num_unused_bytes(db)
        if dry_run:
            for blob in [blob for blob in store.blobs.all() if not _is_named(db, names, blob)]:
                freed.num_objects += 1
                freed.num_bytes += store.blobs.path(blob).stat().st_size
            for blob, numbers in unused.items():
                pack = store.chunks.pack(db, blob)
                freed.num_bytes += pack.offsets[-1] - pack.without(numbers).offsets[-1]
            raise _Undo
    if not dry_run:
        for blob in unused:
            _pack_again(store, blob, freed)
        _clean_blobs(store, names, freed)
        store.shrink()
    return freed


def _reachable(db: sqlite3.Connection) -> set[tuple[int, str]]:
    """Return the commits (repo, oid) that a branch, a tag or a pull request leads to."""
    parents = {(repo, oid): parent for repo, oid, parent in db.execute("select repo, oid, parent from commits")}
    kept: set[tuple[int, str]] = set()
    for repo, root in [*db.execute("select repo, oid from refs"), *db.execute(_SIDE_ROOTS)]:
        oid = root
        while (repo, oid) in parents and (repo, oid) not in kept:
            kept.add((repo, oid))
            oid = parents[repo, oid]
    return kept


def _clean_commits(db: sqlite3.Connection) -> int:
    """Delete the commits that nothing leads to."""
    gone = set(db.execute("select repo, oid from commits")) - _reachable(db)
    db.executemany("delete from commits where repo=? and oid=?", gone)
    return len(gone)


def _clean_rows(store: Store, db: sqlite3.Connection, names: _Names, cutoff: str, freed: Freed) -> dict[str, set[int]]:
    """Delete the rows of uploads that were not used, of files that are not named, and of small files.

    Return the chunks that no file names and no client may still name, by their packs.
    """
    holders = {f"repo-{number}" for (number,) in db.execute("select id from repos")}
    holders |= {f"bucket-{number}" for (number,) in db.execute("select id from buckets")}
    open_areas = {area for (area,) in db.execute("select area from xet_areas where at>=?", (cutoff,))}

    def keep(is_named: bool, is_recent: bool) -> bool:
        freed.num_recent_uploads += is_recent and not is_named
        return is_named or is_recent

    rows = db.execute("select repo, sha256, at from lfs").fetchall()
    gone = [
        (repo, sha256)
        for repo, sha256, at in rows
        if f"repo-{repo}" not in holders or not keep((repo, sha256) in names.lfs, at >= cutoff)
    ]
    db.executemany("delete from lfs where repo=? and sha256=?", gone)
    used = _clean_files(store, db, holders, open_areas, cutoff)
    unused = _unused_chunks(store, db)
    areas: set[str] = set()
    for area, name, blob, at in db.execute("select area, hash, blob, at from xorbs").fetchall():
        # Who knows a xorb may name each of its chunks.
        is_used = (_holder(area), blob) in used and blob not in unused
        is_recent = at >= cutoff or area in open_areas
        if _holder(area) not in holders or not keep(is_used, is_recent):
            areas.add(area)
            db.execute("delete from xorbs where area=? and hash=?", (area, name))
    renew(db, areas)
    db.executemany("delete from xet_areas where area=?", [(area,) for area in areas if _holder(area) not in holders])
    uploaded = {blob for (blob,) in db.execute("select blob from xorbs")}
    kept = {blob for _, blob in used} | uploaded
    _delete(db, "packs", "blob", {blob for (blob,) in db.execute("select blob from packs")} - kept)
    _delete(db, "small", "oid", {oid for (oid,) in db.execute("select oid from small")} - names.ids)
    db.execute("delete from coming where at<?", (cutoff,))
    return {blob: numbers for blob, numbers in unused.items() if blob not in uploaded}


def _clean_files(
    store: Store, db: sqlite3.Connection, holders: set[str], open_areas: set[str], cutoff: str
) -> set[tuple[str, str]]:
    """Delete the rows of files that are not named; return the packs that the others need, each with its holder."""
    in_buckets = {
        (f"bucket-{number}", name) for number, name in db.execute("select bucket, xet_hash from bucket_files")
    }
    in_repos = {(f"repo-{number}", sha256) for number, sha256 in db.execute("select repo, sha256 from lfs")}
    used: set[tuple[str, str]] = set()
    for file, at in store.chunks.files_in(db):
        holder = _holder(file.scope)
        is_named = (file.scope, file.sha256) in in_repos or (file.scope, file.hash) in in_buckets
        if holder in holders and (is_named or at >= cutoff or file.scope in open_areas):
            used |= {(holder, blob) for _, blob in file.packs}
        else:
            db.execute("delete from xet_files where scope=? and hash=?", (file.scope, file.hash))
    return used


def renew(db: sqlite3.Connection, areas: Iterable[str]) -> None:
    """Change the addresses of areas, so that clients forget which chunks they sent there."""
    db.executemany("update xet_areas set generation=generation+1 where area=?", [(area,) for area in areas])


def _unused_chunks(store: Store, db: sqlite3.Connection, among: str = "") -> dict[str, set[int]]:
    """Return the numbers of the chunks that no file names, for each pack (or one) that files name in part."""
    named: dict[str, set[int]] = collections.defaultdict(set)
    for file, _ in store.chunks.files_in(db, among):
        for place, _, first, stop in file.terms:
            named[file.packs[place][1]].update(range(first, stop))
    found = {}
    for blob in [among] if among else list(named):
        lengths = store.chunks.pack(db, blob).lengths
        if unused := {number for number, length in enumerate(lengths) if length and number not in named[blob]}:
            found[blob] = unused
    return found


def _pack_again(store: Store, blob: str, freed: Freed) -> None:
    """Write a pack with holes in place of the chunks that no file names, and let its files name the new one."""
    before = _unused_chunks(store, store.read(), blob).get(blob, set())
    with contextlib.suppress(FileNotFoundError), store.blobs.writer() as writer:
        old, data = store.chunks.pack(store.read(), blob), store.blobs.path(blob).read_bytes()
        if hashlib.sha256(data).hexdigest() != blob:
            return  # damaged: `check` must still be able to report it
        for number, (start, stop) in enumerate(itertools.pairwise(old.offsets)):
            writer.write(HOLE if number in before else data[start:stop])
        with store.write() as db:
            is_known = db.execute("select 1 from xorbs where blob=? limit 1", (blob,)).fetchone()
            if is_known or _unused_chunks(store, db, blob).get(blob) != before:
                return  # a client uploads to it; the next run may succeed
            write_pack(db, writer.sha256, old.without(before))
            for named, at in store.chunks.files_in(db, blob):
                packs = [(xorb, writer.sha256 if one == blob else one) for xorb, one in named.packs]
                write_file(db, named.scope, dataclasses.replace(named, packs=packs), at)
            _delete(db, "packs", "blob", [blob])
            writer.keep(writer.sha256)  # before the rows that name it: no upload would bring it again
        freed.num_objects -= 1
        freed.num_bytes -= writer.size


def _clean_blobs(store: Store, names: _Names, freed: Freed) -> None:
    """Remove the blobs that are not named, a few at a time, so that others can write in between."""
    rest = [blob for blob in store.blobs.all() if not _is_named(store.read(), names, blob)]
    for start in range(0, len(rest), _BATCH):
        with store.write() as db:
            names.update(db)
            for blob in rest[start : start + _BATCH]:
                if not _is_named(db, names, blob):
                    freed.num_objects += 1
                    freed.num_bytes += store.blobs.remove(blob)


def _is_named(db: sqlite3.Connection, names: _Names, blob: str) -> bool:
    if blob in names.ids:
        return True
    queries = ("lfs where sha256=?", "packs where blob=?", "coming where oid=?")
    return any(db.execute(f"select 1 from {query} limit 1", (blob,)).fetchone() for query in queries)


def _delete(db: sqlite3.Connection, table: str, column: str, values: Iterable[str]) -> None:
    db.executemany(f"delete from {table} where {column}=?", [(value,) for value in values])


def _holder(scope: str) -> str:
    """Return the holder of a scope, which is a holder itself or an area of one."""
    return "-".join(scope.split("-")[:2])
