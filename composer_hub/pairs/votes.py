"""The sources of votes: the ledger of a replay run, or memory; either way they are handed out by trace.

A run saves the votes of a trace in one transaction, into a table of its ledger. So they are never torn, by a kill or by
two processes, and those of a teacher that a later run leaves out are kept.
"""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import orjson

from composer_hub import exits
from composer_hub.pairs.ballots import VOTED
from composer_hub.pairs.policy import Poll
from composer_hub.pairs.same_effect import is_of
from composer_hub.records import Vote, from_row, to_row

VOTES_FILE = "ledger.sqlite"

_TABLE = """
CREATE TABLE IF NOT EXISTS votes (
    vote_id TEXT PRIMARY KEY, trace_id TEXT NOT NULL, voted INTEGER NOT NULL, body BLOB NOT NULL
)"""
_INDEX = "CREATE INDEX IF NOT EXISTS votes_by_trace ON votes (trace_id)"
# An abstention never replaces an answer: a run under a lower cap asks less than the one before it.
_SAVE = """
INSERT INTO votes VALUES (?, ?, ?, ?) ON CONFLICT (vote_id)
DO UPDATE SET voted = excluded.voted, body = excluded.body WHERE excluded.voted >= votes.voted"""
_AGAIN = (
    "Run the same `composer-hub replay run` again: it writes the votes from the answers, and no answer is paid for "
    "twice."
)


class VotesError(exits.ComposerError, ValueError):
    """Votes that are missing or cannot be read."""


class Votes(Protocol):
    """The votes of a set of traces."""

    poll: Poll | None  # how they were collected; None if unknown
    unused: set[str]  # ids of traces whose votes were not asked for yet

    def of(self, trace_id: str) -> list[Vote]:
        """Return the votes of a trace."""

    def lines(self, trace_id: str) -> Iterable[bytes]:
        """Return the votes of a trace as lines of JSON."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the votes of the traces that were asked for, as rows."""


class GivenVotes:
    """Votes in memory."""

    def __init__(self, votes: Iterable[Vote]) -> None:
        self.poll: Poll | None = None
        self._by_trace: dict[str, list[Vote]] = defaultdict(list)
        for vote in votes:
            self._by_trace[vote.trace_id].append(vote)
        self.unused = set(self._by_trace)

    def of(self, trace_id: str) -> list[Vote]:
        self.unused.discard(trace_id)
        return self._by_trace.get(trace_id, [])

    def lines(self, trace_id: str) -> Iterable[bytes]:
        return [orjson.dumps(to_row(vote)) + b"\n" for vote in self.of(trace_id)]

    def rows(self) -> Iterator[dict[str, Any]]:
        for trace_id, votes in self._by_trace.items():
            if trace_id not in self.unused:
                yield from (to_row(vote) for vote in votes)


class RecordedVotes:
    """The votes in the ledger of a replay run, read one trace at a time."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / VOTES_FILE
        if not self.path.is_file():
            raise VotesError(
                f"{self.path} is missing: run `composer-hub replay run` with --run {shlex.quote(str(folder))} first."
            )
        self.poll: Poll | None = Poll.read(self.path.parent)
        self._judge = self.poll.judge.identity if self.poll.judge else ""
        self._db = _opened(self.path)
        self._traces = [trace_id for (trace_id,) in self._query("SELECT DISTINCT trace_id FROM votes ORDER BY 1")]
        self.unused = set(self._traces)

    def of(self, trace_id: str) -> list[Vote]:
        self.unused.discard(trace_id)
        return [vote for _, vote in self._read(trace_id)]

    def lines(self, trace_id: str) -> Iterable[bytes]:
        self.unused.discard(trace_id)
        return [body + b"\n" for body, _ in self._read(trace_id)]

    def rows(self) -> Iterator[dict[str, Any]]:
        for trace_id in self._traces:
            if trace_id not in self.unused:
                yield from (to_row(vote) for _, vote in self._read(trace_id))

    def _read(self, trace_id: str) -> Iterator[tuple[bytes, Vote]]:
        """Yield the votes of a trace, without those of a judge that a later run replaced or left out."""
        query = "SELECT vote_id, CAST(body AS BLOB) FROM votes WHERE trace_id = ? ORDER BY vote_id"
        for vote_id, body in self._query(query, trace_id):
            try:
                vote = from_row(Vote, orjson.loads(body))
                is_current = is_of(vote, self._judge)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise VotesError(
                    f"{self.path}: vote {vote_id} of trace {trace_id} is damaged ({error}). {_AGAIN}"
                ) from error
            if is_current:
                yield body, vote

    def _query(self, query: str, *values: str) -> list[Any]:
        with _explained(self.path):
            return self._db.execute(query, values).fetchall()


def save_votes(path: Path, votes: Iterable[Vote]) -> None:
    """Save votes in the ledger at `path` one trace per transaction, including the last ones if they break off."""
    of_trace: list[Vote] = []
    try:
        for vote in votes:
            if of_trace and vote.trace_id != of_trace[0].trace_id:
                _save(path, of_trace)
                of_trace = []
            of_trace.append(vote)
    finally:
        _save(path, of_trace)


def _save(path: Path, votes: Iterable[Vote]) -> None:
    rows = [(vote.vote_id, vote.trace_id, vote.status == VOTED, orjson.dumps(to_row(vote))) for vote in votes]
    with contextlib.closing(_opened(path)) as db, _explained(path), db:
        db.execute("BEGIN IMMEDIATE")
        db.execute(_TABLE)
        db.execute(_INDEX)
        db.executemany(_SAVE, rows)


def num_votes(path: Path) -> int:
    """Return how many votes a ledger holds."""
    with contextlib.closing(_opened(path)) as db, _explained(path):
        return db.execute("SELECT count(*) FROM votes").fetchone()[0]


def _opened(path: Path) -> sqlite3.Connection:
    with _explained(path):
        return sqlite3.connect(path, timeout=30)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise VotesError(f"{path} holds no votes that can be read or written ({error}). {_AGAIN}") from error
