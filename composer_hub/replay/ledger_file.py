"""The file of the ledger: its tables, the triggers that add up the money, and advice for errors of SQLite.

`tries` has one row per HTTP request. `money` has a single row that only the triggers on `tries` change.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

VERSION = "1"

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE money (
    cap INTEGER NOT NULL, settled INTEGER NOT NULL, reserved INTEGER NOT NULL, ambiguous INTEGER NOT NULL
);
CREATE TABLE owners (owner TEXT PRIMARY KEY, host TEXT, boot TEXT, pid INTEGER, started TEXT, heartbeat REAL);
CREATE TABLE questions (
    key TEXT PRIMARY KEY, teacher TEXT NOT NULL, trace_id TEXT NOT NULL, step_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'planned', kind TEXT NOT NULL DEFAULT '', final INTEGER NOT NULL DEFAULT 0,
    response BLOB, latency REAL NOT NULL DEFAULT 0, paid_by INTEGER
);
CREATE INDEX questions_by_trace ON questions (trace_id, teacher);
CREATE TABLE tries (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
    reserved INTEGER NOT NULL CHECK (reserved >= 0), cost INTEGER NOT NULL DEFAULT 0 CHECK (cost >= 0),
    cost_source TEXT NOT NULL DEFAULT '', price_stamp TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT '',
    prompt_tokens INTEGER NOT NULL DEFAULT 0, cached_tokens INTEGER NOT NULL DEFAULT 0, ended REAL
);
CREATE INDEX tries_open ON tries (owner) WHERE state = 'reserved';
CREATE INDEX tries_by_key ON tries (key);
CREATE TABLE prices (id INTEGER PRIMARY KEY, route TEXT NOT NULL, stamp TEXT NOT NULL, price TEXT NOT NULL);
CREATE TRIGGER reserve AFTER INSERT ON tries BEGIN
    UPDATE money SET reserved = reserved + NEW.reserved;
    SELECT RAISE(ABORT, 'cap') FROM money WHERE settled + reserved + ambiguous > cap;
END;
CREATE TRIGGER move AFTER UPDATE OF state, cost ON tries BEGIN
    UPDATE money SET
        settled = settled + (NEW.state = 'settled') * NEW.cost - (OLD.state = 'settled') * OLD.cost,
        reserved = reserved + (NEW.state = 'reserved') * NEW.reserved - (OLD.state = 'reserved') * OLD.reserved,
        ambiguous = ambiguous + (NEW.state = 'ambiguous') * NEW.reserved - (OLD.state = 'ambiguous') * OLD.reserved;
END;
"""

OVERBILLED = "CREATE INDEX IF NOT EXISTS tries_overbilled ON tries (id) WHERE state = 'settled' AND cost > reserved"
"""It is nearly always empty, and read before each request."""


def statements(script: str) -> Iterator[str]:
    """Split a script into complete statements. A trigger contains semicolons, so SQLite decides."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


ADVICE: Mapping[str, str] = {
    "disk is full": (
        "the disk is full. Free some space and run again: paid answers are kept, calls in flight count as ambiguous"
    ),
    "disk I/O": (
        "the disk reports an error. Check its health and quota and run again; the ledger needs a local disk, "
        "not a network one"
    ),
    "locked": "another program has locked it for a minute. End that program (or a stuck SQLite shell) and run again",
    "readonly": "it is read-only. Make the file and its folder writable, or give another --run folder",
    "unable to open": "it cannot be opened. Its folder must exist and be writable; or give another --run folder",
    "not a database": "it is not a ledger. Give another --run folder; this file was not changed",
    "malformed": (
        "it is damaged. Keep a copy, try `sqlite3 ledger.sqlite .recover`, or start a new --run folder with the cap "
        "lowered by what was already spent"
    ),
}


def advice(error: sqlite3.Error, path: Path) -> str:
    """Return a sentence about an error of SQLite and the next step."""
    text = str(error)
    for sign, advice in ADVICE.items():
        if sign in text:
            return f"{advice}."
    return f"SQLite reports: {text}. Is {path.parent} on a local disk, and the file written by this program?"
