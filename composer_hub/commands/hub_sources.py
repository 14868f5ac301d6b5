"""Datasets of sessions on the Hub as a source of ingest: downloaded at one commit, then read like files."""

from __future__ import annotations

import re
from pathlib import Path

from composer_hub import exits
from composer_hub.hub.destinations import Destination

_URI = re.compile(r"hf://datasets/(?P<repo>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?(?:/(?P<under>.+))?")
_READABLE = (".jsonl", ".json", ".parquet", ".traj", ".md", ".eval")


def download(destination: Destination, uri: str) -> Path:
    """Return the folder that holds the session files of a dataset at the commit its revision means now."""
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
        if path.endswith(_READABLE) and path.startswith(under) and not path.endswith("README.md")
    ]
    if not wanted:
        raise exits.UsageError(f"{uri} holds no session file ({', '.join(_READABLE)}).")
    fetched = [local for path in wanted if (local := destination.fetch(repo, commit, path))]
    # All of them lie under one snapshot folder; its depth is that of the first file's path.
    return fetched[0].parents[wanted[0].count("/")]
