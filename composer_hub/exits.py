"""Exit codes and the exceptions that carry them: the one sentence a person reads when something ends early.

Every edge of the package (session files, the Hub, teachers, the ledger, training) derives its own exception from one of
these and from the closest builtin; the command line prints the message and leaves with `exit_code`.
"""

from __future__ import annotations

DONE = 0
FAILURE = 1
USAGE = 2
STOPPED = 3
REFUSED = 4
NOTHING_TO_DO = 5
INTERRUPTED = 130


class ComposerError(Exception):
    """Something failed; the message says what, where, and what to do next."""

    exit_code = FAILURE


class UsageError(ComposerError, ValueError):
    """The request itself is off: a bad name, a missing option, two options that exclude each other."""

    exit_code = USAGE


class Stopped(ComposerError):
    """A budget or a time limit ended the work; running the same command again goes on from here."""

    exit_code = STOPPED


class Refused(ComposerError):
    """A policy (secrets, licence, visibility, terms) forbids the step; nothing was written."""

    exit_code = REFUSED


class NothingToDo(ComposerError):
    """The asked-for state is already there."""

    exit_code = NOTHING_TO_DO
