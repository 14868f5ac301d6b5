"""Exit codes and the exceptions that carry them.

Every edge of the package (session files, the Hub, teachers, the ledger, training) derives its exceptions from these and
from the closest builtin. The command line prints the message and exits with `exit_code`.
"""

from __future__ import annotations

import os
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


class ComposerError(Exception):
    """A failure; the message names the cause, the place and the next step."""

    exit_code = FAILURE


class UsageError(ComposerError, ValueError):
    """A wrong request: a bad name, a missing option, or options that exclude each other."""

    exit_code = USAGE


class Stopped(ComposerError):
    """A budget or a time limit ended the work; the same command continues it."""

    exit_code = STOPPED


class Refused(ComposerError):
    """A policy (secrets, license, visibility, terms) forbids the step; nothing was written."""

    exit_code = REFUSED


class NothingToDo(ComposerError):
    """The requested state already exists."""

    exit_code = NOTHING_TO_DO


CODES_FILE = "COMPOSER_EXIT_CODES"
"""Environment variable: the file that a program adds its exit code to."""


def noted(main: Callable[[], int]) -> int:
    """Run a program and note its exit code in the file, because `accelerate launch` turns every code into 1."""
    code: Any = FAILURE
    try:
        code = main()
    except SystemExit as error:
        code = error.code
        raise
    finally:
        if path := os.environ.get(CODES_FILE):
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{code if isinstance(code, int) else FAILURE}\n")
    return code


def own_code(codes: Path, otherwise: int) -> int:
    """Return the exit code that the ranks wrote; a failed rank counts more than the ranks that it stopped."""
    found = {int(line) for line in codes.read_text().split()} if codes.is_file() else set()
    return max(found - {DONE, STOPPED} or found or {otherwise})
