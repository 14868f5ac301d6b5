"""A version in, rows and records out: a tag is resolved once to its commit, and everything is read at that commit.

Rows stream from the published Parquet files, a batch at a time, with JSON columns decoded exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from composer_hub import exits
from composer_hub.hub.destinations import Destination
from composer_hub.hub.manifest import read_manifest
from composer_hub.hub.refs import Ref, parse_ref
from composer_hub.records import Trace, TraceState, from_row, states

R = TypeVar("R")
_BATCH = 32


class LoadError(exits.ComposerError, LookupError):
    """A version that is not there or does not hold what was asked for."""


@dataclass(frozen=True)
class Version:
    """One version at one destination: what a tag meant when it was resolved."""

    destination: Destination
    repo: str
    revision: str  # the commit
    tag: str  # v1.2.0, or "" where the revision has no tag
    manifest: dict[str, Any]

    def rows(self, config: str, split: str | None = None) -> Iterator[dict[str, Any]]:
        """Stream the rows of a config, of one split or of all."""
        import pyarrow.parquet as pq

        for name, published in self._splits(config).items():
            if split in (None, name):
                for path in published["files"]:
                    local = self.destination.fetch(self.repo, self.revision, path)
                    if local is None:
                        raise LoadError(f"{self.repo}@{self.revision} lacks {path}, which its manifest names.")
                    file = pq.ParquetFile(local)
                    for batch in file.iter_batches(batch_size=_BATCH):
                        yield from decode_rows(batch)

    def records(self, cls: type[R], config: str, split: str | None = None) -> Iterator[R]:
        """Stream the rows of a config as records."""
        return (from_row(cls, row) for row in self.rows(config, split))

    def splits(self, config: str) -> list[str]:
        """Return the names of a config's splits."""
        return list(self._splits(config))

    def num_rows(self, config: str) -> int:
        """Return how many rows a config has, without reading them."""
        self._splits(config)
        return self.manifest["tables"][config]["num_rows"]

    def _splits(self, config: str) -> dict[str, Any]:
        tables = self.manifest["tables"]
        if config not in tables:
            raise LoadError(
                f"{self.repo}@{self.tag or self.revision} has no config {config!r}: it has {', '.join(tables)}."
            )
        return tables[config]["splits"]


def open_version(destination: Destination, ref: str | Ref, repo_type: str = "dataset") -> Version:
    """Resolve `owner/name@revision` once and return what is there."""
    ref = parse_ref(ref) if isinstance(ref, str) else ref
    revision = destination.resolve(ref.repo, ref.revision, repo_type)
    if revision is None:
        raise LoadError(
            f"There is no {ref} at {destination.address}. Check the name, the tag, and --to (local, hub or a folder)."
        )
    manifest = read_manifest(destination, ref.repo, revision, repo_type)
    if manifest is None:
        reader = "load_dataset" if repo_type == "dataset" else "from_pretrained"
        raise LoadError(f"{ref} was not published by composer_hub (it has no manifest): read it with {reader}.")
    tag = next((tag for tag, commit in destination.tags(ref.repo, repo_type).items() if commit == revision), "")
    return Version(destination, ref.repo, revision, tag, manifest)


def load_traces(destination: Destination, ref: str | Ref) -> tuple[Version, Iterator[Trace]]:
    """Return a trace dataset's version and a stream of its traces."""
    version = open_version(destination, ref)
    return version, version.records(Trace, "traces")


def load_states(
    destination: Destination, ref: str | Ref, *, max_chars: int | None = None
) -> tuple[Version, Iterator[TraceState]]:
    """Return a trace dataset's version and a stream of the states before each step."""
    version, traces = load_traces(destination, ref)
    return version, (state for trace in traces for state in states(trace, max_chars=max_chars))


def decode_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow batch with its JSON columns decoded."""
    decoders = [(column.name, _decoder(column.type)) for column in batch.schema]
    for row in batch.to_pylist():
        yield {name: decode(row[name]) for name, decode in decoders}


def _decoder(type: Any) -> Any:
    import pyarrow as pa

    if isinstance(type, pa.BaseExtensionType):
        return lambda value: value if value is None else orjson.loads(value)
    if pa.types.is_list(type):
        inner = _decoder(type.value_type)
        return lambda values: values if values is None else [inner(value) for value in values]
    if pa.types.is_struct(type):
        inners = [(field.name, _decoder(field.type)) for field in type]
        return lambda value: value if value is None else {name: decode(value[name]) for name, decode in inners}
    return lambda value: value
