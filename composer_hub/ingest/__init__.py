"""Session files of coding agents in, traces out: read, marked with errors and hints, redacted, ready to publish.

from composer_hub import ingest

run = ingest.ingest(["~/.claude/projects"], ingest.IngestOptions(license="mit"))
print(run.numbers()["traces"])
for trace in run.traces():
    ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from composer_hub.ingest.run import Ingested, IngestOptions, ingest, memory_folder, read_denied

__all__ = ["IngestOptions", "Ingested", "ingest", "memory_folder", "read_denied"]


def __getattr__(name: str) -> Any:
    """Load the run on first use, since it imports huggingface_hub and worker processes do not need that."""
    if name in __all__:
        from composer_hub.ingest import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
