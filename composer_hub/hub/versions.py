"""Compare two versions, and trace a version back to everything it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from composer_hub.hub.loading import load
from composer_hub.hub.manifest import ManifestError, read_index, read_manifest
from composer_hub.hub.protocol import Destination
from composer_hub.hub.refs import parse_ref


@dataclass(frozen=True)
class RowDiff:
    """Changes to the rows of one config between two versions, by id."""

    config: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    num_same: int


@dataclass(frozen=True)
class Diff:
    """Changes between two versions: files by path, rows by id."""

    old: str
    new: str
    files_added: tuple[str, ...]
    files_removed: tuple[str, ...]
    files_changed: tuple[str, ...]
    rows: tuple[RowDiff, ...]

    @property
    def is_empty(self) -> bool:
        return not (
            self.files_added
            or self.files_removed
            or self.files_changed
            or any(row.added or row.removed or row.changed for row in self.rows)
        )


def diff(destination: Destination, old: str, new: str) -> Diff:
    """Compare two versions, each `owner/name@revision`, by the digests in their trees and indexes."""
    before, after = load(destination, old), load(destination, new)
    old_files = destination.files(before.repo, before.revision)
    new_files = destination.files(after.repo, after.revision)
    configs = list(dict.fromkeys([*before.manifest["tables"], *after.manifest["tables"]]))
    rows = []
    for config in configs:
        was = read_index(destination, before.repo, before.revision, before.manifest, config)
        now = read_index(destination, after.repo, after.revision, after.manifest, config)
        rows.append(diff_rows(config, was, now))
    return Diff(
        old=f"{before.repo}@{before.tag or before.revision}",
        new=f"{after.repo}@{after.tag or after.revision}",
        files_added=tuple(sorted(new_files.keys() - old_files.keys())),
        files_removed=tuple(sorted(old_files.keys() - new_files.keys())),
        files_changed=tuple(sorted(p for p in old_files.keys() & new_files.keys() if old_files[p] != new_files[p])),
        rows=tuple(rows),
    )


def diff_rows(config: str, old: dict[str, str], new: dict[str, str]) -> RowDiff:
    """Compare two indexes: id -> row digest."""
    both = old.keys() & new.keys()
    changed = tuple(sorted(id for id in both if old[id] != new[id]))
    return RowDiff(
        config,
        added=tuple(sorted(new.keys() - old.keys())),
        removed=tuple(sorted(old.keys() - new.keys())),
        changed=changed,
        num_same=len(both) - len(changed),
    )


@dataclass(frozen=True)
class Ancestor:
    """One ancestor of a version."""

    depth: int
    role: str
    type: str
    repo: str
    revision: str
    tag: str
    made_by: str
    note: str = ""

    def as_row(self) -> dict[str, Any]:
        """Return the link as the table that `composer-hub lineage` prints."""
        return {
            "step": "  " * self.depth + self.role,
            "repo": self.repo,
            "tag": self.tag or None,
            "revision": self.revision,
            "made by": self.made_by or None,
            "note": self.note or None,
        }


def lineage(destination: Destination, ref: str) -> Iterator[Ancestor]:
    """Walk from a dataset or model to its ancestors, depth first; unreadable ones are listed with a note."""
    named = parse_ref(ref)
    # A dataset and a model may share a name; their revisions differ, because models are tagged by run.
    there = [kind for kind in ("dataset", "model") if destination.is_private(named.repo, kind) is not None]
    found = (kind for kind in there if destination.resolve(named.repo, named.revision, kind))
    kind = next(found, there[0] if there else "dataset")
    version = load(destination, named, kind)
    yield Ancestor(0, "this", kind, version.repo, version.revision, version.tag, _made_by(version.manifest))
    yield from _parents(destination, version.manifest, depth=1, seen={(version.repo, version.revision)})


def _parents(
    destination: Destination, manifest: dict[str, Any], *, depth: int, seen: set[tuple[str, str]]
) -> Iterator[Ancestor]:
    for parent in manifest.get("parents", ()):
        key = (parent["repo"], parent["revision"])
        found, note = _manifest_of(destination, parent)
        if key in seen:
            note = "shown above"
        yield Ancestor(
            depth,
            parent["role"],
            parent["type"],
            parent["repo"],
            parent["revision"],
            parent.get("tag", ""),
            _made_by(found) if found else "",
            note,
        )
        if found and key not in seen:
            seen.add(key)
            yield from _parents(destination, found, depth=depth + 1, seen=seen)


def _manifest_of(destination: Destination, parent: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    if parent["type"] not in ("dataset", "model"):
        return None, ""
    if destination.resolve(parent["repo"], parent["revision"], parent["type"]) is None:
        return None, f"not at {destination.address}"
    try:
        return read_manifest(destination, parent["repo"], parent["revision"], parent["type"]), ""
    except ManifestError as error:
        return None, str(error)


def _made_by(manifest: dict[str, Any]) -> str:
    return f"composer_hub {manifest['composer_hub']}, config {manifest['config_digest'][:8]}"
