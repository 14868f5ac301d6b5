"""Load the word lists and the token shapes beside this module.

In: a file in `data/`. Out: its lines, or its lists by name. Files are read through `importlib.resources`, so they also
load from a zip.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from importlib.abc import Traversable
from importlib.resources import files

PACKAGE = files("composer_hub.redact")


def digest(folder: Traversable = PACKAGE) -> str:
    """Return the digest of the source and data files in a folder and below."""
    hashed = hashlib.sha256()
    for name, content in sorted(_files(folder, "")):
        hashed.update(f"{name}\0".encode() + hashlib.sha256(content).digest())
    return hashed.hexdigest()[:16]


def judge_digest() -> str:
    """Return the digest of the learned judge's weights, a part of what `digest` covers."""
    return hashlib.sha256((PACKAGE / "data" / "judge.npz").read_bytes()).hexdigest()[:16]


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{path}{entry.name}/")
        elif entry.name.endswith(".npz"):
            yield path + entry.name, entry.read_bytes()
        elif entry.name.endswith((".py", ".txt")):
            # Git may check text out with other line ends.
            yield path + entry.name, entry.read_bytes().replace(b"\r\n", b"\n")


def lines(name: str) -> list[str]:
    """Return the lines of a data file without comments and empty lines."""
    text = (PACKAGE / "data" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.split()[:1] not in ([], ["#"])]


@functools.cache
def _lists() -> dict[str, tuple[str, ...]]:
    bodies: dict[str, str] = {}
    name = ""
    for line in lines("words.txt"):
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1]
        bodies[name] = "" if line == f"[{name}]" else f"{bodies[name]} {line}"
    return {name: tuple(map(_entry, body.split(","))) for name, body in bodies.items()}


def _entry(written: str) -> str:
    entry = written.strip()
    return entry[1:-1] if entry[0] == entry[-1] == '"' else entry


def words(name: str) -> tuple[str, ...]:
    """Return one list of `words.txt`, in the order of the file."""
    return _lists()[name]
