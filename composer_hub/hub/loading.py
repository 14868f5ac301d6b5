"""A version in, rows and records out. A tag is resolved once, and everything is read at its commit.

Rows stream from the published Parquet files in batches; JSON columns are decoded exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from composer_hub import exits
from composer_hub.hub.manifest import read_index, read_manifest
from composer_hub.hub.protocol import Destination
from composer_hub.hub.refs import RepoRef, check_repo, newest_first, parse_ref
from composer_hub.records import Trace, TraceState, from_row, states

R = TypeVar("R")
_BATCH = 32
_SHOWN_TAGS = 12


class LoadError(exits.ComposerError, LookupError):
    """A version that does not exist or lacks the requested config or file."""


@dataclass(frozen=True)
class Version:
    """One version at one destination, with its tag resolved to a commit."""

    destination: Destination
    repo: str
    revision: str  # the commit
    tag: str  # v1.2.0, or "" if the revision has no tag
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        """Return its tag; a commit after a version, such as the merge of verdicts, has the version's name."""
        return self.tag or (f"v{self.manifest['version']}" if "version" in self.manifest else self.revision)

    def rows(self, config: str, split: str | None = None) -> Iterator[dict[str, Any]]:
        """Stream the rows of a config, of one split or of all."""
        for name, published in self._splits(config).items():
            if split in (None, name):
                yield from self.rows_of(published["files"])

    def rows_of(self, paths: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Stream the rows of some of its files."""
        import pyarrow.parquet as pq

        for path in paths:
            local = self.destination.fetch(self.repo, self.revision, path)
            if local is None:
                raise LoadError(f"{self.repo}@{self.revision} lacks {path}, which its manifest names.")
            for batch in pq.ParquetFile(local).iter_batches(batch_size=_BATCH):
                yield from decode_rows(batch)

    def records(self, cls: type[R], config: str, split: str | None = None) -> Iterator[R]:
        """Stream the rows of a config as records."""
        return (from_row(cls, row) for row in self.rows(config, split))

    def ids(self, config: str) -> set[str]:
        """Return the ids of a config's rows from its index; none if the version lacks the config."""
        return set(read_index(self.destination, self.repo, self.revision, self.manifest, config))

    def splits(self, config: str) -> list[str]:
        """Return the names of a config's splits."""
        return list(self._splits(config))

    def num_rows(self, config: str) -> int:
        """Return the number of rows of a config, without reading them."""
        self._splits(config)
        return self.manifest["tables"][config]["num_rows"]

    def license(self) -> str:
        """Return the license on the card."""
        from huggingface_hub import DatasetCard

        readme = self.destination.fetch(self.repo, self.revision, "README.md")
        return str(DatasetCard.load(readme).data.license or "other") if readme else "other"

    def _splits(self, config: str) -> dict[str, Any]:
        tables = self.manifest["tables"]
        if config not in tables:
            raise LoadError(
                f"{self.repo}@{self.tag or self.revision} has no config {config!r}: it has {', '.join(tables)}. "
                "Name a dataset that has it."
            )
        return tables[config]["splits"]


def commit_of(destination: Destination, ref: RepoRef, repo_type: str = "dataset") -> str:
    """Return the commit that a name means; refuse an unknown one with the names that there are."""
    revision = destination.resolve(ref.repo, ref.revision, repo_type)
    if revision is not None:
        return revision
    if destination.is_private(ref.repo, repo_type) is not None:
        tags = newest_first(destination.tags(ref.repo, repo_type))
        more = f" and {len(tags) - _SHOWN_TAGS:,} more" if len(tags) > _SHOWN_TAGS else ""
        advice = (
            f"Its tags are {', '.join(tags[:_SHOWN_TAGS])}{more}." if tags else "It has no tags: leave the '@' out."
        )
    elif other := other_type(destination, ref.repo, repo_type):
        advice = f"{ref.repo} is a {other} there, and this needs a {repo_type}."
    else:
        advice = f"No {repo_type} has this name: check it, and the place (local, hub or a folder)."
    raise LoadError(f"There is no {ref} at {destination.address}. {advice}")


def other_type(destination: Destination, repo: str, repo_type: str) -> str:
    """Return dataset for a model and model for a dataset, if a repository of that type has the name, else ""."""
    other = "model" if repo_type == "dataset" else "dataset"
    return other if destination.is_private(repo, other) is not None else ""


def load(destination: Destination, ref: str | RepoRef, repo_type: str = "dataset") -> Version:
    """Return the version that `owner/name@revision` names."""
    ref = parse_ref(ref) if isinstance(ref, str) else ref
    revision = commit_of(destination, ref, repo_type)
    manifest = read_manifest(destination, ref.repo, revision, repo_type)
    if manifest is None:
        reader = "load_dataset" if repo_type == "dataset" else "from_pretrained"
        raise LoadError(f"{ref} has no manifest, so composer_hub did not publish it. Read it with {reader}.")
    return _version(destination, ref.repo, revision, manifest, repo_type)


def newest(destination: Destination, repo: str) -> Version | None:
    """Return the newest version of a dataset, or None if composer_hub has published none."""
    revision = destination.resolve(check_repo(repo), "main")
    manifest = read_manifest(destination, repo, revision) if revision else None
    return _version(destination, repo, revision, manifest, "dataset") if revision and manifest is not None else None


def _version(destination: Destination, repo: str, revision: str, manifest: dict[str, Any], repo_type: str) -> Version:
    tag = next((tag for tag, commit in destination.tags(repo, repo_type).items() if commit == revision), "")
    return Version(destination, repo, revision, tag, manifest)


def load_traces(destination: Destination, ref: str | RepoRef) -> tuple[Version, Iterator[Trace]]:
    """Return the version of a trace dataset and a stream of its traces."""
    version = load(destination, ref)
    return version, version.records(Trace, "traces")


def load_states(
    destination: Destination, ref: str | RepoRef, *, max_chars: int | None = None
) -> tuple[Version, Iterator[TraceState]]:
    """Return the version of a trace dataset and a stream of the states before each step."""
    version, traces = load_traces(destination, ref)
    return version, (state for trace in traces for state in states(trace, max_chars=max_chars))


def decode_rows(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of an Arrow batch with their JSON columns decoded."""
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
