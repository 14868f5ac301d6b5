"""The package that a job installs: a release, a commit of a repository, or a wheel that is sent along.

In: `--package`, or the place that this package came from. Out: the argument of pip inside the job, and a wheel to send.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import composer_hub
from composer_hub import exits, extras
from composer_hub.hub import HubDestination
from composer_hub.jobs.inputs import MOUNT, content_digest

EXTRAS = "[train,report]"
_BUILDS = ("hatchling", "hatch_fancy_pypi_readme")  # build requirements of pyproject.toml


def find_package(where: HubDestination, package: str, named: str = EXTRAS) -> tuple[str, dict[str, bytes]]:
    """Return the argument of pip inside a job, and the wheel to upload if it is one."""
    if where.name == "local":
        if package:
            raise exits.UsageError("A job of the embedded Hub uses the installed package: leave --package out.")
        return "", {}
    place = package or extras.origin()
    if not place:
        return f"{extras.NAME}{named}=={composer_hub.__version__}", {}
    if "://" in place:
        return place if package else f"{extras.NAME}{named} @ {place}", {}
    if Path(place).is_dir():
        with tempfile.TemporaryDirectory(prefix="composer-wheel-") as folder:
            return _sent(build_wheel(Path(place), Path(folder)), named)
    if place.endswith(".whl"):
        return _sent(Path(place), named)
    return package, {}


def _sent(wheel: Path, named: str) -> tuple[str, dict[str, bytes]]:
    if not wheel.is_file():
        raise exits.UsageError(
            f"There is no wheel {wheel}. Build one with `pip wheel --no-deps CHECKOUT` and pass it as --package."
        )
    content = wheel.read_bytes()
    path = f"package/{content_digest(content)}/{wheel.name}"
    return f"{MOUNT}/{path}{named}", {path: content}


def build_wheel(checkout: Path, folder: Path) -> Path:
    """Build the wheel of a checkout with pip, or with uv, whose environments have no pip."""
    alone = [] if extras.missing(*_BUILDS) else ["--no-build-isolation"]  # otherwise they are downloaded
    uv = shutil.which("uv")
    if not extras.missing("pip"):
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, *alone, "--wheel-dir", str(folder), str(checkout)]
    elif uv is not None:
        command = [uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(checkout)]
    else:
        raise exits.UsageError(f"Building the wheel of {checkout} needs pip or uv: install one, or pass --package.")
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or done.stdout.strip() or "no reason is given").splitlines()[-1]
        raise exits.UsageError(
            f"The wheel of {checkout} could not be built ({reason}). Build it with `pip wheel --no-deps {checkout}` "
            "and pass it as --package."
        )
    return wheels[0]
