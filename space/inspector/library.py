"""Which datasets this Space shows, who may read them, and their open revisions.

In: names like `me/pairs@v1.0.0`, and a visitor's token. Out: `Dataset`: the manifest, the downloaded index, and the
paths of the data files, which are read in ranges. A private dataset opens only for a visitor who can read it.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from huggingface_hub import HfApi
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError

from inspector.remote import HubFiles, RangeSource

MANIFEST = "composer_manifest.json"
MAX_OPEN = 12
PAGE = 50  # entries of a list
MEMORY = "450MB"
_REMEMBER_S = 120.0


class NotShown(LookupError):
    """A dataset that this Space cannot show to this visitor."""


@dataclass(frozen=True)
class Name:
    """A dataset and a revision of it."""

    repo: str
    revision: str = "main"

    @classmethod
    def parse(cls, text: str) -> Name:
        repo, _, revision = text.strip().partition("@")
        if repo.count("/") != 1 or ".." in repo:
            raise NotShown(f"{repo!r} does not name a dataset: write owner/name@revision.")
        return cls(repo, revision or "main")

    def __str__(self) -> str:
        return f"{self.repo}@{self.revision}"


@dataclass
class Dataset:
    """One open revision of a dataset."""

    name: Name
    revision: str  # the commit
    manifest: dict[str, Any]
    source: RangeSource
    key: str
    index_path: Callable[[str], str]  # config -> local path of its index
    tables: dict[str, Any] = field(default_factory=dict)  # that views build once: the pair table, facets
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def kind(self) -> str:
        """Return pairs, traces, rollouts or tasks."""
        if self.manifest.get("kind") == "traces" and "run_id" in self.manifest.get("sources", {}):
            return "rollouts"
        return str(self.manifest.get("kind", ""))

    @property
    def version(self) -> str:
        """Return the tag of the revision, as its manifest has it."""
        return f"v{self.manifest['version']}" if "version" in self.manifest else self.revision[:10]

    def groups(self, config: str) -> list[tuple[list[str], list[str]]]:
        """Return groups of files that are sorted together: the address of each, and the trace that it starts with.

        A set of an earlier version, and an empty file, name none.
        """
        table = self.manifest.get("tables", {}).get(config, {})
        starts = table.get("starts", {})
        groups = [group["files"] for group in table.get("parts") or table.get("splits", {}).values()]
        return [
            ([f"hub:///{self.key}/{path}" for path in paths], [starts[path] for path in paths if path in starts])
            for paths in groups
        ]

    def indexes(self, config: str) -> list[str]:
        """Return the addresses of a config's index files: one, or one for each part."""
        table = self.manifest.get("tables", {}).get(config, {})
        paths = [part["index"] for part in table.get("parts") or [table] if "index" in part]
        return [f"hub:///{self.key}/{path}" for path in paths]

    def files(self, config: str) -> list[str]:
        """Return the addresses of all Parquet files of a config."""
        return [file for files, _ in self.groups(config) for file in files]

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of the first call of `make`."""
        with self.lock:
            if name not in self.tables:
                self.tables[name] = make()
            return self.tables[name]


class SpaceLibrary:
    """The datasets of this Space and one DuckDB for all of them."""

    def __init__(self, names: Sequence[str], *, endpoint: str | None = None, folder: str | None = None) -> None:
        self.api = HfApi(endpoint=endpoint, token=False)
        self.names = [Name.parse(name) for name in names]
        self.files = HubFiles()
        self.db = duckdb.connect(":memory:")
        self.db.register_filesystem(self.files)
        for setting, value in _SETTINGS.items():
            self.db.execute(f"set global {setting} = '{value.replace(chr(39), chr(39) * 2)}'")
        self.folder = folder
        self._open: dict[tuple[str, str], Dataset] = {}
        self._rights: dict[tuple[str, str | None], tuple[float, bool]] = {}
        self._commits: dict[tuple[str, str], tuple[float, str]] = {}
        self._tags: dict[str, tuple[float, list[str]]] = {}
        self._lock = threading.Lock()

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement with bound values."""
        return self.db.cursor().execute(sql, list(values)).fetchall()

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run one statement and return its rows by column name."""
        cursor = self.db.cursor().execute(sql, list(values))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def open(self, repo: str, revision: str, token: str | None) -> Dataset:
        """Open a revision of a dataset that is on this Space's list, or in the lineage of one that is."""
        self.check_access(repo, token)
        commit = self._resolve(repo, revision, token)
        with self._lock:
            dataset = self._open.get((repo, commit))
        if dataset is None:
            dataset = self._load(Name(repo, revision), commit, token)
            with self._lock:
                dataset = self._open.setdefault((repo, commit), dataset)
                while len(self._open) > MAX_OPEN:
                    self._close(next(iter(self._open)))
        if token:
            dataset.source.token = token  # The newest reader's token: an older one may have ended.
        return dataset

    def shown(self, repo: str = "", revision: str = "") -> Name:
        """Return the dataset that a URL names: one on the list, at any of its revisions."""
        if not self.names:
            raise NotShown("This Space has no dataset: set SPACE_DATASETS, or run `composer-hub space open`.")
        for name in self.names:
            if repo in ("", name.repo):
                return Name(name.repo, revision or name.revision)
        raise NotShown(f"{repo} is not on the list of this Space ({', '.join(name.repo for name in self.names)}).")

    def check_access(self, repo: str, token: str | None) -> None:
        """Refuse visitors whose token cannot read the dataset on the Hub."""
        asked, may = self._rights.get((repo, token), (-_REMEMBER_S, False))
        if time.monotonic() - asked >= _REMEMBER_S:
            may = self._may_read(repo, token)
            if len(self._rights) > 10_000:
                self._rights.clear()
            self._rights[repo, token] = (time.monotonic(), may)
        if not may:
            raise NotShown(
                f"{repo} does not exist, or is private and you cannot read it."
                + ("" if token else " Sign in with Hugging Face to see private datasets that you can read.")
            )

    def linked(self, dataset: Dataset, kind: str, token: str | None) -> Dataset | None:
        """Return the dataset of a kind: this one, one on the list, or one this dataset was made from."""
        if dataset.kind == kind:
            return dataset
        for name in self.names:
            try:
                other = self.open(name.repo, name.revision, token)
            except NotShown:
                continue
            if other.kind == kind:
                return other
        return self._ancestor(dataset, kind, token)

    def _ancestor(self, dataset: Dataset, kind: str, token: str | None, depth: int = 4) -> Dataset | None:
        for parent in dataset.manifest.get("parents", []) if depth else []:
            if parent.get("type", "dataset") != "dataset":
                continue
            try:
                other = self.open(parent["repo"], parent["revision"], token)
            except NotShown:
                continue
            found = other if other.kind == kind else self._ancestor(other, kind, token, depth - 1)
            if found is not None:
                return found
        return None

    def opened(self) -> list[Dataset]:
        """Return the revisions that are open."""
        with self._lock:
            return list(self._open.values())

    def versions(self, repo: str, token: str | None) -> list[str]:
        """Return the tags of a dataset, the newest first."""
        self.check_access(repo, token)
        asked, tags = self._tags.get(repo, (-_REMEMBER_S, []))
        if time.monotonic() - asked >= _REMEMBER_S:
            refs = self.api.list_repo_refs(repo, repo_type="dataset", token=token or False)
            tags = sorted((tag.name for tag in refs.tags), key=_by_number, reverse=True)
            self._tags[repo] = (time.monotonic(), tags)
        return tags

    def _may_read(self, repo: str, token: str | None) -> bool:
        try:
            self.api.auth_check(repo, repo_type="dataset", token=token or False)
        except HfHubHTTPError as error:
            # The error of a Hub that fails is not an answer about rights, and must not be remembered.
            if error.response is None or error.response.status_code not in (401, 403, 404):
                raise
            return False
        return True

    def _resolve(self, repo: str, revision: str, token: str | None) -> str:
        asked, commit = self._commits.get((repo, revision), (-_REMEMBER_S, ""))
        if time.monotonic() - asked >= _REMEMBER_S:
            try:
                commit = str(self.api.dataset_info(repo, revision=revision, token=token or False).sha)
            except (RevisionNotFoundError, RepositoryNotFoundError) as error:
                raise NotShown(f"{repo} has no revision {revision}.") from error
            self._commits[repo, revision] = (time.monotonic(), commit)
        return commit

    def _load(self, name: Name, commit: str, token: str | None) -> Dataset:
        def download(path: str) -> str:
            return self.api.hf_hub_download(
                name.repo, path, repo_type="dataset", revision=commit, token=token or False, cache_dir=self.folder
            )

        try:
            with open(download(MANIFEST), encoding="utf-8") as file:
                manifest = json.load(file)
        except EntryNotFoundError as error:
            raise NotShown(f"{name} was not published by composer_hub: it has no {MANIFEST}.") from error
        key = f"{name.repo.replace('/', '--')}-{commit}"
        source = RangeSource(self.api.endpoint, name.repo, commit, token)
        self.files.add(key, source)
        return Dataset(
            name, commit, manifest, source, key, lambda config: download(manifest["tables"][config]["index"])
        )

    def card(self, dataset: Dataset, token: str | None) -> str:
        """Return the text of a dataset's card, or "" if it has none."""
        try:
            file = self.api.hf_hub_download(
                dataset.name.repo,
                "README.md",
                repo_type="dataset",
                revision=dataset.revision,
                token=token or False,
                cache_dir=self.folder,
            )
        except EntryNotFoundError:
            return ""
        return Path(file).read_text(encoding="utf-8", errors="replace")

    def _close(self, place: tuple[str, str]) -> None:
        dataset = self._open.pop(place)
        self.files.remove(dataset.key)
        for table in dataset.tables.values():
            if hasattr(table, "drop"):
                table.drop()


@dataclass(frozen=True)
class ListTable:
    """The rows of a list, in memory; made when its view is first opened."""

    library: SpaceLibrary
    name: str
    order: str

    @classmethod
    def of(
        cls, library: SpaceLibrary, dataset: Dataset, name: str, select: str, files: list[str], order: str
    ) -> ListTable:
        """Read a list of a dataset once."""

        def make() -> ListTable:
            table = f"{name}_{next(_NUMBERS)}"
            library.query(f"create table {table} as {select}", [files])
            return cls(library, table, order)

        return dataset.once(name, make)

    def drop(self) -> None:
        """Free the memory."""
        self.library.query(f"drop table if exists {self.name}")

    def page(self, number: int, where: str, values: Sequence[Any]) -> tuple[list[dict[str, Any]], int, int]:
        """Return a page of the rows that pass a condition, the number of all that pass, and the page's number."""
        total = self.library.query(f"select count(*) from {self.name} where {where}", values)[0][0]
        at = min(number, max(0, (total - 1) // PAGE))
        sql = f"select * from {self.name} where {where} order by {self.order} limit {PAGE} offset ?"
        return self.library.rows(sql, [*values, at * PAGE]), total, at

    def row(self, id: str) -> dict[str, Any] | None:
        """Return one row."""
        rows = self.library.rows(f"select * from {self.name} where id = ?", [id])
        return rows[0] if rows else None


_NUMBERS = itertools.count()
_SETTINGS = {
    "memory_limit": MEMORY,
    "threads": str(os.cpu_count() or 2),
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "true",
    # Otherwise each small column that is read after a filter costs a megabyte.
    "disable_parquet_prefetching": "true",
    # Otherwise a large sort spills into the working directory.
    "temp_directory": str(Path(tempfile.gettempdir()) / f"composer-space-{os.getpid()}"),
}


def _by_number(tag: str) -> list[tuple[bool, int, str]]:
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in tag.lstrip("v").split(".")]
