"""`composer_manifest.json` and the indexes, which describe a revision without its rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class TablePart:
    """Files of a config that were written together, with their own index; the first part has number 0."""

    number: int
    index: str  # path in the repository
    files: tuple[str, ...]
    num_bytes: int  # of the rows as JSON

    def as_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "files": list(self.files)}


def parts_of(table: Mapping[str, Any]) -> tuple[TablePart, ...]:
    """Return the parts of a config, as its manifest describes it."""
    if "parts" in table:
        return tuple(TablePart(**{**part, "files": tuple(part["files"])}) for part in table["parts"])
    splits = table["splits"].values()
    files = tuple(path for split in splits for path in split["files"])
    return (TablePart(0, table["index"], files, sum(split.get("num_bytes", 0) for split in splits)),)


def read_index(
    destination: Destination, repo: str, revision: str, manifest: Mapping[str, Any], config: str
) -> dict[str, str]:
    """Return id -> row digest of one config of a revision; empty if the revision lacks the config."""
    if config not in manifest["tables"]:
        return {}
    parts = parts_of(manifest["tables"][config])
    return {id: digest for part in parts for id, digest, _ in read_rows_of_index(destination, repo, revision, part)}


def read_rows_of_index(
    destination: Destination, repo: str, revision: str, part: TablePart
) -> list[tuple[str, str, str]]:
    """Return id, row digest and split of each row of a part."""
    import pyarrow.parquet as pq

    path = destination.fetch(repo, revision, part.index)
    if path is None:
        raise ManifestError(f"{repo}@{revision} lacks {part.index}, which its manifest names.")
    table = pq.read_table(path, columns=["id", "digest", "split"])
    return list(zip(*(table[name].to_pylist() for name in ("id", "digest", "split")), strict=True))
