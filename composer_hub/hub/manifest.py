"""`composer_manifest.json` and the indexes: what a revision says of itself without its rows being read."""

from __future__ import annotations

import json
from typing import Any

from composer_hub import exits
from composer_hub.hub.destinations import Destination

MANIFEST = "composer_manifest.json"


class ManifestError(exits.ComposerError, ValueError):
    """A revision whose manifest or index cannot be read."""


def read_manifest(
    destination: Destination, repo: str, revision: str, repo_type: str = "dataset"
) -> dict[str, Any] | None:
    """Return the manifest of a revision, or None where it was not published by composer_hub."""
    path = destination.fetch(repo, revision, MANIFEST, repo_type)
    if path is None:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ManifestError(
            f"{repo}@{revision}: {MANIFEST} is not JSON ({error}). Restore it from an earlier version."
        ) from error


def read_index(destination: Destination, repo: str, revision: str, config: str) -> dict[str, str]:
    """Return id -> row digest of one config of a revision."""
    import pyarrow.parquet as pq

    path = destination.fetch(repo, revision, f"index/{config}.parquet")
    if path is None:
        raise ManifestError(f"{repo}@{revision} has no index/{config}.parquet: it was not published by composer_hub.")
    table = pq.read_table(path, columns=["id", "digest"])
    return dict(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))
