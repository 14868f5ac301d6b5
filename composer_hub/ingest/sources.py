"""Every format that can be read, one `Source` each, and the choice between them by looking at a file's first bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from composer_hub.exits import UsageError
from composer_hub.ingest.readers import (
    aider,
    atif,
    chat_rows,
    claude_code,
    cline,
    codex,
    gemini,
    hf_native,
    inspect_eval,
    mini_swe_agent,
    openhands_v0,
    openhands_v1,
    pi,
    published_traces,
    swe_agent,
)
from composer_hub.ingest.report import FileReport
from composer_hub.session import Session

HEAD_BYTES = 65536
"""How much of a file `sniff` gets to see."""


@dataclass(frozen=True)
class Source:
    """A harness: how its files are known and read, and what they can and cannot give."""

    name: str
    title: str
    sniff: Callable[[bytes, Path], bool]
    read: Callable[[Path, FileReport], Iterator[Session]]
    gives: str
    lacks: str


# The order is the order of sniffing: formats with a telling first record come before the looser ones.
SOURCES: tuple[Source, ...] = (
    Source("claude_code", "Claude Code", claude_code.sniff, claude_code.read, claude_code.GIVES, claude_code.LACKS),
    Source("codex", "Codex CLI", codex.sniff, codex.read, codex.GIVES, codex.LACKS),
    Source("pi", "Pi", pi.sniff, pi.read, pi.GIVES, pi.LACKS),
    Source(
        openhands_v1.NAME,
        "OpenHands v1 (Agent SDK)",
        openhands_v1.sniff,
        openhands_v1.read,
        openhands_v1.GIVES,
        openhands_v1.LACKS,
    ),
    Source(
        openhands_v0.NAME, "OpenHands v0", openhands_v0.sniff, openhands_v0.read, openhands_v0.GIVES, openhands_v0.LACKS
    ),
    Source(swe_agent.NAME, "SWE-agent", swe_agent.sniff, swe_agent.read, swe_agent.GIVES, swe_agent.LACKS),
    Source(
        mini_swe_agent.NAME,
        "mini-swe-agent",
        mini_swe_agent.sniff,
        mini_swe_agent.read,
        mini_swe_agent.GIVES,
        mini_swe_agent.LACKS,
    ),
    Source(atif.NAME, "Harbor ATIF", atif.sniff, atif.read, atif.GIVES, atif.LACKS),
    Source(gemini.NAME, "Gemini CLI", gemini.sniff, gemini.read, gemini.GIVES, gemini.LACKS),
    Source(cline.NAME, "Cline", cline.sniff, cline.read, cline.GIVES, cline.LACKS),
    Source(aider.NAME, "Aider", aider.sniff, aider.read, aider.GIVES, aider.LACKS),
    Source(inspect_eval.NAME, "Inspect", inspect_eval.sniff, inspect_eval.read, inspect_eval.GIVES, inspect_eval.LACKS),
    Source(
        published_traces.NAME,
        "Traces and rollouts that composer_hub published",
        published_traces.sniff,
        published_traces.read,
        published_traces.GIVES,
        published_traces.LACKS,
    ),
    Source(hf_native.NAME, "Hub trace rows", hf_native.sniff, hf_native.read, hf_native.GIVES, hf_native.LACKS),
    Source(
        chat_rows.NAME,
        "Chat rows (SWE-smith, SWE-Gym, nebius)",
        chat_rows.sniff,
        chat_rows.read,
        chat_rows.GIVES,
        chat_rows.LACKS,
    ),
)


def sniff(head: bytes, path: Path) -> Source | None:
    """Return the format a file is in, or None."""
    return next((source for source in SOURCES if source.sniff(head, path)), None)


def source_named(name: str) -> Source:
    """Return the format of that name."""
    for source in SOURCES:
        if source.name == name:
            return source
    raise UsageError(f"There is no session format {name!r}. Known formats: {', '.join(s.name for s in SOURCES)}.")
