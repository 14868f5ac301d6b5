"""Messages for errors that no stage explains."""

from __future__ import annotations

import errno

from huggingface_hub.utils import httpx


def unexpected(error: Exception) -> str:
    """Return the text to print for an unexpected exception."""
    if isinstance(error, httpx.TransportError) and getattr(error, "_request", None):
        return f"{error.request.url} cannot be reached ({error}). Check the network and run the same command again."
    summary = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return f"unexpected {summary}. This is a bug; HF_DEBUG=1 shows its traceback."


def sentence_of(error: OSError) -> str:
    """Return the system's refusal, its place, and the next step."""
    if error.strerror is None:
        return f"{str(error).strip() or type(error).__name__}"
    where = f"{error.filename}: " if error.filename else ""
    advice = " Free some space and run the same command again." if error.errno == errno.ENOSPC else ""
    return f"{where}{error.strerror}.{advice}"
