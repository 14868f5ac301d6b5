"""Where votes come from: the folder of a replay run, or memory; either way they are handed out by trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import orjson

from composer_hub import exits
from composer_hub.pairs.policy import Poll
from composer_hub.records import Vote, from_row, to_row

VOTES_FILE = "votes.jsonl"


class VotesError(exits.ComposerError, ValueError):
    """Votes that are missing or cannot be read."""


class Votes(Protocol):
    """The votes of a set of traces."""

    poll: Poll | None  # how they were collected; None if unknown
    unused: set[str]  # ids of traces whose votes were not asked for yet

    def of(self, trace_id: str) -> list[Vote]:
        """Return the votes of a trace."""

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

    def rows(self) -> Iterator[dict[str, Any]]:
        for trace_id, votes in self._by_trace.items():
            if trace_id not in self.unused:
                yield from (to_row(vote) for vote in votes)


class RecordedVotes:
    """The votes in the folder of a replay run; only their offsets in the file are kept in memory."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / VOTES_FILE
        if not self.path.is_file():
            raise VotesError(f"{self.path} is missing: run `composer-hub replay run` with --run {folder} first.")
        self.poll: Poll | None = Poll.read(self.path.parent)
        self._offsets: dict[str, list[int]] = defaultdict(list)
        for offset, row in self._lines():
            self._offsets[row["trace_id"]].append(offset)
        self.unused = set(self._offsets)

    def of(self, trace_id: str) -> list[Vote]:
        self.unused.discard(trace_id)
        votes = []
        with self.path.open("rb") as file:
            for offset in self._offsets.get(trace_id, ()):
                file.seek(offset)
                votes.append(from_row(Vote, orjson.loads(file.readline())))
        return votes

    def rows(self) -> Iterator[dict[str, Any]]:
        for _, row in self._lines():
            if row["trace_id"] not in self.unused:
                yield row

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        offset = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = orjson.loads(line)
                    from_row(Vote, row)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise VotesError(
                        f"{self.path}:{number} is not a vote ({error}). Write the file again with "
                        "`composer-hub replay run`; no answer is paid for twice."
                    ) from error
                yield offset, row
                offset += len(line)
