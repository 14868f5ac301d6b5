"""The ledger of a replay run: every request is reserved under a cap before it is sent, and no answer is paid for twice.

In: questions (keys made from route, messages, tools and parameters), reservations, outcomes. Out: stored answers, the
run's budget, and `CapReached` if a request does not fit.

One SQLite file (WAL) is one run with one cap. A *try* is one HTTP request for a *question*. Each try is first reserved
at its worst case and then moves once:

    reserved ─┬─▶ settled     the cost is known
              ├─▶ ambiguous   the cost is unknown (lost answer, dead process), so the worst case stays counted
              └─▶ failed      the endpoint refused before doing any work, so it costs nothing

The database itself keeps `settled + reserved + ambiguous ≤ cap`: a trigger adds up the tries and rejects an insert that
would break it. Several processes, restarts and kill -9 therefore cannot exceed the cap. Amounts are in nano-dollars.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sqlite3
import time
import uuid
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.money import Budget, TokenPrice, show_usd
from composer_hub.replay.ledger_file import ADVICE, OVERBILLED, SCHEMA, VERSION, advice, statements
from composer_hub.replay.owners import Owner, is_alive

HEARTBEAT_S = 10.0


class LedgerError(exits.ComposerError, OSError):
    """The file of the ledger cannot be read or written."""


class CapReached(exits.Stopped):
    """The next request does not fit under the cap. `later` is true if calls in flight may still free enough."""

    def __init__(self, message: str, *, later: bool) -> None:
        super().__init__(message)
        self.later = later


def existing(path: Path) -> Path:
    """Return the file of a ledger; end if its run folder has none."""
    if not path.exists():
        folder = str(path.parent)
        raise exits.NothingToDo(
            f"{folder} has no run yet. Start one with: composer-hub replay run … --run {shlex.quote(folder)}"
        )
    return path


class Overbilled(exits.Stopped):
    """The endpoint billed more for an earlier call than the price in force bounds, so the cap cannot rely on it."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question: the key covers everything that shapes the answer, the other fields are its place."""

    key: str
    teacher: str
    trace_id: str
    step_id: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Stored:
    """An outcome in the ledger: a paid response, or a failure that would occur again."""

    response: bytes | None
    kind: str
    latency_s: float
    cost: int
    cost_source: str
    price_stamp: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """The right to send one request."""

    try_id: int
    amount: int


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A request whose cost is unknown; `request_id` is the provider's, "" if it never arrived."""

    try_id: int
    teacher: str
    reserved: int
    request_id: str


@dataclass(frozen=True, slots=True)
class Busy:
    """Another live process is asking the same question."""


_PATIENCE_S = 60.0


def _use_wal(db: sqlite3.Connection) -> None:
    """Change the journal of a file; SQLite itself does not wait if another process does the same at that moment."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)


class Ledger:
    """The ledger of an open run, as a context manager. Several processes may open the same file at once."""

    def __init__(
        self,
        path: str | Path,
        *,
        cap: int | None = None,
        change_cap: bool = False,
        clock: Callable[[], float] = time.time,
        owner: Owner | None = None,
        alive: Callable[[Owner, float], bool] = is_alive,
    ) -> None:
        self.path, self._clock, self._alive = Path(path), clock, alive
        self._owner = owner or Owner.this_process(uuid.uuid4().hex)
        self._beat = float("-inf")
        with self._explained():
            # In a notebook, `collect` uses it from another thread while this one waits.
            self._db = sqlite3.connect(self.path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
            _use_wal(self._db)
            # At NORMAL, kill -9 loses nothing; a power cut may lose the last transactions (docs/replay.md, "Limits").
            self._db.execute("PRAGMA synchronous = NORMAL")
        try:
            self._open(cap, change_cap)
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; requests that this process still has in flight become ambiguous."""
        try:
            with self._explained(), self._write():
                self._disown(self._owner.owner)
        finally:
            self._db.close()

    # ------------------------------------------------------------------------------------------------ questions

    def plan(self, questions: Iterable[Question]) -> None:
        """Record questions that will be asked, so that `status` can count the ones left."""
        rows = [(q.key, q.teacher, q.trace_id, q.step_id, q.attempt) for q in questions]
        with self._explained(), self._write() as db:
            db.executemany(
                "INSERT OR IGNORE INTO questions (key, teacher, trace_id, step_id, attempt) VALUES (?, ?, ?, ?, ?)",
                rows,
            )

    def lookup(self, key: str) -> Stored | None:
        """Return the stored outcome of a question, if any."""
        with self._explained():
            row = self._db.execute(
                "SELECT q.response, q.kind, q.latency, t.cost, t.reserved, t.state, t.cost_source, t.price_stamp "
                "FROM questions q LEFT JOIN tries t ON t.id = q.paid_by "
                "WHERE q.key = ? AND (q.state = 'settled' OR q.final)",
                (key,),
            ).fetchone()
        if row is None:
            return None
        response, kind, latency, cost, reserved, state, source, stamp = row
        paid = (reserved if state == "ambiguous" else cost) or 0
        try:
            answer = zlib.decompress(response) if response else None
        except (zlib.error, TypeError) as error:
            again = f"UPDATE questions SET state = 'planned', response = NULL WHERE key = '{key}'"
            raise LedgerError(
                f"{self.path}: the stored answer to question {key} is damaged ({error}). Every other answer is kept. "
                f'To buy this one again, run `sqlite3 {self.path} "{again}"` and then the same command.'
            ) from error
        return Stored(answer, kind, latency, paid, source or "", stamp or "")

    def reserve(
        self, question: Question, amount: int, *, price_stamp: str = "", names: Collection[str] = ()
    ) -> Stored | Reserved | Busy:
        """Reserve the worst case of one request; return the reason if it must not be sent.

        An endpoint that has overbilled raises; `names` are all that its teachers have, if it has several.
        """
        if stored := self.lookup(question.key):
            return stored
        with self._explained(), self._write() as db:
            self._heartbeat()
            if stored := self.lookup(question.key):
                return stored
            if self._asked_by_others(question.key):
                return Busy()
            if reason := self.overbilled(names or (question.teacher,), price_stamp):
                raise Overbilled(reason)
            self._check_cap(amount)
            cursor = db.execute(
                "INSERT INTO tries (key, owner, state, reserved, price_stamp) VALUES (?, ?, 'reserved', ?, ?)",
                (question.key, self._owner.owner, amount, price_stamp),
            )
            db.execute(
                "INSERT INTO questions (key, teacher, trace_id, step_id, attempt, state) "
                "VALUES (?, ?, ?, ?, ?, 'reserved') "
                "ON CONFLICT (key) DO UPDATE SET state = 'reserved'",
                (question.key, question.teacher, question.trace_id, question.step_id, question.attempt),
            )
        return Reserved(int(cursor.lastrowid or 0), amount)

    def settle(
        self,
        try_id: int,
        response: bytes,
        *,
        cost: int | None,
        cost_source: str,
        latency_s: float = 0.0,
        prompt_tokens: int = 0,
        cached_tokens: int = 0,
    ) -> None:
        """Store an answer with its cost; without a known cost the worst case stays counted as ambiguous."""
        state = "ambiguous" if cost is None else "settled"
        with self._explained(), self._write() as db:
            db.execute(
                "UPDATE tries SET state = ?, cost = ?, cost_source = ?, prompt_tokens = ?, cached_tokens = ?, "
                "ended = ? WHERE id = ? AND state IN ('reserved', 'ambiguous')",
                (state, cost or 0, cost_source, prompt_tokens, cached_tokens, self._clock(), try_id),
            )
            db.execute(
                "UPDATE questions SET state = 'settled', kind = '', response = ?, latency = ?, paid_by = ? "
                "WHERE key = (SELECT key FROM tries WHERE id = ?) AND response IS NULL",
                (zlib.compress(response, 1), latency_s, try_id, try_id),
            )

    def fail(self, try_id: int, kind: str, *, cost: int | None, final: bool = False, request_id: str = "") -> None:
        """Record a request without an answer; `cost` is 0 if nothing was billed and None if that is unknown.

        A `final` failure would occur again (such as a prompt that is too long) and is never asked again. The cost of a
        request with a `request_id` may be looked up later.
        """
        state = {None: "ambiguous", 0: "failed"}.get(cost, "settled")
        with self._explained(), self._write() as db:
            db.execute(
                "UPDATE tries SET state = ?, cost = ?, kind = ?, cost_source = ?, ended = ? "
                "WHERE id = ? AND state IN ('reserved', 'ambiguous')",
                (state, cost or 0, kind, f"id {request_id}" if request_id else "", self._clock(), try_id),
            )
            db.execute(
                "UPDATE questions SET state = ?, kind = ?, final = ?, paid_by = ? "
                "WHERE key = (SELECT key FROM tries WHERE id = ?) AND state != 'settled'",
                ("ambiguous" if cost is None else "failed", kind, final, try_id, try_id),
            )

    # ---------------------------------------------------------------------------------------------------- money

    def budget(self) -> Budget:
        """Return how much of the cap is used."""
        with self._explained():
            return Budget(*self._db.execute("SELECT cap, settled, reserved, ambiguous FROM money").fetchone())

    def audit(self) -> Budget:
        """Return the budget added up from all tries; it equals `budget()` unless the file was changed by hand."""
        with self._explained():
            cap, settled, reserved, ambiguous = self._db.execute(
                "SELECT (SELECT cap FROM money), "
                "coalesce(sum(cost) FILTER (WHERE state = 'settled'), 0), "
                "coalesce(sum(reserved) FILTER (WHERE state = 'reserved'), 0), "
                "coalesce(sum(reserved) FILTER (WHERE state = 'ambiguous'), 0) FROM tries"
            ).fetchone()
        return Budget(cap, settled, reserved, ambiguous)

    def note_price(self, route: str, price: TokenPrice) -> dict[str, Any] | None:
        """Record the price of a route; return the previous one if it differs."""
        with self._explained(), self._write() as db:
            last = db.execute(
                "SELECT stamp, price FROM prices WHERE route = ? ORDER BY id DESC LIMIT 1", (route,)
            ).fetchone()
            if last is None or last[0] != price.stamp:
                db.execute(
                    "INSERT INTO prices (route, stamp, price) VALUES (?, ?, ?)",
                    (route, price.stamp, json.dumps(price.as_json())),
                )
            return None if last is None or last[0] == price.stamp else json.loads(last[1])

    def overbilled(self, names: Collection[str], price_stamp: str) -> str:
        """Return how teachers billed more for a call than this price bounds, "" if they never did."""
        with self._explained():
            rows = self._db.execute(
                "SELECT q.teacher, t.price_stamp, t.cost, t.reserved FROM tries t JOIN questions q ON q.key = t.key "
                "WHERE t.state = 'settled' AND t.cost > t.reserved ORDER BY t.id"
            ).fetchall()
        for teacher, stamp, cost, bound in rows:
            # A stamp ends with the digest of its price; the rest is the day on which it was read.
            if price_stamp and teacher in names and stamp.rpartition(" ")[2] == price_stamp.rpartition(" ")[2]:
                return (
                    f"billed {show_usd(cost)} for a call that its price list bounds at {show_usd(bound)}. "
                    "Give its real price with --price and run again"
                )
        return ""

    def by_teacher(self) -> list[dict[str, Any]]:
        """Return one row per teacher: questions by state, tokens and nano-dollars."""
        with self._explained():
            cursor = self._db.execute(
                "WITH paid AS (SELECT q.teacher, sum(t.cost * (t.state = 'settled')) AS spent, "
                "  sum(t.reserved * (t.state = 'ambiguous')) AS ambiguous, count(*) AS requests, "
                "  sum(t.prompt_tokens) AS prompt_tokens, sum(t.cached_tokens) AS cached_tokens, "
                "  sum(t.cost * (t.state = 'settled' AND t.kind != '')) AS retried "
                "  FROM tries t JOIN questions q ON q.key = t.key GROUP BY q.teacher) "
                "SELECT q.teacher AS teacher, sum(q.state = 'planned') AS planned, "
                "  sum(q.state = 'reserved') AS reserved, "
                "  sum(q.state = 'settled') AS settled, sum(q.state = 'ambiguous') AS lost, "
                "  sum(q.state = 'failed') AS failed, "
                "  coalesce(paid.requests, 0) AS requests, coalesce(paid.prompt_tokens, 0) AS prompt_tokens, "
                "  coalesce(paid.cached_tokens, 0) AS cached_tokens, coalesce(paid.spent, 0) AS spent, "
                "  coalesce(paid.ambiguous, 0) AS ambiguous, coalesce(paid.retried, 0) AS retried "
                "FROM questions q LEFT JOIN paid ON paid.teacher = q.teacher GROUP BY q.teacher ORDER BY q.teacher"
            )
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def ambiguous(self) -> list[Ambiguous]:
        """Return the requests whose cost is unknown."""
        with self._explained():
            rows = self._db.execute(
                # The stored response may be that of a later try.
                "SELECT t.id, q.teacher, t.reserved, t.cost_source, CASE WHEN q.paid_by = t.id THEN q.response END "
                "FROM tries t JOIN questions q ON q.key = t.key WHERE t.state = 'ambiguous' ORDER BY t.id"
            ).fetchall()
        return [
            Ambiguous(try_id, teacher, reserved, source[3:] if source.startswith("id ") else _id_in(response))
            for try_id, teacher, reserved, source, response in rows
        ]

    def resolve(self, try_id: int, cost: int, *, source: str) -> None:
        """Settle an ambiguous request at the cost that the provider names."""
        with self._explained(), self._write() as db:
            db.execute(
                "UPDATE tries SET state = 'settled', cost = ?, cost_source = ? WHERE id = ? AND state = 'ambiguous'",
                (cost, source, try_id),
            )

    def note_usage(self, base_url: str, spent: int) -> None:
        """Keep the first reading of what a key has spent at an endpoint."""
        with self._explained(), self._write() as db:
            db.execute("INSERT OR IGNORE INTO meta VALUES (?, ?)", (f"usage {base_url}", str(spent)))

    def first_usage(self, base_url: str) -> int | None:
        """Return that first reading."""
        with self._explained():
            row = self._db.execute("SELECT value FROM meta WHERE name = ?", (f"usage {base_url}",)).fetchone()
        return int(row[0]) if row else None

    def by_trace(self) -> dict[str, int]:
        """Return the settled nano-dollars of each trace."""
        with self._explained():
            return dict(
                self._db.execute(
                    "SELECT q.trace_id, sum(t.cost) FROM tries t JOIN questions q ON q.key = t.key "
                    "WHERE t.state = 'settled' GROUP BY q.trace_id"
                )
            )

    def price_stamps(self) -> list[str]:
        """Return the stamps of the prices at which calls were reserved."""
        with self._explained():
            rows = self._db.execute("SELECT DISTINCT price_stamp FROM tries WHERE price_stamp != '' ORDER BY 1")
            return [stamp for (stamp,) in rows]

    def reap(self) -> int:
        """Turn the reservations of dead processes into ambiguous ones, which stay counted; return their number."""
        with self._explained(), self._write() as db:
            owners = db.execute(
                "SELECT o.owner, o.host, o.boot, o.pid, o.started, o.heartbeat FROM owners o "
                "WHERE o.owner IN (SELECT owner FROM tries WHERE state = 'reserved')"
            ).fetchall()
            dead = [row[0] for row in owners if row[0] != self._owner.owner and not self._is_alive(row)]
            return sum(self._disown(owner) for owner in dead)

    # --------------------------------------------------------------------------------------------------- inside

    def _open(self, cap: int | None, change_cap: bool) -> None:
        with self._explained(), self._write() as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
                if cap is None:
                    raise exits.UsageError(f"{self.path} is a new ledger; give its cap with --max-usd.")
                for statement in statements(SCHEMA):
                    db.execute(statement)
                db.execute("INSERT INTO meta VALUES ('version', ?)", (VERSION,))
                db.execute("INSERT INTO money VALUES (?, 0, 0, 0)", (cap,))
            version = db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
            if version != (VERSION,):
                raise LedgerError(
                    f"{self.path} was written by another version of composer_hub. Start a new run in another folder."
                )
            db.execute(OVERBILLED)
            db.execute(
                "INSERT INTO owners VALUES (?, ?, ?, ?, ?, ?)",
                (*self._owner.identity, self._clock()),
            )
            if cap is not None:
                self._set_cap(cap, change_cap)
        self.reap()

    def _set_cap(self, cap: int, change: bool) -> None:
        money = self.budget()
        if cap == money.cap:
            return
        if not change:
            raise exits.UsageError(
                f"This run's cap is {show_usd(money.cap)}, not {show_usd(cap)}. To change it, add --change-cap; "
                "for a separate budget, give another --run folder."
            )
        if cap < money.committed:
            raise exits.UsageError(f"The cap cannot be lower than the amount committed: {money}.")
        self._db.execute("UPDATE money SET cap = ?", (cap,))

    def _check_cap(self, amount: int) -> None:
        money = self.budget()
        if amount > money.left:
            later = amount <= money.left + money.reserved
            raise CapReached(
                f"The next call may cost {show_usd(amount)} and {show_usd(max(money.left, 0))} is left ({money}). "
                "To continue, run the same command with a higher --max-usd and --change-cap. Paid answers are kept.",
                later=later,
            )

    def _asked_by_others(self, key: str) -> bool:
        owners = self._db.execute(
            "SELECT o.owner, o.host, o.boot, o.pid, o.started, o.heartbeat "
            "FROM tries t JOIN owners o ON o.owner = t.owner WHERE t.key = ? AND t.state = 'reserved' AND t.owner != ?",
            (key, self._owner.owner),
        ).fetchall()
        alive = [self._is_alive(row) or not self._disown(row[0]) for row in owners]
        return any(alive)

    def _is_alive(self, row: tuple[Any, ...]) -> bool:
        return self._alive(Owner(*row[:5]), self._clock() - row[5])

    def _disown(self, owner: str) -> int:
        """Turn everything that an owner has in flight into ambiguous."""
        self._db.execute(
            "UPDATE questions SET state = 'ambiguous', kind = 'interrupted' WHERE state = 'reserved' AND key IN "
            "(SELECT key FROM tries WHERE owner = ? AND state = 'reserved')",
            (owner,),
        )
        return self._db.execute(
            "UPDATE tries SET state = 'ambiguous', kind = 'interrupted', ended = ? "
            "WHERE owner = ? AND state = 'reserved'",
            (self._clock(), owner),
        ).rowcount

    def _heartbeat(self) -> None:
        # Monotonic, because a wall clock that is set back must not stop the heartbeat.
        now = time.monotonic()
        if now - self._beat >= HEARTBEAT_S:
            self._beat = now
            self._db.execute("UPDATE owners SET heartbeat = ? WHERE owner = ?", (self._clock(), self._owner.owner))

    @contextlib.contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            # On a full disk, SQLite has already rolled back.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn an error of SQLite into a sentence with advice."""
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: {advice(error, self.path)}") from error
        except json.JSONDecodeError as error:
            raise LedgerError(f"{self.path}: a row is not JSON ({error}), so {ADVICE['malformed']}.") from error


def _id_in(response: bytes | None) -> str:
    if not response:
        return ""
    try:
        return str(json.loads(zlib.decompress(response)).get("id") or "")
    except (ValueError, AttributeError, zlib.error, TypeError):
        return ""
