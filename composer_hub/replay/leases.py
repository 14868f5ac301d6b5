"""Leases of a run's cap for ledgers of shards, so that workers anywhere stay under one cap in all.

The run's ledger owns the cap. A lease counts against it as money in flight, like a request, and the same trigger
refuses a lease that does not fit. The cap of the shard's ledger is what was copied from it plus its lease, so it needs
no word from the owner while it works.

A lease comes back in two steps: the cap of the shard's ledger falls to what it has committed, so that a late worker can
reserve nothing more; then one transaction copies its requests and answers to the run's ledger and drops the lease. A
crash between two steps leaves the larger amount counted. Requests of a worker that died count at their worst case.
"""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterable
from pathlib import Path

from composer_hub.replay.ledger import Ledger, Question
from composer_hub.replay.ledger_file import statements

# `base` is what the shard had committed when its requests were last copied, up to the request `copied`.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS leases (
    shard TEXT PRIMARY KEY, amount INTEGER NOT NULL CHECK (amount >= 0),
    base INTEGER NOT NULL DEFAULT 0, copied INTEGER NOT NULL DEFAULT -1
);
CREATE TRIGGER IF NOT EXISTS lease_in AFTER INSERT ON leases BEGIN
    UPDATE money SET reserved = reserved + NEW.amount;
    SELECT RAISE(ABORT, 'cap') FROM money WHERE settled + reserved + ambiguous > cap;
END;
CREATE TRIGGER IF NOT EXISTS lease_move AFTER UPDATE OF amount ON leases BEGIN
    UPDATE money SET reserved = reserved + NEW.amount - OLD.amount;
    SELECT RAISE(ABORT, 'cap') FROM money WHERE settled + reserved + ambiguous > cap;
END;
"""
_TRY = "state, reserved, cost, cost_source, price_stamp, kind, prompt_tokens, cached_tokens, ended"
_UPDATED = ", ".join(
    f"{name} = excluded.{name}" for name in ("state", "kind", "final", "response", "latency", "paid_by")
)
_QUESTION = "key, teacher, trace_id, step_id, attempt, state, kind, final, response, latency"


def grant(owner: Ledger, path: Path, amount: int, trace_ids: Iterable[str]) -> None:
    """Lease an amount to the ledger of a shard, and make that ledger with the answers that its traces have."""
    shard = str(path)
    with owner._explained(), owner._write() as db:
        for statement in statements(_SCHEMA):
            db.execute(statement)
        db.execute("INSERT OR IGNORE INTO leases (shard, amount) VALUES (?, 0)", (shard,))
        db.execute("UPDATE leases SET amount = amount + ? WHERE shard = ?", (amount, shard))
        leased, base, copied = db.execute(
            "SELECT amount, base, copied FROM leases WHERE shard = ?", (shard,)
        ).fetchone()
    if copied < 0:
        for suffix in ("", "-wal", "-shm"):  # from a crash while the answers were copied
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        with Ledger(path, cap=owner.budget().cap) as ledger:
            copied = _copy(owner._db, ledger._db, trace_ids)
            base = ledger.budget().committed
            with ledger._explained(), ledger._write() as db:
                db.execute("UPDATE money SET cap = ?", (base,))  # nothing is leased until the owner knows the base
        with owner._explained(), owner._write() as db:
            db.execute("UPDATE leases SET base = ?, copied = ? WHERE shard = ?", (base, copied, shard))
    with Ledger(path) as ledger, ledger._explained(), ledger._write() as db:
        db.execute("UPDATE money SET cap = ?", (base + leased,))


def take_back(owner: Ledger, path: Path) -> None:
    """Return the unused part of a lease, and copy what the shard asked.

    A shard whose worker lives and has calls in flight keeps its lease.
    """
    shard = str(path)
    with owner._explained():
        known = owner._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'leases'").fetchone()
        row = owner._db.execute("SELECT copied FROM leases WHERE shard = ?", (shard,)).fetchone() if known else None
    if row is None or row[0] < 0:
        if row is not None:
            with owner._explained(), owner._write() as db:
                db.execute("UPDATE leases SET amount = 0 WHERE shard = ?", (shard,))
        return
    with Ledger(path) as ledger:  # opening it counts the requests of dead workers
        with ledger._explained(), ledger._write() as db:
            db.execute("UPDATE money SET cap = settled + reserved + ambiguous")
        money = ledger.budget()
        if money.reserved:
            return
        with owner._explained(), owner._write() as db:
            db.execute("UPDATE leases SET amount = 0 WHERE shard = ?", (shard,))
            last = _copy(ledger._db, db, None, after=row[0])
            db.execute("UPDATE leases SET base = ?, copied = ? WHERE shard = ?", (money.committed, last, shard))


def write_off(path: Path, teacher: str, trace_id: str) -> None:
    """Count what is left of a lease as spent by a request of unknown cost: its ledger will not come back."""
    with Ledger(path) as ledger:  # closing it makes the request ambiguous
        if (left := ledger.budget().left) > 0:
            ledger.reserve(Question(f"lost-{uuid.uuid4().hex}", teacher, trace_id, ""), left)


def shares(left: int, weights: Iterable[int]) -> list[int]:
    """Cut what is left of a cap in proportion to weights; in all it is never more."""
    weights = [weight + 1 for weight in weights]
    return [left * weight // sum(weights) for weight in weights]


def _copy(
    source: sqlite3.Connection, target: sqlite3.Connection, trace_ids: Iterable[str] | None, after: int = 0
) -> int:
    """Copy questions with their requests, of some traces or of all, and return the last request copied to or from."""
    if trace_ids is None:
        tries = source.execute(f"SELECT id, key, {_TRY} FROM tries WHERE id > ? ORDER BY id", (after,)).fetchall()
    else:
        tries = [
            row for trace_id in trace_ids
            for row in source.execute(
                f"SELECT id, key, {_TRY} FROM tries WHERE state != 'reserved' AND key IN "
                "(SELECT key FROM questions WHERE trace_id = ?) ORDER BY id", (trace_id,),
            )
        ]  # fmt: skip
    numbers = dict[int, int]()
    with contextlib.ExitStack() as stack:
        if not target.in_transaction:
            target.execute("BEGIN IMMEDIATE")
            stack.callback(target.execute, "COMMIT")
        for number, key, state, reserved, cost, *rest in tries:
            # One after the other, as they were reserved: then no moment is over the cap.
            cursor = target.execute(
                "INSERT INTO tries (key, owner, state, reserved) VALUES (?, '', 'reserved', ?)", (key, reserved)
            )
            target.execute(
                "UPDATE tries SET state = ?, cost = ?, cost_source = ?, price_stamp = ?, kind = ?, prompt_tokens = ?, "
                "cached_tokens = ?, ended = ? WHERE id = ?", (state, cost, *rest, cursor.lastrowid),
            )  # fmt: skip
            numbers[number] = int(cursor.lastrowid or 0)
        for key in dict.fromkeys(row[1] for row in tries):
            question = source.execute(f"SELECT {_QUESTION}, paid_by FROM questions WHERE key = ?", (key,))
            *values, paid_by = question.fetchone()
            target.execute(
                f"INSERT INTO questions ({_QUESTION}, paid_by) VALUES ({', '.join('?' * 11)}) ON CONFLICT (key) DO "
                f"UPDATE SET {_UPDATED} WHERE questions.state != 'settled'",
                (*values, numbers.get(paid_by)),
            )
    if trace_ids is None:
        return max(numbers, default=after)
    return max(numbers.values(), default=0)
