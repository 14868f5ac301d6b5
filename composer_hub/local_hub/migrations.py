"""Steps that lead from each format of a Hub's folder to the next one. A new folder starts with the last format.

A step writes the tables of its own time, whatever they have become since. It runs in one transaction. It may add files,
which are harmless if the transaction fails, but removes none.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from composer_hub.local_hub.database import Step
from composer_hub.local_hub.xorbs import pack_of


def number_the_formats(db: sqlite3.Connection, root: Path) -> None:
    """Change nothing: folders were not numbered before format 1."""


def scope_the_chunks(db: sqlite3.Connection, root: Path) -> None:
    """Move xorbs, which were known to everyone by name, into the blobs, where files of buckets name them.

    Files of repositories have plain blobs in this format and need no chunks.
    """
    tables = {name for (name,) in db.execute("select name from sqlite_master where type='table'")}
    if "lfs" in tables:
        db.execute("alter table lfs add column at text not null default ''")
    if "xorbs" not in tables:
        return
    for trigger in ("xet_goes_with_repo", "xet_goes_with_lfs"):
        db.execute(f"drop trigger if exists {trigger}")
    files = db.execute("select scope, hash, sha256, terms from xet_held where scope like 'bucket-%'").fetchall()
    db.execute("drop table xorbs")
    db.execute("create table packs(blob text primary key, offsets text not null, lengths text not null) without rowid")
    db.execute(
        "create table xet_files(scope text, hash text, sha256 text not null, size integer not null, "
        "xorbs text not null, terms text not null, at text not null, primary key(scope, hash)) without rowid"
    )
    moved: dict[str, str] = {}
    for scope, name, sha256, text in files:
        terms = json.loads(text)
        for xorb in {xorb for xorb, *_ in terms} - moved.keys():
            with suppress(FileNotFoundError):
                moved[xorb] = _into_blobs(db, root, xorb)
        if all(xorb in moved for xorb, *_ in terms):
            _hold(db, scope, name, sha256, terms, moved)
    db.execute("drop table xet_held")


def _into_blobs(db: sqlite3.Connection, root: Path, xorb: str) -> str:
    source = root / "xorbs" / xorb[:2] / xorb
    digest = hashlib.sha256()
    with open(source, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
        pack = pack_of(file, file.tell())
    row = (digest.hexdigest(), json.dumps(pack.offsets), json.dumps(pack.lengths))
    db.execute("insert or ignore into packs values(?,?,?)", row)
    target = root / "blobs" / digest.hexdigest()[:2] / digest.hexdigest()
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.link(source, target)
    return digest.hexdigest()


def _hold(
    db: sqlite3.Connection, scope: str, name: str, sha256: str, terms: list[list[int]], blobs: dict[str, str]
) -> None:
    places = {xorb: place for place, xorb in enumerate(dict.fromkeys(xorb for xorb, *_ in terms))}
    packs = [(xorb, blobs[str(xorb)]) for xorb in places]
    spans = [(places[xorb], *span) for xorb, *span in terms]
    row = (scope, name, sha256, sum(span[1] for span in spans), json.dumps(packs), json.dumps(spans), "")
    db.execute("insert into xet_files values(?,?,?,?,?,?,?)", row)


STEPS: tuple[Step, ...] = (number_the_formats, scope_the_chunks)
