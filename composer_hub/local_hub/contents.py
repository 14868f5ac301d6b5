"""The bytes of repositories: small files in sqlite, large ones as blobs or as chunks. No HTTP here.

A repository reads only what it was given; that another one has the same bytes does not count, they may be private.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.local_hub.blobs import Blobs
from composer_hub.local_hub.chunkstore import Chunks, XetFile
from composer_hub.local_hub.database import PATIENCE, Database
from composer_hub.local_hub.trees import TreeEntry, git_oid

_PIECE = 1 << 20

SCHEMA = """
create table if not exists small(oid text primary key, data blob not null) without rowid;
-- What a repository was given. A row comes before its blob, and keeps it for the commit that will name it.
create table if not exists lfs(
    repo integer, sha256 text, size integer not null, at text not null default '',
    primary key(repo, sha256)) without rowid;
create index if not exists lfs_by_sha256 on lfs(sha256);
-- Large regular files that a commit on its way will name.
create table if not exists coming(oid text primary key, at text not null) without rowid;
"""

Content = bytes | Path | XetFile
"""The bytes of a small file, the path of a blob, or a file of chunks."""


@dataclass(frozen=True, slots=True)
class Repo:
    """One repository; `name` is `namespace/name`, `kind` one of model, dataset, space."""

    id: int
    kind: str
    name: str
    visibility: str = "public"
    gated: str = ""
    created_by: str = ""
    created_at: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]

    @property
    def is_private(self) -> bool:
        return self.visibility != "public"

    @property
    def scope(self) -> str:
        """Return the name under which the repository holds files of chunks."""
        return f"repo-{self.id}"

    @property
    def web_path(self) -> str:
        """Return the path of its page: `me/model`, `datasets/me/data`."""
        return self.name if self.kind == "model" else f"{self.kind}s/{self.name}"


class Contents(Database):
    """Everything that files of repositories are made of, under one folder."""

    def __init__(
        self,
        root: Path,
        *,
        clock: Callable[[], float] = time.time,
        is_shared: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(root, clock=clock, patience=patience)
        self.blobs = Blobs(root, sweep=not is_shared)
        self.add_schema(SCHEMA)
        self.chunks = Chunks(self, self.blobs)

    def put_small(self, db: sqlite3.Connection, data: bytes) -> TreeEntry:
        """Keep a small file's bytes in the running transaction."""
        oid = git_oid(data)
        db.execute("insert or ignore into small values(?,?)", (oid, data))
        return TreeEntry(oid, len(data))

    def content(self, repo: Repo, entry: TreeEntry) -> Content:
        """Return the bytes of a small file, the path of a blob, or a file of chunks; they may be missing on disk."""
        if not entry.sha256:
            row = self.find_row("select data from small where oid=?", entry.oid)
            if row:
                return row[0]
        elif not self.blobs.holds(entry.sha256) and (file := self.chunked(repo, entry)):
            return file
        return self.blobs.path(entry.content_id)

    def chunked(self, repo: Repo, entry: TreeEntry) -> XetFile | None:
        """Return an LFS file as the chunks that it came in, if it did."""
        return self.chunks.find_content(repo.scope, entry.sha256) if entry.sha256 else None

    def has_content(self, repo: Repo, entry: TreeEntry) -> bool:
        """Return whether a repository was given the bytes of a file, and has them."""
        was_given = not entry.sha256 or self.lfs_size(repo, entry.sha256) is not None
        return was_given and self.size(self.content(repo, entry)) == entry.size

    def size(self, content: Content) -> int | None:
        """Return how many bytes there are, or None if they are not all on disk."""
        if isinstance(content, bytes):
            return len(content)
        if isinstance(content, XetFile):
            return content.size if self.chunks.is_whole(content) else None
        return content.stat().st_size if content.is_file() else None

    def pieces(self, content: Content, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes of a range, a piece at a time: memory does not grow with the file."""
        if isinstance(content, bytes):
            yield content[start:stop]
        elif isinstance(content, XetFile):
            yield from self.chunks.read(content, start, stop)
        else:
            with open(content, "rb", buffering=0) as file:
                file.seek(start)
                left = (content.stat().st_size if stop is None else stop) - start
                while left and (piece := file.read(min(_PIECE, left))):
                    left -= len(piece)
                    yield piece

    def add_large(self, data: bytes) -> TreeEntry:
        """Put a regular file's bytes on disk under their git id, for a commit that will name them."""
        entry = TreeEntry(git_oid(data), len(data))
        with self.write() as db:
            db.execute("insert or replace into coming values(?,?)", (entry.oid, self.now()))
        if not self.blobs.holds(entry.oid):
            with self.blobs.writer() as writer:
                writer.write(data)
                writer.keep(entry.oid)
        return entry

    def add_lfs(self, repo: Repo, sha256: str, size: int) -> None:
        """Note that this repository was given these bytes; another one's do not count, they may be private."""
        with self.write() as db:
            db.execute("insert or replace into lfs values(?,?,?,?)", (repo.id, sha256, size, self.now()))

    def add_chunked(self, repo: Repo, file: XetFile) -> None:
        """Note that this repository was given a file of chunks whose sha256 was checked."""
        with self.write() as db:
            self.chunks.give_checked(db, repo.scope, file)
            self.add_lfs(repo, file.sha256, file.size)

    def lfs_size(self, repo: Repo, sha256: str) -> int | None:
        """Return the size of LFS content that this repository was given, or None."""
        row = self.find_row("select size from lfs where repo=? and sha256=?", repo.id, sha256)
        return row[0] if row else None
