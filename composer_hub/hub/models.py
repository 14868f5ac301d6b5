"""Models to and from a destination: fetched at one commit, published as one commit with the tag of the run.

Names are `owner/name`, `owner/name@revision` or a folder. Weights are safetensors only, which cannot run code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from composer_hub import exits
from composer_hub.hub.loading import LoadError, commit_of
from composer_hub.hub.protocol import Add, Destination, Moved
from composer_hub.hub.publishing import Published, check_visibility
from composer_hub.hub.refs import check_repo, parse_ref

_WANTED = (".safetensors", ".json", ".txt", ".model", ".jinja", ".tiktoken")
_MAX_TRIES = 20


class ModelError(exits.ComposerError, LookupError):
    """A model that does not exist or cannot be used."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model on this machine, with its origin."""

    name: str  # owner/name, or the name of a folder
    revision: str  # the commit, or for a folder the digest of its weights
    folder: Path
    tag: str = ""

    @property
    def is_published(self) -> bool:
        return "/" in self.name


def fetch_model(where: Destination, name: str) -> Model:
    """Fetch the files of a model at the commit that its revision names; a folder is used in place."""
    if Path(name).expanduser().is_dir():
        folder = Path(name).expanduser().resolve()
        _check(name, folder)
        return Model(folder.name, digest_of(folder), folder)
    ref = parse_ref(name)
    try:
        revision = commit_of(where, ref, "model")
    except LoadError as error:
        raise ModelError(f"{error} There is no folder of that name either.") from error
    paths = {
        path: where.fetch(ref.repo, revision, path, "model")
        for path in where.files(ref.repo, revision, "model")
        if (path.endswith(_WANTED) or path == "README.md") and "/" not in path
    }
    config = paths.get("config.json")
    folder = config.parent if config else Path(name)
    _check(str(ref), folder)
    tag = next((tag for tag, commit in where.tags(ref.repo, "model").items() if commit == revision), "")
    return Model(ref.repo, revision, folder, tag)


def publish_model(
    where: Destination,
    repo: str,
    files: Mapping[str, bytes | Path],
    *,
    tag: str,
    title: str,
    body: str = "",
    public: bool = False,
) -> Published:
    """Write all files of a model as one commit and tag it; the same tag again is a no-op."""
    check_repo(repo)
    where.prepare(repo, private=not public, repo_type="model")
    advice = (
        "pass --public if everyone may have this model, or make the repository private first. Nothing was uploaded."
    )
    check_visibility(where, repo, public=public, repo_type="model", advice=advice)
    changes = [Add.of(path, content) for path, content in sorted(files.items())]
    counts = {"files": {"added": len(changes), "removed": 0, "changed": 0, "total": len(changes)}}
    for _ in range(_MAX_TRIES):
        head = where.resolve(repo, "main", "model")
        done = where.tags(repo, "model").get(tag) if head else None
        # After a crash between commit and tag, the head is the commit of this run without its tag.
        done = done or (head if head and _holds(where, repo, head, files) else None)
        try:
            revision = done or where.commit(repo, changes, title=title, body=body, parent=head, repo_type="model")
        except Moved:
            continue
        where.tag(repo, tag, revision, message=title, repo_type="model")
        return Published(repo, tag, revision, where.address, counts)
    raise ModelError(f"{repo} kept moving. Run the same command again when other writers have finished.")


def digest_of(folder: Path) -> str:
    """Return the digest of a folder's weights and configuration."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix == ".safetensors" or path.name == "config.json":
            digest.update(f"{path.name}\n".encode())
            with path.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
    return f"sha256:{digest.hexdigest()}"


def _holds(where: Destination, repo: str, head: str, files: Mapping[str, bytes | Path]) -> bool:
    """Return True if a commit is from the same run, by the run id in its record."""
    record = files.get("composer_run.json")
    there = where.fetch(repo, head, "composer_run.json", "model")
    if record is None or there is None:
        return False
    ours = json.loads(record if isinstance(record, bytes) else record.read_bytes())
    return json.loads(there.read_bytes()).get("run_id") == ours.get("run_id")


def _check(name: str, folder: Path) -> None:
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        hint = " It is an adapter: merge it into its base model first." if any(folder.glob("adapter_*.json")) else ""
        raise ModelError(f"{name} has no config.json with safetensors weights, so it cannot be trained.{hint}")
