"""Look at everything that a folder names: is it there, and does it have its hash? And set aside what does not.

Safe while the server runs. In: a store. Out: problems, each with the place that a person knows it by.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from composer_hub.local_hub.bucketstore import Bucket, walk
from composer_hub.local_hub.chunkstore import XetFile
from composer_hub.local_hub.cleaning import renew
from composer_hub.local_hub.store import KINDS, Repo, Store
from composer_hub.local_hub.trees import TreeEntry, git_oid
from composer_hub.local_hub.xorbs import Malformed, pack_of


@dataclass(frozen=True, slots=True)
class Damage:
    """A name whose target is missing or damaged."""

    where: str
    what: str


@dataclass
class FolderCheck:
    """The result of a check: counts, problems, and the objects whose bytes do not match their name."""

    num_repos: int = 0
    num_buckets: int = 0
    num_commits: int = 0
    num_objects: int = 0
    num_bytes: int = 0
    problems: list[Damage] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)


def check_folder(store: Store, *, set_aside: bool = False) -> FolderCheck:
    """Check a folder. With `set_aside`, damaged objects go to `damaged/`, so that uploads bring them again."""
    found = FolderCheck()
    db = store.read()
    [(verdict,), *_] = db.execute("pragma quick_check(1)").fetchall()
    if verdict != "ok":
        found.problems.append(Damage("hub.sqlite", f"sqlite finds it damaged: {verdict}"))
    _check_objects(store, found)
    for kind in KINDS:
        for repo in store.repos(kind):
            found.num_repos += 1
            found.problems += _check_repo(store, repo, found)
    for row in db.execute("select id, name, visibility, created_by, created_at from buckets").fetchall():
        found.num_buckets += 1
        found.problems += _check_bucket(store, Bucket(*row), found.damaged)
    if set_aside:
        _set_aside(store, found.damaged)
    return found


def _check_objects(store: Store, found: FolderCheck) -> None:
    """Hash every blob and every small file once."""
    for blob in store.blobs.all():
        path = store.blobs.path(blob)
        try:
            is_right = _digest(path, len(blob)) == blob and _is_right_pack(store, path, blob)
            size = path.stat().st_size
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError:
            is_right, size = False, 0
        found.num_objects += 1
        found.num_bytes += size
        if not is_right:
            found.damaged.add(blob)
    for oid, data in store.read().execute("select oid, data from small"):
        found.num_objects += 1
        found.num_bytes += len(data)
        if git_oid(data) != oid:
            found.damaged.add(oid)


def _digest(path: Path, num_digits: int) -> str:
    """Return the sha256 of a large file, or git's id if the name is as long as one."""
    with open(path, "rb", buffering=0) as file:
        digest = hashlib.sha256()
        if num_digits == 40:
            digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def _is_right_pack(store: Store, path: Path, blob: str) -> bool:
    """Return whether a blob is not a pack, or a pack with its chunks at the offsets in the database."""
    row = store.read().execute("select offsets, lengths from packs where blob=?", (blob,)).fetchone()
    if row is None:
        return True
    try:
        with open(path, "rb") as file:
            pack = pack_of(file, path.stat().st_size)
    except Malformed:
        return False
    return [pack.offsets, pack.lengths] == [json.loads(text) for text in row]


def _check_repo(store: Store, repo: Repo, found: FolderCheck) -> Iterator[Damage]:
    """Follow the refs to the first commits, and look for the content of every file on the way."""
    # Refs first: a commit that comes meanwhile is then among the commits.
    refs, place = store.refs(repo), repo.web_path
    rows = store.read().execute("select oid, parent, changes from commits where repo=?", (repo.id,)).fetchall()
    parents = {oid: parent for oid, parent, _ in rows}
    found.num_commits += len(rows)
    for ref in refs:
        if ref.oid not in parents:
            yield Damage(f"{place}@{ref.name}", f"the commit {ref.oid} is missing")
    for oid, parent in parents.items():
        if parent and parent not in parents:
            yield Damage(f"{place}@{oid}", f"its parent {parent} is missing")
    explain = functools.cache(lambda entry: _explain_entry(store, repo, entry, found.damaged))
    reported: set[str] = set()
    for oid, _, changes in reversed(rows):
        for path, value in json.loads(changes).items():
            entry = TreeEntry(*value) if value else None
            if entry and entry.content_id not in reported and (what := explain(entry)):
                reported.add(entry.content_id)
                yield Damage(f"{place}@{oid[:10]}:{path}", what)


def _explain_entry(store: Store, repo: Repo, entry: TreeEntry, damaged: set[str]) -> str:
    """Return the problem with the content of a file, or ""."""
    if entry.sha256 and store.lfs_size(repo, entry.sha256) is None:
        return f"the repository was not given {entry.sha256}"
    content = store.content(repo, entry)
    if isinstance(content, XetFile):
        return _explain_chunks(store, content, entry.size, damaged)
    if store.size(content) is None:
        return f"the object {entry.content_id} is missing"
    if entry.content_id in damaged or store.size(content) != entry.size:
        return f"the object {entry.content_id} is damaged"
    return ""


def _explain_chunks(store: Store, file: XetFile, size: int, damaged: set[str]) -> str:
    for xorb, blob in file.packs:
        if not store.blobs.holds(blob):
            return f"the pack {blob} (xorb {xorb}) is missing"
        if blob in damaged:
            return f"the pack {blob} (xorb {xorb}) is damaged"
    packs = [store.chunks.pack(store.read(), blob) for _, blob in file.packs]
    is_right = all(sum(packs[place].lengths[first:stop]) == length for place, length, first, stop in file.terms)
    if not is_right or sum(length for _, length, *_ in file.terms) != size:
        return "its chunks do not add up"
    return ""


def _check_bucket(store: Store, bucket: Bucket, damaged: set[str]) -> Iterator[Damage]:
    for file in walk(store.read(), bucket) if _exists(store.read(), bucket) else ():
        content = store.chunks.find(bucket.scope, file.xet_hash) if file.size else None
        what = _explain_chunks(store, content, file.size, damaged) if content else ""
        if file.size and content is None:
            what = f"its chunks ({file.xet_hash}) are not known"
        if what:
            yield Damage(f"buckets/{bucket.name}/{file.path}", what)


def _exists(db: sqlite3.Connection, bucket: Bucket) -> bool:
    return db.execute("select 1 from buckets where id=?", (bucket.id,)).fetchone() is not None


def _set_aside(store: Store, damaged: set[str]) -> None:
    """Move damaged blobs out of the way, and make clients forget that they sent them."""
    folder = store.root / "damaged"
    folder.mkdir(exist_ok=True)
    with store.write() as db:
        for blob in damaged:
            if store.blobs.holds(blob):
                store.blobs.path(blob).replace(folder / blob)
            db.execute("delete from small where oid=?", (blob,))
        rows = db.execute("select area, hash, blob from xorbs").fetchall()
        gone = [(area, name) for area, name, blob in rows if not store.blobs.holds(blob)]
        db.executemany("delete from xorbs where area=? and hash=?", gone)
        renew(db, {area for area, _ in gone})
