"""Repositories, refs and commits in one sqlite file, bytes beside it: what the embedded Hub remembers. No HTTP here.

A commit is one transaction: its small files, its changes and the moved ref become visible together or not at all.
Bytes are on disk before a commit names them. A commit stores what it changes; every so often it stores its whole tree,
so that a small commit to a large repository stays small and a tree is never far to rebuild.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub.local_hub.chunkstore import forget_scope
from composer_hub.local_hub.contents import Contents
from composer_hub.local_hub.contents import Repo as Repo
from composer_hub.local_hub.database import PATIENCE
from composer_hub.local_hub.errors import LocalHubError
from composer_hub.local_hub.trees import (
    Changes,
    Folder,
    Operation,
    Tree,
    TreeCache,
    TreeEntry,
    applied,
    changes_of,
    check_no_overlap,
    listing,
    parents,
)

KINDS = ("model", "dataset", "space")
INLINE_LIMIT = 64 << 10
"""Files up to this size are in sqlite, so that a small commit needs no extra file and flush."""
_MAX_CHAIN = 128

SCHEMA = """
-- An id is never given twice: upload addresses and tokens name repositories by it, and may outlive them.
create table if not exists repos(
    id integer primary key autoincrement, kind text not null, name text not null, visibility text not null,
    gated text not null, created_by text not null, created_at text not null,
    settings text not null, unique(kind, name));
create table if not exists moved(kind text, old text, new text not null, primary key(kind, old)) without rowid;
create table if not exists commits(
    number integer primary key, repo integer not null, oid text not null, parent text not null, title text not null,
    description text not null, author text not null, created_at text not null, changes text not null,
    is_whole integer not null, chain integer not null, weight integer not null, unique(repo, oid));
create table if not exists refs(
    repo integer, ref text, oid text not null, message text not null default '', primary key(repo, ref)) without rowid;
"""


class StoreError(LocalHubError):
    """The store cannot do what was asked."""


class Exists(StoreError, FileExistsError):
    """A repository or a ref of this name is already there."""


class NoRepo(StoreError, LookupError):
    """The repository is not there any more."""


class NoContent(StoreError, LookupError):
    """A commit names bytes that the repository was not given."""


class HeadMoved(StoreError, RuntimeError):
    """The branch has another head than the writer believes."""


class BadRef(StoreError, ValueError):
    """A branch or a tag whose name would take the place of a commit or of a branch."""


class NoRevision(StoreError, LookupError):
    """No branch, tag or commit has this name."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of one repository; `parent` is empty for the first."""

    oid: str
    parent: str
    title: str
    description: str
    author: str
    created_at: str


@dataclass(frozen=True, slots=True)
class GitRef:
    """A branch, tag or pull request head by its full name."""

    ref: str
    oid: str
    message: str = ""

    @property
    def name(self) -> str:
        """Return the name without `refs/heads/` or `refs/tags/`; a pull request keeps its full one."""
        return re.sub(r"^refs/(heads|tags)/", "", self.ref)


BeforeCommit = Callable[[sqlite3.Connection, str], str]
"""Called in the commit's transaction with the base's oid; returns the ref to write (a pull request opens its own)."""


class Store(Contents):
    """Repositories, refs, commits and contents under one folder; with `is_shared`, a server may be using it."""

    def __init__(
        self,
        root: Path,
        *,
        clock: Callable[[], float] = time.time,
        is_shared: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(root, clock=clock, is_shared=is_shared, patience=patience)
        self._forget_cached()
        self.add_schema(SCHEMA)

    def _forget_cached(self) -> None:
        self._trees, self._listings, self._last_commits, self._histories = (TreeCache() for _ in range(4))

    # ------------------------------------------------------------------------------------------------ repositories

    def create_repo(
        self,
        kind: str,
        name: str,
        *,
        author: str,
        visibility: str = "public",
        settings: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
        source: Repo | None = None,
    ) -> Repo:
        """Create a repository with its first commit on main, or with the history of another."""
        with self.write() as db:
            if self.find_repo(kind, name) is not None:
                raise Exists(f"The {kind} {name} already exists.")
            row = (kind, name, visibility, "", author, self.now(), json.dumps(settings or {}))
            made = db.execute(
                "insert into repos(kind,name,visibility,gated,created_by,created_at,settings) values(?,?,?,?,?,?,?)",
                row,
            )
            db.execute("delete from moved where kind=? and old=?", (kind, name))
            repo = self.repo_by_id(made.lastrowid or 0)
            if source is not None:
                self._copy_history(db, self.repo_by_id(source.id), repo)
                return repo
            tree = {path: self.put_small(db, data) for path, data in (files or {}).items()}
            self._write_commit(db, repo.id, "refs/heads/main", dict(tree), tree, title="initial commit", author=author)
            return repo

    def _copy_history(self, db: sqlite3.Connection, source: Repo, target: Repo) -> None:
        """Give a new repository the commits, branches, tags and contents of another."""
        columns = f"{_COMMIT},changes,is_whole,chain,weight"
        for query in (
            f"insert into commits(repo,{columns}) select ?,{columns} from commits where repo=? order by number",
            "insert into refs select ?,ref,oid,message from refs where repo=? and ref not like 'refs/pr/%'",
        ):
            db.execute(query, (target.id, source.id))
        db.execute("insert into lfs select ?,sha256,size,? from lfs where repo=?", (target.id, self.now(), source.id))
        db.execute(
            "insert into xet_files select ?,hash,sha256,size,xorbs,terms,? from xet_files where scope=?",
            (target.scope, self.now(), source.scope),
        )

    def find_repo(self, kind: str, name: str) -> Repo | None:
        """Return the repository of this name; as on the Hub, names that differ only in case are one."""
        exact = "select * from repos where kind=? and name=?"
        row = None
        for query in (exact, f"{exact} collate nocase"):
            row = row or self.find_row(query, kind, name)
        return _repo(row) if row else None

    def repo_by_id(self, repo_id: int) -> Repo:
        row = self.find_row("select * from repos where id=?", repo_id)
        if row is None:
            raise NoRepo("The repository has been deleted.")
        return _repo(row)

    def moved_to(self, kind: str, name: str) -> str | None:
        """Return the name a repository has today, by a name it had before."""
        row = self.read().execute("select new from moved where kind=? and old=?", (kind, name)).fetchone()
        return row[0] if row else None

    def repos(self, kind: str) -> list[Repo]:
        """Return all repositories of a kind, the newest first."""
        return [_repo(row) for row in self.read().execute("select * from repos where kind=? order by id desc", (kind,))]

    def update_repo(self, repo: Repo, *, visibility: str | None = None, gated: str | None = None) -> Repo:
        """Change what is given and keep the rest."""
        with self.write() as db:
            db.execute(
                "update repos set visibility=coalesce(?, visibility), gated=coalesce(?, gated) where id=?",
                (visibility, gated, repo.id),
            )
            return self.repo_by_id(repo.id)

    def move_repo(self, repo: Repo, new_name: str) -> None:
        """Rename; the old name leads to the new one until something else takes it."""
        with self.write() as db:
            there = self.find_repo(repo.kind, new_name)
            if there is not None and (there.id != repo.id or there.name == new_name):
                raise Exists(f"A {repo.kind} repository called {there.name} already exists.")
            db.execute("update repos set name=? where id=?", (new_name, repo.id))
            db.execute("update moved set new=? where kind=? and new=?", (new_name, repo.kind, repo.name))
            db.execute("delete from moved where kind=? and old=?", (repo.kind, new_name))
            db.execute("insert or replace into moved values(?,?,?)", (repo.kind, repo.name, new_name))

    def delete_repo(self, repo: Repo) -> None:
        with self.write() as db:
            for table in ("refs", "commits", "lfs"):
                db.execute(f"delete from {table} where repo=?", (repo.id,))
            db.execute("delete from moved where kind=? and new=?", (repo.kind, repo.name))
            forget_scope(db, repo.scope)
            db.execute("delete from repos where id=?", (repo.id,))

    # ------------------------------------------------------------------------------------------------ refs

    def refs(self, repo: Repo, prefix: str = "refs/") -> list[GitRef]:
        """Return the refs below a prefix, in order of their names."""
        rows = self.read().execute(
            "select ref, oid, message from refs where repo=? and substr(ref, 1, ?)=? order by ref",
            (repo.id, len(prefix), prefix),
        )
        return [GitRef(*row) for row in rows]

    def head(self, repo: Repo, ref: str) -> str | None:
        """Return the commit a full ref name points to."""
        row = self.find_row("select oid from refs where repo=? and ref=?", repo.id, ref)
        return row[0] if row else None

    def resolve(self, repo: Repo, revision: str) -> str:
        """Return the commit that a tag, branch, full ref or (shortened) commit id names; HEAD is main.

        The Hub lets a branch have the name of a tag. The tag counts, as in git, because it never moves.
        """
        if is_commit_id(revision) and self._commits_like(repo, revision):
            return revision
        for ref in (f"refs/tags/{revision}", f"refs/heads/{revision}", revision):
            if (oid := self.head(repo, ref)) is not None:
                return oid
        if len(found := self._commits_like(repo, revision)) == 1:
            return found[0]
        if revision == "HEAD":
            return self.resolve(repo, "main")
        raise NoRevision(f"Invalid rev id: {revision}")

    def _commits_like(self, repo: Repo, name: str) -> list[str]:
        """Return the commits (at most two) that a full or shortened id may mean."""
        if not re.fullmatch(r"[0-9a-f]{7,40}", name):
            return []
        query = "select oid from commits where repo=? and oid>=? and oid<? limit 2"
        return [oid for (oid,) in self.current().execute(query, (repo.id, name, name + "g"))]

    def create_ref(self, repo: Repo, ref: str, oid: str, message: str = "") -> None:
        _, kind, name = ref.split("/", 2)
        with self.write() as db:
            if self.head(repo, ref) is not None:
                raise Exists(f"Reference {ref} already exists")
            if kind in ("heads", "tags") and (is_commit_id(name) or self._commits_like(repo, name)):
                raise BadRef(f"{name[:80]!r} is the name of a commit, or looks like one. Choose another name.")
            if kind == "tags" and self.head(repo, f"refs/heads/{name}") is not None:
                raise BadRef(f"There is a branch {name[:80]}, and clients call both alike. Choose another name.")
            db.execute("insert into refs values(?,?,?,?)", (repo.id, ref, oid, message))

    def delete_ref(self, repo: Repo, ref: str) -> None:
        with self.write() as db:
            if not db.execute("delete from refs where repo=? and ref=?", (repo.id, ref)).rowcount:
                raise NoRevision(f"Invalid rev id: {ref}")

    # ------------------------------------------------------------------------------------------------ commits

    def commit(
        self,
        repo: Repo,
        ref: str,
        operations: Sequence[Operation],
        *,
        title: str,
        description: str = "",
        author: str = "",
        small: Iterable[bytes] = (),
        large: Iterable[TreeEntry] = (),
        parent: str = "",
        before: BeforeCommit | None = None,
    ) -> Commit:
        """Write one commit on a ref and move the ref, or raise and write nothing.

        `parent` is the head that the writer saw; `HeadMoved` is raised if the ref has changed since. `small` holds the
        bytes of the small files that the operations name, and `large` is the files whose bytes must be on disk. With
        `before`, the commit starts at `parent` (or the head of the ref) and goes to the ref that `before` returns.
        """
        with self.write() as db:
            head = self.head(repo, ref)
            if head is None:
                raise NoRevision(f"Invalid rev id: {ref}")
            base = self.resolve(repo, parent) if parent else head
            if before is None and base != head:
                raise HeadMoved(f"{ref} is at {head}, not at {base}. Look at the new head and make the commit again.")
            tree = self.tree(repo, base)
            changes = changes_of(tree, operations)
            after = applied(tree, changes)
            check_no_overlap(tree, changes, after)
            if before is not None:
                ref = before(db, base)
            for data in small:
                self.put_small(db, data)
            for entry in large:
                if not self.has_content(repo, entry):
                    raise NoContent(
                        "Your push was rejected because an LFS pointer pointed to a file that does not exist. "
                        f"Upload it first. oid: {entry.content_id[:100]}"
                    )
                db.execute("delete from coming where oid=?", (entry.oid,))
            return self._write_commit(
                db, repo.id, ref, changes, after, title=title, author=author, parent=base, description=description
            )

    def replace_history(self, repo: Repo, ref: str, *, title: str, author: str) -> Commit:
        """Squash a branch: one commit without a parent that holds the same tree."""
        with self.write() as db:
            head = self.head(repo, ref)
            if head is None:
                raise NoRevision(f"Invalid rev id: {ref}")
            tree = self.tree(repo, head)
            return self._write_commit(db, repo.id, ref, dict(tree), tree, title=title, author=author)

    def find_commit(self, repo: Repo, oid: str) -> Commit:
        row = self.find_row(f"select {_COMMIT} from commits where repo=? and oid=?", repo.id, oid)
        return Commit(*row)

    def log(self, repo: Repo, oid: str) -> Iterator[Commit]:
        """Walk from a commit to the first one."""
        for row in self.current().execute(_LOG, (repo.id, oid, repo.id)):
            yield Commit(*row)

    def history(self, repo: Repo, oid: str) -> Sequence[str]:
        """Return the ids of a commit and of all before it; pages of one log share the work."""
        oids: list[str] = []
        rest: Sequence[str] = ()
        for (one,) in self.current().execute(_OIDS, (repo.id, oid, repo.id)):
            if (cached := self._histories.get(repo.id, one)) is not None:
                rest = cached
                break
            oids.append(one)
        history = [*oids, *rest]
        self._histories.put(repo.id, oid, history)
        return history

    def log_with_changes(self, repo: Repo, oid: str) -> Iterator[tuple[Commit, Changes]]:
        """Walk from a commit to the first one, with what each of them changed."""
        for commit in self.log(repo, oid):
            _, changes, is_whole = self._stored_changes(repo.id, commit.oid)
            if is_whole and commit.parent:
                changes = self.difference(repo, commit.parent, commit.oid)
            yield commit, changes

    def last_commits(self, repo: Repo, oid: str) -> Mapping[str, Commit]:
        """Return for each file and folder the newest commit, from `oid` back, that touched it."""
        if (cached := self._last_commits.get(repo.id, oid)) is not None:
            return cached
        steps: list[tuple[Commit, Changes]] = []
        found: dict[str, Commit] = {}
        for commit, changes in self.log_with_changes(repo, oid):
            if (cached := self._last_commits.get(repo.id, commit.oid)) is not None:
                found = dict(cached)
                break
            steps.append((commit, changes))
        for commit, changes in reversed(steps):
            for path in changes:
                found.update(dict.fromkeys((path, *parents(path)), commit))
        self._last_commits.put(repo.id, oid, found)
        return found

    def difference(self, repo: Repo, old: str, new: str) -> Changes:
        """Return the changes from one commit's tree to another's."""
        before, after = self.tree(repo, old), self.tree(repo, new)
        changes: Changes = {path: entry for path, entry in after.items() if before.get(path) != entry}
        return changes | dict.fromkeys(path for path in before if path not in after)

    def listing(self, repo: Repo, oid: str, folder: str, *, recursive: bool) -> Mapping[str, TreeEntry | Folder]:
        """Return the files and folders below a folder of a commit; pages of one listing share the work."""
        key = f"{oid}:{recursive}:{folder}"
        cached = self._listings.get(repo.id, key)
        if cached is None:
            cached = listing(self.tree(repo, oid), folder, recursive=recursive)
            self._listings.put(repo.id, key, cached)
        return cached

    def tree(self, repo: Repo, oid: str) -> Tree:
        """Return a commit's files; do not change the mapping, it is shared."""
        steps: list[Changes] = []
        keys: list[str] = []
        found: Tree = {}
        while oid:
            if (cached := self._trees.get(repo.id, oid)) is not None:
                found = cached
                break
            parent, changes, is_whole = self._stored_changes(repo.id, oid)
            steps.append(changes)
            keys.append(oid)
            oid = "" if is_whole else parent
        for changes in reversed(steps):
            found = applied(found, changes)
        if keys:
            self._trees.put(repo.id, keys[0], found)
        return found

    def read_bytes(self, repo: Repo, oid: str, path: str) -> bytes | None:
        """Return a small file of a commit, or None if the commit lacks it or its bytes are missing."""
        entry = self.tree(repo, oid).get(path)
        if entry is None or not self.has_content(repo, entry):
            return None
        return b"".join(self.pieces(self.content(repo, entry)))

    def forget_lfs(self, repo: Repo, sha256s: set[str]) -> None:
        """Take LFS files out of every commit of a repository, history included."""
        with self.write() as db:
            rows = db.execute("select number, changes from commits where repo=?", (repo.id,)).fetchall()
            for number, text in rows:
                stored = json.loads(text)
                changes = {path: None if _is_one_of(value, sha256s) else value for path, value in stored.items()}
                db.execute("update commits set changes=? where number=?", (json.dumps(changes), number))
            db.executemany("delete from lfs where repo=? and sha256=?", [(repo.id, sha256) for sha256 in sha256s])
            gone = [(repo.scope, sha256) for sha256 in sha256s]
            db.executemany("delete from xet_files where scope=? and sha256=?", gone)
        self._forget_cached()

    def _write_commit(
        self,
        db: sqlite3.Connection,
        repo_id: int,
        ref: str,
        changes: Changes,
        tree: Tree,
        *,
        title: str,
        author: str,
        parent: str = "",
        description: str = "",
    ) -> Commit:
        """Insert a commit and move the ref to it.

        `tree` is what the commit holds, and `changes` leads there from the parent, or from nothing if it is the first
        one. The row holds the changes; if a walk back to a whole tree would be long, it holds the tree.
        """
        now = self.now()
        chain, weight = self._chain(repo_id, parent)
        chain, weight = chain + 1, weight + len(changes)
        is_whole = not parent or chain >= _MAX_CHAIN or weight > max(len(tree), 64)
        stored = json.dumps(dict(tree) if is_whole else changes, separators=(",", ":"))
        # The nonce keeps two equal commits on one parent apart, as the time does in git.
        identity = json.dumps([repo_id, parent, stored, title, description, author, now, secrets.token_hex(8)])
        oid = hashlib.sha1(identity.encode(), usedforsecurity=False).hexdigest()
        state = (int(is_whole), 0 if is_whole else chain, 0 if is_whole else weight)
        row = (repo_id, oid, parent, title, description, author, now, stored, *state)
        db.execute(
            f"insert into commits(repo,{_COMMIT},changes,is_whole,chain,weight) values(?,?,?,?,?,?,?,?,?,?,?)", row
        )
        db.execute("insert or replace into refs values(?,?,?,'')", (repo_id, ref, oid))
        self._trees.put(repo_id, oid, tree)
        return Commit(oid, parent, title, description, author, now)

    def _chain(self, repo_id: int, oid: str) -> tuple[int, int]:
        return self.find_row("select chain, weight from commits where repo=? and oid=?", repo_id, oid) or (0, 0)

    def _stored_changes(self, repo_id: int, oid: str) -> tuple[str, Changes, bool]:
        parent, text, is_whole = self.find_row(
            "select parent, changes, is_whole from commits where repo=? and oid=?", repo_id, oid
        )
        changes = {path: None if value is None else TreeEntry(*value) for path, value in json.loads(text).items()}
        return parent, changes, bool(is_whole)


_COMMIT = "oid,parent,title,description,author,created_at"


def _chain_of(columns: str) -> str:
    """Write the query of a commit and all before it: it gives them in this order, and only as far as it is read."""
    return f"""
with recursive chain({columns}) as (
    select {columns} from commits where repo=? and oid=?
    union all
    select {", ".join(f"earlier.{name}" for name in columns.split(","))}
    from chain join commits as earlier on earlier.repo=? and earlier.oid=chain.parent)
select * from chain"""


_LOG, _OIDS = _chain_of(_COMMIT), "select oid from (" + _chain_of("oid,parent") + ")"


def is_commit_id(name: str) -> bool:
    """Return whether clients take a revision for a commit, of this Hub or of one with longer ids, without asking."""
    return re.fullmatch(r"(?i)[0-9a-f]{40}|[0-9a-f]{64}", name) is not None


def _repo(row: Sequence[Any]) -> Repo:
    *columns, settings = row
    return Repo(*[*columns, json.loads(settings)])


def _is_one_of(value: list[Any] | None, sha256s: set[str]) -> bool:
    return value is not None and value[2] in sha256s
