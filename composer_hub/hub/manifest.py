"""`composer_manifest.json` and the indexes, which describe a revision without its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from composer_hub import exits
from composer_hub.hub.protocol import Destination

MANIFEST = "composer_manifest.json"


class ManifestError(exits.ComposerError, ValueError):
    """A revision whose manifest or index cannot be read."""


def read_manifest(
    destination: Destination, repo: str, revision: str, repo_type: str = "dataset"
) -> dict[str, Any] | None:
    """Return the manifest of a revision, or None if composer_hub did not publish it."""
    path = destination.fetch(repo, revision, MANIFEST, repo_type)
    if path is None:
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ManifestError(
            f"{repo}@{revision}: {MANIFEST} is not JSON ({error}). Restore it from an earlier version."
        ) from error


def read_index(
    destination: Destination, repo: str, revision: str, manifest: Mapping[str, Any], config: str
) -> dict[str, str]:
    """Return id -> row digest of one config of a revision; empty if the revision lacks the config."""
    if config not in manifest["tables"]:
        return {}
    import pyarrow.parquet as pq

    name = manifest["tables"][config]["index"]
    path = destination.fetch(repo, revision, name)
    if path is None:
        raise ManifestError(f"{repo}@{revision} lacks {name}, which its manifest names.")
    table = pq.read_table(path, columns=["id", "digest"])
    return dict(zip(table["id"].to_pylist(), table["digest"].to_pylist(), strict=True))
