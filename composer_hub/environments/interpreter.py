"""What a sandboxed command may read: a virtual environment in, paths of a minimal interpreter and system out.

Other packages of this machine are left out, because they can hold copies of the code that a task has removed.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from composer_hub import exits

_SYSTEM = (
    "/usr/bin /usr/lib64 /usr/lib/git-core /usr/libexec/git-core /usr/share/zoneinfo "
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


@functools.lru_cache(maxsize=64)
def interpreter_of(venv: Path | None = None) -> Interpreter:
    """Return the interpreter of a virtual environment, or this one without its packages."""
    version = "{}.{}".format(*sys.version_info)
    home = Path(sys.base_prefix, "bin")
    if venv is not None:
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
    shown = [path for path in (*system, *own, *([venv] if venv else [])) if path.exists()]
    places = [str(venv / "bin")] if venv else []
    return Interpreter(
        tuple(shown),
        tuple(path for path in hidden if path.is_dir()),
        ":".join([*places, str(home), "/usr/bin", "/bin"]),
    )


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
