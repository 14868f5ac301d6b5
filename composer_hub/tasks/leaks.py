"""Search everything that an agent can read for copies of the code that a task removed.

Functions are compared by their syntax trees, without docstrings, decorators and annotations, so that a vendored or
reformatted copy is found. Other text files are searched for lines of the body.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from composer_hub.tasks.deletion import Candidate, PackageModel
from composer_hub.tasks.language import Language, Routine

MIN_STATEMENTS = 3
MIN_LINES = 3  # of a body, one after another, in a text file
MAX_TEXT = 2 << 20
_PACKED = (".whl", ".zip", ".egg")
HIDDEN = {"site-packages", "dist-packages", "ensurepip"}  # the sandbox shows none of these below the standard library


@dataclass
class Library:
    """The readable files outside the tree, by the names of the functions that they define."""

    language: Language
    files: dict[str, list[str]] = field(default_factory=dict)  # function name -> files
    num_files: int = 0
    _hashes: dict[str, Mapping[str, set[str]]] = field(default_factory=dict)  # file -> name -> hashes

    def add(self, path: str, data: bytes) -> None:
        """Read the names that a file defines."""
        self.num_files += 1
        for name in {found.decode() for found in self.language.defines.findall(data)}:
            self.files.setdefault(name, []).append(path)

    def copies(self, name: str, digest: str) -> list[str]:
        """Return the files that define a function of this name with this content."""
        return [path for path in self.files.get(name, ()) if digest in self._of(path).get(name, ())]

    def _of(self, path: str) -> Mapping[str, set[str]]:
        if path not in self._hashes:
            self._hashes[path] = self.language.digests(path, _read(path))
        return self._hashes[path]


def library(language: Language, folders: Iterable[Path]) -> Library:
    """Index the files of code, also those in archives, below some folders."""
    found = Library(language)
    for folder in folders:
        for at, names, files in os.walk(folder):
            names[:] = sorted(set(names) - HIDDEN)
            for name in sorted(files):
                path = os.path.join(at, name)
                if name.endswith(language.code):
                    found.add(path, Path(path).read_bytes())
                elif name.endswith(_PACKED):
                    with zipfile.ZipFile(path) as packed:
                        for member in packed.namelist():
                            if member.endswith(language.code):
                                found.add(f"{path}!{member}", packed.read(member))
    return found


def _read(path: str) -> bytes:
    archive, _, member = path.partition("!")
    if not member:
        return Path(path).read_bytes()
    with zipfile.ZipFile(archive) as packed:
        return packed.read(member)


@dataclass(frozen=True)
class LeakReport:
    """Copies of a task's solution: files that were masked, and copies that remain."""

    num_files: int
    masked: tuple[str, ...] = ()  # files of the tree that the agent does not get
    remaining: tuple[str, ...] = ()


def audit(
    model: PackageModel, candidate: Candidate, outside: Library, inside: Library, texts: Mapping[str, str]
) -> LeakReport:
    """Look for copies of what a candidate removed: outside, elsewhere in the tree, and in its other files."""
    if candidate.kind in ("bug", "branch", "write_tests"):  # the rest of the function is there anyway
        return LeakReport(outside.num_files + inside.num_files)
    own = [one for one in model.functions if _is_removed(one, candidate)]
    changed = {splice.path for splice in candidate.splices} | {edit.path for edit in candidate.files}
    texts = {path: text for path, text in texts.items() if path not in changed}
    remaining: set[str] = set()
    masked: set[str] = set()
    for function in own:
        if function.size < MIN_STATEMENTS:
            continue
        mark = function.digest
        root = f"{model.package.folder}/"
        remaining |= {_shown(path) for path in outside.copies(function.name, mark)}
        elsewhere = {path.removeprefix(root) for path in inside.copies(function.name, mark)} - changed
        # Files that are neither code of the package nor tests are not needed, so the agent does not get them.
        masked |= {path for path in elsewhere if path not in model.sources and path not in model.tests}
        remaining |= {path for path in elsewhere if path in model.sources or path in model.tests}
        masked |= {path for path, text in texts.items() if _quotes(text, model.sources[function.path], function)}
    num_files = outside.num_files + inside.num_files + len(texts)
    return LeakReport(num_files, tuple(sorted(masked)), tuple(sorted(remaining)))


def _is_removed(function: Routine, candidate: Candidate) -> bool:
    removed = set(candidate.symbols)
    return function.symbol in removed or any(
        function.symbol.startswith(f"{one}.") for one in removed if candidate.kind in ("removal", "feature")
    )


def _shown(path: str) -> str:
    """Return the path of a library file from its folder of packages, the same on every machine."""
    found = re.search(r"/(?:site-packages|node_modules|python\d+\.\d+)/(.+)", path)
    return found[1] if found else Path(path).name


def _quotes(text: str, source: Any, function: Routine) -> bool:
    """Return whether a text has lines of the body, one after another."""
    first, last = function.body_lines
    lines = [line.strip() for line in source.text[source.line_start(first) : source.line_end(last)].splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    found = [line.strip().lstrip("+->#* ").strip() for line in text.splitlines()]
    found = [line for line in found if line]
    for start in range(len(lines) - MIN_LINES + 1):
        wanted = lines[start : start + MIN_LINES]
        if sum(map(len, wanted)) < 40 or wanted[0] not in text:
            continue
        places = [number for number, line in enumerate(found) if line == wanted[0]]
        if any(found[number : number + MIN_LINES] == wanted for number in places):
            return True
    return False


def text_files(folder: Path, code: Iterable[str], suffixes: tuple[str, ...]) -> dict[str, str]:
    """Return the text files of a tree that are not code which the package or its tests need."""
    known, found = set(code), {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name in known or not path.is_file() or path.stat().st_size > MAX_TEXT or path.suffix in suffixes:
            continue
        try:
            found[name] = path.read_text(encoding="utf-8")
        except ValueError:
            continue
    return found
