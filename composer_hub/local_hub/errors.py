"""The exceptions of the embedded Hub. Each also derives from the closest builtin."""

from __future__ import annotations


class LocalHubError(Exception):
    """Something failed; the message gives the cause and the next step."""

    exit_code = 1


class LocalHubUsageError(LocalHubError, ValueError):
    """The request itself is wrong: a bad name, a missing option, or options that exclude each other."""

    exit_code = 2
