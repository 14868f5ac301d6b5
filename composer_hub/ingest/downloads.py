"""The sources of a run as local files: datasets on the Hub are downloaded at one commit and read like folders.

From a dataset that composer_hub published, only the config `traces` is read; the other files repeat it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.hub import MANIFEST, Destination, RepoRef, commit_of, read_manifest
from composer_hub.ingest.foreign import as_dict, as_list, as_text
from composer_hub.ingest.one_file import Origin

_URI = re.compile(r"hf://datasets/(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<under>.+))?")
_READABLE = (".jsonl", ".json", ".parquet", ".traj", ".md", ".eval", ".jsonl.zst", ".jsonl.gz", ".json.gz")


def local_sources(
    sources: Iterable[str | os.PathLike[str]], destination: Destination | None
) -> tuple[list[Path], dict[str, Origin]]:
    """Return the sources as paths, and the origin of each downloaded file; `hf://` sources need a destination."""
    paths: list[Path] = []
    origins: dict[str, Origin] = {}
    for source in sources:
        uri = str(source)
        if not uri:  # an unset variable of the shell, not the folder in which the command runs
            raise exits.UsageError("A source is empty. Name a file or a folder of sessions ('.' for this one).")
        if not uri.startswith("hf://"):
            path = Path(source).expanduser()
            paths += local_files(path) if path.is_dir() else [path]
        elif destination is None:
            raise exits.UsageError(f"Give ingest() a destination to download {uri} from.")
        else:
            files = download(destination, uri)
            paths += files
            origins |= {str(path): origin for path, origin in files.items()}
    return paths, origins


def download(destination: Destination, uri: str) -> dict[Path, Origin]:
    """Return the session files of a dataset, with their origin, at the current commit of its revision."""
    parts = _URI.fullmatch(uri)
    if parts is None:
        raise exits.UsageError(
            f"{uri!r} is not a dataset: write hf://datasets/owner/name or hf://datasets/owner/name@revision."
        )
    repo, revision, under = parts["repo"], parts["revision"] or "main", (parts["under"] or "").rstrip("/")
    commit = commit_of(destination, RepoRef(repo, revision))
    files = list(destination.files(repo, commit))
    manifest = read_manifest(destination, repo, commit)
    if manifest is not None:
        files = trace_files(manifest, files, uri)
    wanted = [
        path
        for path in files
        if path.endswith(_READABLE) and not path.endswith("README.md") and f"{path}/".startswith(under and f"{under}/")
    ]
    if not wanted:
        raise exits.UsageError(f"{uri} holds no session file ({', '.join(_READABLE)}).")
    origin = Origin(card_license(destination.fetch(repo, commit, "README.md")), {"dataset": repo, "revision": commit})
    return {local: origin for path in wanted if (local := destination.fetch(repo, commit, path))}


def local_files(folder: Path) -> list[Path]:
    """Return the trace tables of a folder that composer_hub published, else the folder."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return [folder]
    there = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")]
    return [folder / name for name in trace_files(manifest, there, str(folder))]


def trace_files(manifest: Any, there: Iterable[str], where: str) -> list[str]:
    """Return the files of a published version's config `traces`."""
    tables = as_dict(as_dict(manifest).get("tables"))
    if "traces" not in tables:
        raise exits.UsageError(
            f"{where} was published by composer_hub and holds {', '.join(tables) or 'no table'}, but no traces: "
            "name the dataset of traces that it was made from (composer-hub lineage shows it)."
        )
    splits = as_dict(as_dict(tables["traces"]).get("splits")).values()
    named = {as_text(path) for split in splits for path in as_list(as_dict(split).get("files"))}
    if missing := named.difference(there):
        raise exits.UsageError(f"{where} lacks {min(missing)}, which its manifest names: publish or copy it again.")
    return sorted(named)


def card_license(readme: Path | None) -> str:
    """Return the license that a dataset's card names, or ""."""
    from huggingface_hub.repocard import metadata_load
    from yaml import YAMLError

    try:
        metadata = (metadata_load(readme) if readme else None) or {}
    except (ValueError, YAMLError):
        return ""
    license = metadata.get("license") or ""
    if license == "other":
        license = metadata.get("license_name") or license
    return ", ".join(map(str, license)) if isinstance(license, list) else str(license)
