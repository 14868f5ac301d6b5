"""Exit codes and the exceptions that carry them.

Every edge of the package (session files, the Hub, teachers, the ledger, training) derives its exceptions from these and
from the closest builtin. The command line prints the message and exits with `exit_code`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

DONE = 0
FAILURE = 1
USAGE = 2
STOPPED = 3
REFUSED = 4
NOTHING_TO_DO = 5
INTERRUPTED = 130
END_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a command as Ctrl-C does; it exits with 128 + their number."""


class ComposerError(Exception):
    """A failure; the message names the cause, the place and the next step."""

    exit_code = FAILURE


class UsageError(ComposerError, ValueError):
    """A wrong request: a bad name, a missing option, or options that exclude each other."""

    exit_code = USAGE


class Stopped(ComposerError):
    """A budget or a time limit ended the work; the same command continues it."""

    exit_code = STOPPED


class Interrupted(Stopped):
    """A person ended the work; the same command continues it."""

    exit_code = INTERRUPTED


class Refused(ComposerError):
    """A policy (secrets, license, visibility, terms) forbids the step; nothing was written."""

    exit_code = REFUSED


class NothingToDo(ComposerError):
    """The requested state already exists."""

    exit_code = NOTHING_TO_DO


CODES_FILE = "COMPOSER_EXIT_CODES"
"""Environment variable: the file that a program adds its exit code to."""
RANKS_FILE = "COMPOSER_RANKS"
"""Environment variable: the file that a program adds its process id to; signals go there, and not to its launcher."""


def noted(main: Callable[[], int]) -> int:
    """Run a program and note its exit code in the file, because `accelerate launch` turns every code into 1."""
    _note(RANKS_FILE, os.getpid())
    code: Any = FAILURE
    try:
        code = main()
    except SystemExit as error:
        code = error.code
    finally:
        _note(CODES_FILE, code if isinstance(code, int) else FAILURE)
    # A launcher prints a traceback about any code but 0. The ranks end together, so it need not end the others.
    return DONE if RANKS_FILE in os.environ and code in (STOPPED, INTERRUPTED) else code


def _note(variable: str, number: int) -> None:
    if path := os.environ.get(variable):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{number}\n")


def own_code(codes: Path, otherwise: int) -> int:
    """Return the exit code that the ranks wrote; a failed rank counts more than the ranks that it stopped."""
    found = {int(line) for line in codes.read_text().split()} if codes.is_file() else set()
    return max(found - {DONE, STOPPED} or found or {otherwise})
