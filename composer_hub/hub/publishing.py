"""Rows and a card in, one version out: one commit with everything, then its tag.

A version is a commit of `main` with a tag `vX.Y.Z`. The commit is its identity; the digests in `composer_manifest.json`
are its content. Publishing the same rows again adds at most the tag, if a crash came between commit and tag. If the
head has moved meanwhile, `publish` plans again and `update` also makes its rows again from the new head; nothing
is ever forced.
"""

from __future__ import annotations

import functools
import json
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from composer_hub import __version__, exits
from composer_hub.hub.appending import build_onto
from composer_hub.hub.cards import Card, render
from composer_hub.hub.loading import Version, newest, other_type
from composer_hub.hub.manifest import MANIFEST, TablePart, read_index, read_manifest
from composer_hub.hub.protocol import Add, Change, Delete, Destination, Entry, HubRefused, Moved
from composer_hub.hub.refs import FIRST_VERSION, VersionNumber, check_repo, parse_version
from composer_hub.hub.tables import SHARD_BYTES, Built, Table, build
from composer_hub.records import SCHEMA_VERSION, canonical_json, stable_id

MAX_OPERATIONS = 100
VERSION_MARK = "${version}"
"""A placeholder in `registry.json` for the version's number, which is chosen when the version is planned."""
BUMPS = ("patch", "minor", "major")
_MAX_PLANS = 20
_LIBRARIES = ("huggingface_hub", "datasets", "pyarrow")


class PublishError(exits.ComposerError, ValueError):
    """A version that cannot be published as asked."""


class NothingToPublish(exits.NothingToDo):
    """The newest version already holds these rows."""


@dataclass(frozen=True)
class Parent:
    """A revision that a version was made from."""

    role: str  # source, pairs, teacher, base model, …
    repo: str
    revision: str
    type: str = "dataset"
    tag: str = ""


@dataclass(frozen=True)
class Lineage:
    """The origin of a version, beyond its rows."""

    parents: tuple[Parent, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)  # options of the run, stored and digested
    sources: Mapping[str, Any] = field(default_factory=dict)  # digests of files, teachers, rule sets


@dataclass(frozen=True)
class Draft:
    """A version before it is published."""

    tables: Sequence[Table]
    card: Card
    lineage: Lineage = field(default_factory=Lineage)
    title: str = ""  # of the commit
    adds: bool = False  # its rows are added to those of the version that it is made from, as new files


@dataclass(frozen=True)
class PublishOptions:
    """The number, visibility and file sizes of the version to publish."""

    version: str | None = None  # None: the next free one
    bump: str | None = None  # at least this part: patch, minor or major
    public: bool = False
    title: str = ""  # of the commit
    shard_bytes: int = SHARD_BYTES


@dataclass(frozen=True)
class PublishPlan:
    """The effect of a publication on one head."""

    repo: str
    version: VersionNumber
    bump: str  # first, patch, minor or major
    head: str | None
    changes: tuple[Change, ...]
    card: str
    manifest: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, int]]  # config -> added, removed, changed, total
    public: bool
    create: bool

    def describe(self, address: str) -> dict[str, Any]:
        """Return the plan as plain values, for printing."""
        adds = [change for change in self.changes if isinstance(change, Add)]
        return {
            "repo": self.repo,
            "address": address,
            "visibility": "public" if self.public else "private",
            "create_repo": self.create,
            "tag": self.version.tag,
            "bump": self.bump,
            "head": self.head,
            "rows": {config: dict(counts) for config, counts in self.rows.items()},
            "files": [{"path": change.path, "num_bytes": change.num_bytes} for change in adds],
            "deletes": [change.path for change in self.changes if isinstance(change, Delete)],
            "num_bytes": sum(change.num_bytes for change in adds),
        }


@dataclass(frozen=True)
class Published:
    """A version that now exists."""

    repo: str
    tag: str
    revision: str
    address: str
    rows: Mapping[str, Mapping[str, int]]
    note: str = ""  # a sentence about the visibility, if it is not the one that was asked for


def publish(
    destination: Destination,
    repo: str,
    tables: Sequence[Table],
    card: Card,
    *,
    lineage: Lineage | None = None,
    options: PublishOptions | None = None,
) -> Published:
    """Publish tables as the next version of a dataset repository."""
    draft = Draft(tables, card, lineage or Lineage())
    return _publish(destination, repo, lambda before: draft, options or PublishOptions(), only_from_head=False)


def update(
    destination: Destination,
    repo: str,
    make: Callable[[Version | None], Draft | None],
    *,
    options: PublishOptions | None = None,
) -> Published:
    """Publish a version that is made from the newest one.

    `make` gets the newest version, or None if there is none, and returns None if its rows stay as they are. It is
    called again if another publication came first, so rows that others publish at the same time are never lost.
    """
    return _publish(destination, repo, make, options or PublishOptions(), only_from_head=True)


def _publish(
    destination: Destination,
    repo: str,
    make: Callable[[Version | None], Draft | None],
    options: PublishOptions,
    *,
    only_from_head: bool,
) -> Published:
    check_repo(repo)
    with destination.exclusive(repo), tempfile.TemporaryDirectory(prefix="composer-publish-") as scratch:
        draft: Draft | None = None
        built: list[Built] = []
        base = None
        lost: PublishPlan | None = None  # the last plan that may have been carried out without an answer
        for number in range(_MAX_PLANS):
            try:
                if number == 0 or only_from_head:
                    before = newest(destination, repo) if only_from_head else None
                    base = before.revision if before else None
                    draft, built = _made(make, before, Path(scratch) / str(number), options)
                destination.prepare(repo, private=not options.public)
                check_visibility(destination, repo, public=options.public)
                head = _Head.read(destination, repo)
                if only_from_head and base != (head.revision if head.manifest else None):
                    continue
                note = _visibility_note(destination, repo, options)
                healed = head.heal(destination)
                if draft is None or head.holds(built, draft.card):
                    # Without its own commit this process has published nothing, even if it set the tag first.
                    if lost is None or head.version != lost.version or head.revision is None:
                        head.nothing(f"Its tag was missing and is there now. {note}" if healed else note)
                    return Published(repo, lost.version.tag, head.revision, destination.address, lost.rows, note=note)
                plan = make_plan(head, destination, built, draft.card, draft.lineage, options)
                revision = _commit(destination, plan, options.title or draft.title)
                destination.tag(repo, plan.version.tag, revision, message=f"{repo} {plan.version}")
                return Published(repo, plan.version.tag, revision, destination.address, plan.rows, note=note)
            except Moved as moved:
                if not built and (number or not only_from_head):
                    raise  # the rows come from a version that is gone, not from the head of this repository
                lost = plan if moved.maybe_by_us else lost
    raise PublishError(
        f"{repo} kept moving while {_MAX_PLANS} plans were made: publish again when others have finished."
    )


def _made(
    make: Callable[[Version | None], Draft | None], before: Version | None, folder: Path, options: PublishOptions
) -> tuple[Draft | None, list[Built]]:
    """Return what is to be published after the newest version, and its files in a folder."""
    draft = make(before)
    if draft is None:
        return None, []
    onto = before if draft.adds else None
    return draft, build_all(draft.tables, folder, shard_bytes=options.shard_bytes, onto=onto)


def _visibility_note(destination: Destination, repo: str, options: PublishOptions) -> str:
    """Return a sentence if the repository stays private although `public` is set: its history was not checked."""
    if not options.public or destination.name == "folder" or not destination.is_private(repo):
        return ""
    return (
        f"{repo} is private and stays private: earlier versions may hold rows that were not checked. Make it public "
        f"with `hf repos settings {repo} --type dataset --public`."
    )


def dry_run(
    destination: Destination,
    repo: str,
    tables: Sequence[Table],
    card: Card,
    *,
    lineage: Lineage | None = None,
    options: PublishOptions | None = None,
) -> PublishPlan:
    """Return the plan that `publish` would carry out, and write nothing."""
    check_repo(repo)
    options = options or PublishOptions()
    check_visibility(destination, repo, public=options.public)
    with tempfile.TemporaryDirectory(prefix="composer-publish-") as scratch:
        built = build_all(tables, Path(scratch), shard_bytes=options.shard_bytes)
        head = _Head.read(destination, repo)
        if head.holds(built, card) and head.is_tagged:
            head.nothing("")
        return make_plan(head, destination, built, card, lineage or Lineage(), options)


def build_all(
    tables: Sequence[Table], folder: Path, *, shard_bytes: int = SHARD_BYTES, onto: Version | None = None
) -> list[Built]:
    """Build every table, onto those of a version if there is one; `load_dataset` uses the first one by default."""
    # One commit holds all files: card, manifest, pictures, one index per table, and shards of up to three splits.
    max_shards = max(1, (MAX_OPERATIONS - 8 - len(tables)) // (3 * len(tables)))
    limits = {"shard_bytes": shard_bytes, "max_shards": max_shards}
    built = [build_onto(onto, table, folder, **limits) if onto else build(table, folder, **limits) for table in tables]
    num_files = sum(len(one.files) for one in built) + 2
    if num_files > MAX_OPERATIONS:
        raise PublishError(
            f"{num_files} files in one commit: the Hub takes about {MAX_OPERATIONS}. Publish fewer configs or splits."
        )
    return built


_ROWS_ADVICE = (
    "pass --public if everyone may read these rows, or make the repository private first. Nothing was uploaded."
)


def check_visibility(
    destination: Destination, repo: str, *, public: bool, repo_type: str = "dataset", advice: str = _ROWS_ADVICE
) -> None:
    """Refuse a public repository unless `public` is set; the current visibility counts."""
    if destination.is_private(repo, repo_type) is False and not public:
        raise HubRefused(f"{repo} is public at {destination.address}: {advice}")


def check_target(
    destination: Destination,
    repo: str,
    kind: str,
    *,
    public: bool,
    repo_type: str = "dataset",
    advice: str = _ROWS_ADVICE,
) -> None:
    """Refuse a repository that cannot take this kind of content, before the work of making it; nothing is written."""
    revision = destination.resolve(check_repo(repo), "main", repo_type)
    if revision is None:
        if other := other_type(destination, repo, repo_type):
            raise HubRefused(
                f"{repo} is a {other} at {destination.address}, and this publishes {kind} to a {repo_type}. Choose "
                f"another name, or make the {repo_type} first: hf repos create {repo} --type {repo_type}."
            )
        return
    check_visibility(destination, repo, public=public, repo_type=repo_type, advice=advice)
    _check_kind(destination, repo, revision, read_manifest(destination, repo, revision, repo_type), kind)


_EMPTY = {".gitattributes", ".version", "README.md"}
"""The files of a repository that was only created."""
_ADDED_TO = ("model", "raw sessions")
"""Kinds whose files are added beside those of others; a version of another kind replaces them."""


def _check_kind(
    destination: Destination, repo: str, revision: str | None, manifest: Mapping[str, Any] | None, kind: str
) -> None:
    """Refuse content of another kind: the version would remove what the repository holds from `main`."""
    if revision is None or (manifest and manifest["kind"] == kind):
        return
    if manifest is None:
        files = [] if kind in _ADDED_TO else sorted(set(destination.files(repo, revision)) - _EMPTY)
        if files:
            raise HubRefused(
                f"{repo} holds files that composer_hub did not publish ({', '.join(files[:3])}, …): {kind} would "
                f"replace them on main. Nothing was uploaded. Choose another repository for the {kind}."
            )
        return
    tag = f"v{manifest['version']}" if "version" in manifest else revision
    raise HubRefused(
        f"{repo} {tag} holds {manifest['kind']}, and a repository holds one kind: {kind} would replace them on main. "
        f"Nothing was uploaded. Choose another repository for the {kind}. Earlier versions stay where they are: "
        f'load_dataset("{repo}", revision="{tag}").'
    )


# --------------------------------------------------------------------------------------------------------------- head


@dataclass(frozen=True)
class _Head:
    """The newest commit of a repository, with its manifest if composer_hub published it."""

    repo: str
    revision: str | None
    manifest: Mapping[str, Any] | None
    tags: Mapping[str, str]

    @classmethod
    def read(cls, destination: Destination, repo: str) -> _Head:
        revision = destination.resolve(repo, "main")
        if revision is None:
            return cls(repo, None, None, {})
        return cls(repo, revision, read_manifest(destination, repo, revision), destination.tags(repo))

    @property
    def version(self) -> VersionNumber | None:
        return parse_version(self.manifest["version"]) if self.manifest else None

    @property
    def is_tagged(self) -> bool:
        return self.version is not None and self.version.tag in self.tags

    def holds(self, built: Sequence[Built], card: Card) -> bool:
        if self.manifest is None or _content(self.manifest) != _content({"tables": _tables(built)}):
            return False
        return not card.trees or self.manifest.get("trees") == _trees(card)

    def heal(self, destination: Destination) -> bool:
        """Tag the newest version if a crash came between its commit and its tag."""
        if self.revision is None or self.version is None or self.is_tagged:
            return False
        destination.tag(self.repo, self.version.tag, self.revision, message=f"{self.repo} {self.version}")
        return True

    def nothing(self, note: str) -> NoReturn:
        tag = self.version.tag if self.version else ""
        raise NothingToPublish(
            f"Nothing to publish: {self.repo} {tag} already holds exactly these rows. {note}".strip()
        )


# --------------------------------------------------------------------------------------------------------------- plan


def make_plan(
    head: _Head,
    destination: Destination,
    built: Sequence[Built],
    card: Card,
    lineage: Lineage,
    options: PublishOptions,
) -> PublishPlan:
    """Choose the version number and the changed files, against the current head."""
    repo = head.repo
    _check_kind(destination, repo, head.revision, head.manifest, card.template)
    rows = {one.config: _row_changes(head, destination, one) for one in built}
    needed = _needed_bump(head.manifest, built, rows)
    chosen = _version(head, needed, options.bump, options.version)
    manifest = _manifest(repo, chosen, built, card, lineage)
    there = destination.files(repo, head.revision) if head.revision else {}
    text = render(card, built, repo=repo, version=chosen.tag, parents=manifest["parents"])
    return PublishPlan(
        repo=repo,
        version=chosen,
        bump=needed if needed == "first" else options.bump or needed,
        head=head.revision,
        changes=_changes(built, text, card, manifest, there),
        card=text,
        manifest=manifest,
        rows=rows,
        public=options.public,
        create=head.revision is None,
    )


def _needed_bump(
    before: Mapping[str, Any] | None, built: Sequence[Built], rows: Mapping[str, Mapping[str, int]]
) -> str:
    """Return major if columns changed or a config went away, minor if rows were removed or edited, else patch."""
    if before is None:
        return "first"
    old = before["tables"]
    now = {one.config: one for one in built}
    if any(config not in now or now[config].features_digest != old[config]["features_digest"] for config in old):
        return "major"
    if any(counts["removed"] or counts["changed"] for counts in rows.values()):
        return "minor"
    if any(counts["added"] for counts in rows.values()) or set(now) != set(old):
        return "patch"
    return "minor"  # the same rows in other splits


def _version(head: _Head, needed: str, bump: str | None, asked: str | None) -> VersionNumber:
    newest = head.version
    if bump and needed in BUMPS and BUMPS.index(bump) < BUMPS.index(needed):
        raise PublishError(f"These rows need at least a {needed} version (docs/hub.md, Versions), not --bump {bump}.")
    free = newest.bump(bump or needed) if newest else FIRST_VERSION
    while free.tag in head.tags:
        free = free.bump("patch")
    if asked is None:
        return free
    wanted = parse_version(asked)
    if wanted.tag in head.tags:
        raise PublishError(
            f"{wanted.tag} exists with other rows, and a version never changes. The next free one is {free.tag}."
        )
    if newest is not None and wanted <= newest:
        raise PublishError(f"{wanted.tag} is not after {newest.tag}. The next free version is {free.tag}.")
    return wanted


def _row_changes(head: _Head, destination: Destination, built: Built) -> dict[str, int]:
    old: dict[str, str] = {}
    if head.revision and head.manifest:
        old = read_index(destination, head.repo, head.revision, head.manifest, built.config)
    now = built.index
    return {
        "added": sum(id not in old for id in now),
        "removed": sum(id not in now for id in old),
        "changed": sum(now[id] != digest for id, digest in old.items() if id in now),
        "total": len(now),
    }


@functools.cache
def _installed(name: str) -> str:
    return metadata.version(name)


def _manifest(
    repo: str, version: VersionNumber, built: Sequence[Built], card: Card, lineage: Lineage
) -> dict[str, Any]:
    return {
        "composer_hub": __version__,
        "schema_version": SCHEMA_VERSION,
        "kind": card.template,
        "repo": repo,
        "version": str(version),
        "tables": _tables(built),
        **({"trees": _trees(card)} if card.trees else {}),
        "parents": [parent.__dict__ for parent in lineage.parents],
        "sources": dict(lineage.sources),
        "config": dict(lineage.config),
        "config_digest": stable_id(dict(lineage.config)),
        "counts": dict(card.counts),
        "dropped": dict(card.dropped),
        "libraries": {"python": platform.python_version()} | {name: _installed(name) for name in _LIBRARIES},
    }


def _tables(built: Sequence[Built]) -> dict[str, Any]:
    return {
        one.config: {
            "features_digest": one.features_digest,
            "num_rows": one.num_rows,
            **_index(one.parts),
            "counts": one.counts,
            "starts": dict(one.starts),
            "splits": {
                split.name: {
                    "num_rows": split.num_rows,
                    "num_bytes": split.num_bytes,
                    "digest": split.digest,
                    "files": list(split.files),
                }
                for split in one.splits
            },
        }
        for one in built
    }


def _index(parts: Sequence[TablePart]) -> dict[str, Any]:
    if len(parts) == 1 and parts[0].number == 0:
        return {"index": parts[0].index}
    return {"parts": [part.as_json() for part in parts]}


def _trees(card: Card) -> list[str]:
    return sorted({path.split("/")[1] for path in card.trees if path.startswith("tasks/")})


def _content(manifest: Mapping[str, Any]) -> str:
    """Return the digests of a version's rows and columns, which do not depend on the library that wrote it."""
    tables = {
        config: [table["features_digest"], {name: split["digest"] for name, split in table["splits"].items()}]
        for config, table in manifest["tables"].items()
    }
    return canonical_json(tables)


def _changes(
    built: Sequence[Built],
    readme: str,
    card: Card,
    manifest: Mapping[str, Any],
    there: Mapping[str, Entry],
) -> tuple[Change, ...]:
    text = json.dumps(manifest, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    files = {path: source for one in built for path, source in one.files.items()}
    adds = [Add.of("README.md", readme.encode()), Add.of(MANIFEST, text.encode())]
    adds += [Add.of(path, source) for path, source in sorted(files.items())]
    tag = f"v{manifest['version']}".encode()
    adds += [
        # Trees are content-addressed by their task, so only the registry names the version.
        Add.of(path, data.replace(VERSION_MARK.encode(), tag) if path == "registry.json" else data)
        for path, data in sorted(card.trees.items())
        if data is not None
    ]
    adds += [Add.of(f"plots/{name}", data) for name, data in sorted(card.pictures.items())]
    room = max(0, MAX_OPERATIONS - len(adds))
    adds += [Add.of(f"sessions/{name}", path) for name, path in list(card.sessions.items())[:room]]
    # Delete only files that composer_hub itself writes.
    written = {add.path for add in adds} | set(card.trees) | {path for one in built for path in one.kept}
    ours = (
        "data/",
        "index/",
        "plots/",
        "sessions/",
        *(("tasks/", "registry.json") if card.template == "tasks" else ()),
    )
    stale = [path for path in sorted(there) if path.startswith(ours) and path not in written]
    return (*adds, *(Delete(path) for path in stale))


# ----------------------------------------------------------------------------------------------------------- carry out


def _commit(destination: Destination, plan: PublishPlan, title: str) -> str:
    changed = ", ".join(
        f"{config} {counts['total']:,} rows (+{counts['added']:,} -{counts['removed']:,} ~{counts['changed']:,})"
        for config, counts in plan.rows.items()
    )
    return destination.commit(
        plan.repo,
        plan.changes,
        title=title or f"Publish {plan.version.tag}",
        body=f"{changed}\n\nWritten by composer_hub {__version__}.",
        parent=plan.head,
    )
