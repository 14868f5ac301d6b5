"""Advice on installing optional parts, which names a source that pip can install this package from again.

An installation from an index is named by its name, one from a folder, a wheel or a repository by that place, which pip
records (PEP 610). Every message about installing a part takes its words from here.
"""

from __future__ import annotations

import importlib.util
import json
import shlex
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from composer_hub import exits

NAME = "composer-hub"
HERE = Path(__file__).parents[1]


def origin() -> str:
    """Return the folder, file or address that this package was installed from; nothing if it was an index."""
    if (HERE / "pyproject.toml").is_file():
        return str(HERE)  # a checkout, installed or not
    try:
        return place_of(metadata.distribution(NAME).read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        return ""


def place_of(record: str) -> str:
    """Return the place that pip's record of an installation names, as pip would take it."""
    known = json.loads(record)
    url = str(known.get("url", ""))
    if url.startswith("file:"):
        return unquote(urlsplit(url).path)
    if version := known.get("vcs_info"):
        return f"{version['vcs']}+{url}@{version['commit_id']}"
    return url


def requirement(extras: str, place: str) -> str:
    """Return the requirement by which pip installs this package from a place, with some extras."""
    if "://" in place:
        return f"{NAME}[{extras}] @ {place}"
    return f"{place or NAME}[{extras}]"


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    place = origin()
    editable = "-e " if place == str(HERE) else ""
    return f"pip install {editable}{shlex.quote(requirement(extra, place))}"


def missing(*modules: str) -> list[str]:
    """Return the modules that cannot be imported, without importing them."""
    return [name for name in modules if importlib.util.find_spec(name) is None]


def need(what: str, extra: str, *modules: str) -> None:
    """Refuse to begin what would fail later for want of an extra."""
    if absent := missing(*modules):
        raise exits.UsageError(f"{what} needs {', '.join(absent)}: {install(extra)}")
