"""Sources of packages as inputs of shards: what they were when the plan was made."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from composer_hub.shards import Input, ShardError
from composer_hub.shards.plan import file_digest
from composer_hub.tasks.history import HistoryError, git
from composer_hub.tasks.sources import listed


def source_input(source: str) -> Input:
    """Return a source with the digest of its files; one that is neither file nor folder is a name for pip."""
    path = Path(source).expanduser()
    if not path.exists():
        return Input(source, num_bytes=1, about={"source": source, "anywhere": True})
    return Input(str(path.absolute()), _digest(path), 1, about={"source": source})


def check_source(one: Input) -> None:
    """Raise ShardError if a source is not what it was when the plan was made."""
    if one.digest and (not Path(one.name).exists() or _digest(Path(one.name)) != one.digest):
        raise ShardError(
            f"{one.name} is not what it was when the plan was made. Run the same command again, which plans again; "
            "every worker must see it at this path."
        )


def _digest(path: Path) -> str:
    """Return the digest of a file, or of the names and contents of a folder's files."""
    if path.is_file():
        return file_digest(path)
    digest = hashlib.sha256()
    with contextlib.suppress(HistoryError):
        digest.update(git(path, "rev-parse", "HEAD"))
    for name in listed(path):
        file = path / name
        digest.update(os.fsencode(name) + b"\0")
        digest.update(file_digest(file).encode() if file.is_file() else b"-")
    return digest.hexdigest()
