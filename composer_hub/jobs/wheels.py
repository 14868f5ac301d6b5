"""This package as a wheel, to be sent where it must run: built from a checkout, or packed from what is installed."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import composer_hub
from composer_hub import exits

NAME = "composer-hub"


class WheelError(exits.ComposerError, RuntimeError):
    """The package cannot be made into a wheel here."""


def own_wheel(folder: Path, *, package: Path = Path(composer_hub.__file__).parent) -> Path:
    """Write the wheel of the package that runs now into a folder and return its path."""
    checkout = package.parent
    folder.mkdir(parents=True, exist_ok=True)
    return _built(checkout, folder) if (checkout / "pyproject.toml").is_file() else _packed(folder)


def _built(checkout: Path, folder: Path) -> Path:
    if importlib.util.find_spec("hatchling") is not None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    else:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "."]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise WheelError(
            f"{checkout} could not be built into a wheel: {lines[-1] if lines else 'no reason given'}. "
            "`pip install hatchling`, or name a released version or a wheel with --package."
        )
    return wheels[-1]


def _packed(folder: Path) -> Path:
    """Put the files of the installed distribution back into the wheel they came from."""
    try:
        found = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        found = None
    files = [
        path
        for path in (found.files or [] if found else [])
        if ".." not in path.parts and "__pycache__" not in path.parts and _travels(path.parts)
    ]
    if found is None or not any(path.parts[0] == "composer_hub" for path in files):
        raise WheelError(
            "The files of the installed composer-hub are not on record here. Name a released version or a wheel with "
            "--package."
        )
    wheel = folder / f"composer_hub-{found.version}-py3-none-any.whl"
    record = f"composer_hub-{found.version}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(files, key=str):
            content = Path(str(path.locate())).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{path.as_posix()},sha256={digest},{len(content)}\n")
            _add(archive, path.as_posix(), content)
        _add(archive, record, "".join([*lines, f"{record},,\n"]).encode())
    return wheel


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    # A date of its own would make the same files another wheel each time.
    archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


def _travels(parts: tuple[str, ...]) -> bool:
    """Leave out what the installer added: scripts, and its notes on this machine."""
    if parts[0] == "composer_hub":
        return True
    return parts[0].endswith(".dist-info") and parts[-1] not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
