"""Files that came as chunks: which packs of chunks there are, who sent them, and what they make. No HTTP here.

A xorb that comes in is a blob like any other, under the sha256 of its bytes. Its name is only what its sender calls it,
and is known only in that sender's **area** of a repository or bucket (`repo-7-616461`). A file belongs to a **holder**
(`repo-7`, `bucket-3`) once its sha256 was checked or a bucket was given it, and names blobs, not xorbs: later uploads
cannot change it. So knowing a name gives nothing, and junk under a name is in no one's way.

Rows come before the blob they name: a blob that nothing names may be removed at any time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from composer_hub.local_hub.blobs import Blobs, BlobWriter
from composer_hub.local_hub.database import Database
from composer_hub.local_hub.xorbs import Malformed, Pack, Term, pack_of, unpacked

SCHEMA = """
-- Where the chunks in a blob lie; a row of `packs` keeps its blob.
create table if not exists packs(blob text primary key, offsets text not null, lengths text not null) without rowid;
create table if not exists xorbs(
    area text, hash text, blob text not null, at text not null, primary key(area, hash)) without rowid;
create index if not exists xorbs_by_blob on xorbs(blob);
-- `xorbs` lists (hash, blob); `terms` lists (place in it, unpacked length, first chunk, chunk after the last).
create table if not exists xet_files(
    scope text, hash text, sha256 text not null, size integer not null, xorbs text not null, terms text not null,
    at text not null, primary key(scope, hash)) without rowid;
create index if not exists xet_files_by_sha256 on xet_files(scope, sha256);
-- Clients remember by address what an area holds: the address changes when something was removed from it.
create table if not exists xet_areas(area text primary key, generation integer not null, at text not null)
    without rowid;
"""
_FILE = "scope, hash, sha256, size, xorbs, terms"
_WINDOW = 1 << 20


@dataclass(frozen=True, slots=True)
class XetFile:
    """One file: the packs it is in, as (xorb, blob), and its terms as (place among them, length, first, stop)."""

    scope: str
    hash: str
    sha256: str
    size: int
    packs: Sequence[tuple[str, str]]
    terms: Sequence[tuple[int, int, int, int]]


class Chunks:
    """The packs, areas and files of one store."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        self._db, self.blobs = db, blobs
        db.add_schema(SCHEMA)

    # ------------------------------------------------------------------------------------------------ in

    def open_area(self, area: str) -> int:
        """Note that an upload to an area may begin, and return the area's generation."""
        with self._db.write() as db:
            db.execute(
                "insert into xet_areas values(?, 0, ?) on conflict(area) do update set at=excluded.at",
                (area, self._db.now()),
            )
            return db.execute("select generation from xet_areas where area=?", (area,)).fetchone()[0]

    def add_xorb(self, area: str, name: str, writer: BlobWriter) -> bool:
        """Keep the bytes of a xorb under the name that its sender gives it; return whether the area lacked it."""
        with open(writer.name, "rb") as file:
            pack = pack_of(file, writer.size)
        blob = writer.sha256
        with self._db.write() as db:
            row = db.execute("select blob from xorbs where area=? and hash=?", (area, name)).fetchone()
            is_new = row is None or not self.blobs.holds(row[0])
            if is_new:
                write_pack(db, blob, pack)
                db.execute("insert or replace into xorbs values(?,?,?,?)", (area, name, blob, self._db.now()))
        if is_new:
            writer.keep(blob)
        return is_new

    def add_files(self, area: str, files: Sequence[tuple[str, str, list[Term]]]) -> None:
        """Note the files (hash, sha256, terms) of a shard; every chunk that they name must be in the area."""
        with self._db.write() as db:
            for name, sha256, terms in files:
                packs: dict[str, tuple[str, Pack]] = {}
                for xorb, length, first, stop in terms:
                    packs[xorb] = packs.get(xorb) or self._pack_in(db, area, xorb)
                    lengths = packs[xorb][1].lengths
                    if not first < stop <= len(lengths) or sum(lengths[first:stop]) != length:
                        message = f"The shard names chunks {first} to {stop} of xorb {xorb}, which are not there."
                        raise Malformed(message)
                places = {xorb: place for place, xorb in enumerate(packs)}
                file = XetFile(
                    area,
                    name,
                    sha256,
                    sum(length for _, length, _, _ in terms),
                    [(xorb, blob) for xorb, (blob, _) in packs.items()],
                    [(places[xorb], length, first, stop) for xorb, length, first, stop in terms],
                )
                self.give(db, area, file)

    def give_checked(self, db: sqlite3.Connection, holder: str, file: XetFile) -> None:
        """Give a file whose sha256 was checked to a holder, whose files with another sha256 keep their content."""
        row = db.execute("select sha256 from xet_files where scope=? and hash=?", (holder, file.hash)).fetchone()
        if row is not None and row[0] != file.sha256:
            # Only a false hash can be that of two files, and nothing here shows which one is false.
            file = dataclasses.replace(file, hash=file.sha256)
        self.give(db, holder, file)

    def give(self, db: sqlite3.Connection, holder: str, file: XetFile) -> None:
        """Give a file to an area or a holder, in place of the one of the same hash."""
        for _, blob in file.packs:
            if db.execute("select 1 from packs where blob=?", (blob,)).fetchone() is None:
                raise Malformed("Chunks of this file were removed meanwhile. Upload it again.")
        write_file(db, holder, file, self._db.now())

    def _pack_in(self, db: sqlite3.Connection, area: str, xorb: str) -> tuple[str, Pack]:
        row = db.execute("select blob from xorbs where area=? and hash=?", (area, xorb)).fetchone()
        if row is None or not self.blobs.holds(row[0]):
            raise Malformed(f"The shard names the xorb {xorb}, which is not here. Upload it first.")
        return row[0], self.pack(db, row[0])

    # ------------------------------------------------------------------------------------------------ out

    def find(self, scope: str, name: str) -> XetFile | None:
        """Return a file of an area or a holder by its Xet hash."""
        query = f"select {_FILE} from xet_files where scope=? and hash=?"
        return _file(self._db.current().execute(query, (scope, name)).fetchone())

    def find_content(self, scope: str, sha256: str) -> XetFile | None:
        """Return the newest file of an area or a holder with this sha256."""
        query = f"select {_FILE} from xet_files where scope=? and sha256=? order by at desc limit 1"
        return _file(self._db.current().execute(query, (scope, sha256)).fetchone())

    def hashes(self, scope: str, sha256s: Iterable[str]) -> dict[str, str]:
        """Return the Xet hashes of those contents that a holder has as chunks."""
        query = "select hash from xet_files where scope=? and sha256=? order by at desc limit 1"
        rows = ((sha256, self._db.read().execute(query, (scope, sha256)).fetchone()) for sha256 in sha256s)
        return {sha256: row[0] for sha256, row in rows if row}

    def is_whole(self, file: XetFile) -> bool:
        """Return whether all packs of a file are on disk."""
        return all(self.blobs.holds(blob) for _, blob in file.packs)

    def files_in(self, db: sqlite3.Connection, blob: str = "") -> Iterator[tuple[XetFile, str]]:
        """Yield the files of all holders and areas with chunks in a pack (or in any), and the time of each."""
        query = f"select at, {_FILE} from xet_files where instr(xorbs, ?)"
        for at, *row in db.execute(query, (blob,)).fetchall():
            if file := _file(row):
                yield file, at

    def pack(self, db: sqlite3.Connection, blob: str) -> Pack:
        row = db.execute("select offsets, lengths from packs where blob=?", (blob,)).fetchone()
        if row is None:
            raise FileNotFoundError(f"There is no pack {blob}.")
        return Pack(*map(json.loads, row))

    def read(self, file: XetFile, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a range, unpacked a window at a time."""
        end = file.size if end is None else end
        parts: list[bytes | memoryview] = []
        size = 0
        for part in self._parts(file, start, end):
            parts.append(part)
            size += len(part)
            if size >= _WINDOW:
                yield b"".join(parts)
                parts, size = [], 0
        if parts:
            yield b"".join(parts)

    def digest(self, file: XetFile) -> str:
        """Return the sha256 of a file's plain bytes."""
        digest = hashlib.sha256()
        for part in self._parts(file, 0, file.size):
            digest.update(part)
        return digest.hexdigest()

    def _parts(self, file: XetFile, start: int, end: int) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a range in pieces of at most one chunk."""
        try:
            for part in self._parts_now(file, start, end):
                start += len(part)
                yield part
        except FileNotFoundError:
            # `gc` may have packed the chunks again since the file was looked up.
            now = self.find(file.scope, file.hash)
            if now is None or now.packs == file.packs or now.terms != file.terms:
                raise
            yield from self._parts(now, start, end)

    def _parts_now(self, file: XetFile, start: int, end: int) -> Iterator[bytes | memoryview]:
        packs: dict[int, Pack] = {}
        position = 0
        # A sparse file names one chunk thousands of times.
        repeated: tuple[int, int, int] | None = None
        plain: list[bytes | memoryview] = []
        for place, length, first, stop in file.terms:
            if position + length > start and position < end:
                if place not in packs:
                    packs[place] = self.pack(self._db.read(), file.packs[place][1])
                before, low, high = packs[place].trimmed(first, stop, start - position, end - position)
                at = position + before
                if repeated == (place, low, high) and len(plain) == high - low == 1:
                    unpacked_chunks: Iterator[bytes | memoryview] = iter(plain)
                else:
                    unpacked_chunks = self._unpacked(file.packs[place][1], packs[place], low, high)
                plain, repeated = [], (place, low, high)
                for chunk in unpacked_chunks:
                    plain = [chunk]
                    yield chunk[max(start - at, 0) : max(end - at, 0)]
                    at += len(chunk)
            position += length

    def _unpacked(self, blob: str, pack: Pack, first: int, stop: int) -> Iterator[bytes | memoryview]:
        """Yield the plain bytes of chunks, reading a window at a time from disk."""
        with open(self.blobs.path(blob), "rb", buffering=0) as file:
            while first < stop:
                last = first + 1
                while last < stop and pack.offsets[last + 1] - pack.offsets[first] <= _WINDOW:
                    last += 1
                base, size = pack.offsets[first], pack.offsets[last] - pack.offsets[first]
                window = memoryview(os.pread(file.fileno(), size, base))
                if len(window) < size:
                    raise Malformed(f"The pack {blob} is shorter than its chunks.")
                for number in range(first, last):
                    chunk = unpacked(window[pack.offsets[number] - base : pack.offsets[number + 1] - base])
                    if len(chunk) != pack.lengths[number]:
                        raise Malformed(f"Chunk {number} of the pack {blob} has another length than it had.")
                    yield chunk
                first = last


def write_pack(db: sqlite3.Connection, blob: str, pack: Pack) -> None:
    """Store the place of each chunk of a pack; a pack that is known stays as it is."""
    row = (blob, json.dumps(pack.offsets, separators=(",", ":")), json.dumps(pack.lengths, separators=(",", ":")))
    db.execute("insert or ignore into packs values(?,?,?)", row)


def write_file(db: sqlite3.Connection, scope: str, file: XetFile, at: str) -> None:
    """Store a file under its Xet hash for one scope, in place of an earlier row."""
    packs, terms = json.dumps(file.packs), json.dumps(file.terms, separators=(",", ":"))
    row = (scope, file.hash, file.sha256, file.size, packs, terms, at)
    db.execute("insert or replace into xet_files values(?,?,?,?,?,?,?)", row)


def forget_scope(db: sqlite3.Connection, holder: str) -> None:
    """Forget the files of a holder and everything in its areas."""
    for table, column in (("xet_files", "scope"), ("xorbs", "area"), ("xet_areas", "area")):
        # The areas of a holder begin with its name and "-"; "." is the character after "-".
        query = f"delete from {table} where {column}=? or ({column}>=? and {column}<?)"
        db.execute(query, (holder, f"{holder}-", f"{holder}."))


def _file(row: Sequence[str] | None) -> XetFile | None:
    if row is None:
        return None
    scope, name, sha256, size, packs, terms = row
    return XetFile(scope, name, sha256, int(size), [tuple(pack) for pack in json.loads(packs)], json.loads(terms))
