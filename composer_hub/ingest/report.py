"""A report on reading: counts, unknown record types, and the place of each problem.

One reader fills a `FileReport` for one file. Reports travel between processes and add up with `merge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from composer_hub.exits import ComposerError

NOT_READ = "record_not_read"
"""Why prompts below a record are not exact if it could not be read: its type is unknown, or it is not JSON."""
STREAM_LOG = "stream_log"
"""Why no prompt of a printed stream is exact: it lacks what the user typed and what the harness added."""
NAMELESS = "call without a name"
MAX_PROBLEMS = 100
"""Places kept by a report; the rest is only counted."""


class SessionError(ComposerError, ValueError):
    """A session file, or a line of it, could not be read."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that was wrong, and where: `path:line message`; line 0 is the whole file."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place} {self.message}"


@dataclass
class FileReport:
    """Counts and problems of one file, or of many after `merge`.

    Names of `counts`, each present once it happened: files (looked at), read, bytes, lines, records, corrupt (lines or
    rows left out), repaired (bytes or surrogates replaced), unknown (records of no known type), unreadable (files),
    unrecognised (files of no known format), empty (files), unchanged (files skipped by the manifest), traces, steps,
    merged (lines folded into the API message they belong to), forks, branch_steps (off the main branch), boundaries
    (compactions), bridged (missing parents), orphan_results, dangling_calls, inexact (steps), synthetic (assistant
    messages the harness wrote), no_steps (sessions), no_trace (files that were read), retracted, provider_errors,
    copied_messages (that a compaction wrote down again), duplicate_lines, duplicate_steps, duplicate_traces, denied.
    """

    path: str = ""
    strict: bool = False
    digest: str = ""  # sha256 of the file
    counts: Counter[str] = field(default_factory=Counter)
    unknown_types: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    num_problems: int = 0
    has_unread: bool = False  # a record since the last `take_unread` was not read, so text of a prompt may be lost

    def add(self, name: str, amount: int = 1) -> None:
        """Count something."""
        self.counts[name] += amount

    def corrupt(self, line: int, message: str) -> None:
        """Count a line or row that is left out; in strict mode it ends the file."""
        self.add("corrupt")
        self.has_unread = True
        self.problem(line, message)
        self._strictly(line, message)

    def unknown(self, kind: Any, line: int = 0) -> None:
        """Count a record of a type the reader does not know; in strict mode it ends the file."""
        self.add("unknown")
        self.has_unread = True
        self.unknown_types[str(kind)[:80]] += 1
        self._strictly(line, f"is a record of the unknown type {str(kind)[:80]!r}.")

    def take_unread(self) -> str:
        """Return the reason why prompts from here on are not exact, once after records that were not read."""
        has_unread, self.has_unread = self.has_unread, False
        return NOT_READ if has_unread else ""

    def problem(self, line: int, message: str) -> None:
        """Keep the place of something that went wrong."""
        self.num_problems += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(self.path, line, message))

    def merge(self, others: Iterable[FileReport]) -> FileReport:
        """Add other reports to this one and return it."""
        for other in others:
            self.counts.update(other.counts)
            self.unknown_types.update(other.unknown_types)
            self.num_problems += other.num_problems
            self.problems.extend(other.problems[: max(0, MAX_PROBLEMS - len(self.problems))])
        return self

    def _strictly(self, line: int, message: str) -> None:
        if self.strict:
            raise SessionError(
                f"{Problem(self.path, line, message)} (--strict is on; without it the record is skipped.)"
            )
