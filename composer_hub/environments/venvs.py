"""The virtual environment of a package under test: pinned requirements in, a folder out, made once per content.

It holds the dependencies and pytest, but neither the package itself nor pip, whose vendored copies would leak code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from filelock import FileLock

from composer_hub import exits

INSTALL_SECONDS = 600


class VenvError(exits.ComposerError, OSError):
    """Requirements that cannot be installed."""


def venvs_folder() -> Path:
    """Return the folder of the virtual environments that are kept between runs."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("COMPOSER_VENVS") or Path(cache, "composer-hub", "venvs"))


def venv_for(requirements: Sequence[str], folder: Path | None = None) -> Path:
    """Return a virtual environment with these requirements; only wheels are installed, so nothing is executed."""
    wanted = sorted(set(requirements))
    what = "\n".join(["compiled", sys.version, sys.prefix, *wanted]).encode()
    return kept_environment(what, folder, lambda fresh: _install(wanted, fresh))


def kept_environment(what: bytes, folder: Path | None, install: Callable[[Path], None]) -> Path:
    """Return the environment that is kept for what it holds; `install` fills the folder of one that is new."""
    key, folder = hashlib.sha256(what).hexdigest()[:16], (folder or venvs_folder()).absolute()
    place = folder / key
    complete = place / ".complete"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f".{key}.lock"):
        if not complete.exists():
            # It is made where it stays, because its programs name its interpreter by path.
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            place.chmod(0o755)
            try:
                install(place)
                # Each sandbox has another user, and the caller's umask may close new files to them.
                subprocess.run(["chmod", "-R", "a+rX", place], check=True)
                complete.touch()
            finally:
                if not complete.exists():
                    shutil.rmtree(place, ignore_errors=True)
    return place


def site_packages(place: Path) -> Path:
    """Return the folder of a virtual environment that holds its packages."""
    return next(place.glob("lib/python*/site-packages"))


def pinned(place: Path) -> tuple[str, ...]:
    """Return `name==version` for everything in a virtual environment."""
    found = metadata.distributions(path=[str(site_packages(place))])
    return tuple(sorted({f"{one.metadata['Name'].lower()}=={one.version}" for one in found}))


def _install(requirements: Sequence[str], place: Path) -> None:
    venv.create(place, with_pip=False, symlinks=True)
    if not requirements:
        return
    # pip works from outside, so that the environment holds no copy of it.
    command = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    command += ["--no-input", "--disable-pip-version-check", "--only-binary", ":all:"]
    try:
        done = subprocess.run(
            [*command, *requirements], capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise VenvError(f"pip did not install {', '.join(requirements)} in {INSTALL_SECONDS} s. Try again.") from error
    if done.returncode != 0:
        reason = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), done.stderr)
        raise VenvError(
            f"pip cannot install {', '.join(requirements)} from wheels: {reason.removeprefix('ERROR: ').strip()[:300]} "
            "Check the names and the index, or install the missing dependency yourself."
        )
