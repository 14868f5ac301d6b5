"""Datasets of sessions on the Hub as a source of ingest: downloaded at one commit, then read like files."""

from __future__ import annotations

import re
from pathlib import Path

from composer_hub import exits
from composer_hub.hub.destinations import Destination
from composer_hub.ingest.one_file import Origin

_URI = re.compile(r"hf://datasets/(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<under>.+))?")
_READABLE = (".jsonl", ".json", ".parquet", ".traj", ".md", ".eval", ".jsonl.zst", ".jsonl.gz", ".json.gz")


def download(destination: Destination, uri: str) -> dict[Path, Origin]:
    """Return the session files of a dataset at the commit its revision means now, and what their rows say of it."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise exits.UsageError(
            f"{uri!r} names no dataset: write hf://datasets/owner/name or hf://datasets/owner/name@revision."
        )
    repo, revision, under = found["repo"], found["revision"] or "main", (found["under"] or "").rstrip("/")
    commit = destination.resolve(repo, revision)
    if commit is None:
        raise exits.UsageError(f"There is no dataset {repo}@{revision} at {destination.address}.")
    wanted = [
        path
        for path in destination.files(repo, commit)
        if path.endswith(_READABLE) and not path.endswith("README.md") and f"{path}/".startswith(under and f"{under}/")
    ]
    if not wanted:
        raise exits.UsageError(f"{uri} holds no session file ({', '.join(_READABLE)}).")
    origin = Origin(card_license(destination.fetch(repo, commit, "README.md")), {"dataset": repo, "revision": commit})
    return {local: origin for path in wanted if (local := destination.fetch(repo, commit, path))}


def card_license(readme: Path | None) -> str:
    """Return the licence that a dataset's card names, "" where it names none."""
    from huggingface_hub.repocard import metadata_load
    from yaml import YAMLError

    try:
        told = (metadata_load(readme) if readme else None) or {}
    except (ValueError, YAMLError):
        return ""  # a card that cannot be read says nothing
    license = told.get("license") or ""
    if license == "other":
        license = told.get("license_name") or license
    return ", ".join(map(str, license)) if isinstance(license, list) else str(license)
