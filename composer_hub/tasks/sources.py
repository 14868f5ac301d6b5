"""A package by path or name in; a clean copy of its tree with metadata, and a bundle of it, out.

A source is a folder (of git or not), an sdist, a wheel, or a name for pip. The clean tree has no links, no caches, no
version control and no builds: nothing in it holds a copy of the code that a task will remove.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from composer_hub.local_hub.characters import is_plain
from composer_hub.named_files import problem_of
from composer_hub.tasks.language import Package, PackageRefused
from composer_hub.tasks.languages import LANGUAGES

MAX_FILES, MAX_BYTES = 20_000, 100 << 20
DOWNLOAD_SECONDS = 600
SCRUBBED = (
    ".git .hg .svn .tox .nox .venv venv .eggs __pycache__ .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* "
    "*.pyc *.pyo *.egg-info *.dist-info node_modules *.orig *.rej *.bak *.swp *~ .env* *.pem *.key *.whl "
    "*.tar.gz *.egg .DS_Store"
).split()
_BUILDS = {"build", "dist", "site"}  # at the top of a tree only: packages have modules of these names


def open_package(source: str, work: Path) -> Package:
    """Copy the tree of a source into `work` and describe it; `PackageRefused` if no task can be made from it."""
    work.mkdir(parents=True, exist_ok=True)
    raw, tree = work / "raw", work / "tree"
    for folder in (raw, tree):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    path = Path(source).expanduser()
    is_name = not path.exists() and re.fullmatch(r"[A-Za-z0-9][\w.-]*(==[\w.!+-]+)?", source)
    if not path.exists() and not is_name:
        raise PackageRefused("not_found", f"{source} is not a file, a folder or a package name. Check the spelling.")
    if problem := problem_of(path):
        raise PackageRefused("not_found", f"{source} {problem}")
    skipped: Counter[str] = Counter()
    if path.is_dir():
        _copy(path, tree, skipped)
        top = path
    else:
        _unpack(_download(source, raw) if is_name else path, raw / "files", skipped)
        inside = list((raw / "files").iterdir())
        nested = len(inside) == 1 and inside[0].is_dir() and not (inside[0] / "__init__.py").exists()
        top = inside[0] if nested else raw / "files"
        _copy(top, tree, skipped)
    language = next(one for one in LANGUAGES if one.claims(tree))
    metadata = language.metadata(top)
    shutil.rmtree(raw)
    return language.describe(tree, metadata, source, skipped)


# --------------------------------------------------------------------------------------------------------------- files


def _copy(folder: Path, tree: Path, skipped: Counter[str]) -> None:
    """Copy the files that may be in a bundle; links inside the tree become files."""
    root, size, number = folder.resolve(), 0, 0
    for relative in listed(folder):
        source = folder / relative
        if is_scrubbed(relative):
            continue
        if not is_plain(str(relative)):
            skipped["name"] += 1
            continue
        target = source.resolve()
        if not target.is_relative_to(root) or not target.is_file():
            skipped["link"] += source.is_symlink()
            continue
        size, number = size + target.stat().st_size, number + 1
        if size > MAX_BYTES or number > MAX_FILES:
            raise PackageRefused(
                "too_large", f"{folder} has over {MAX_FILES:,} files or {MAX_BYTES >> 20} MB. Name a smaller one."
            )
        (tree / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(target, tree / relative)


def is_scrubbed(path: Path) -> bool:
    """Return whether a path is a cache, a build, version control or looks like a secret."""
    return path.parts[0] in _BUILDS or any(fnmatch.fnmatch(part, one) for part in path.parts for one in SCRUBBED)


def listed(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder in order: those that git knows or does not ignore, else all."""
    git = shutil.which("git")
    if git and (folder / ".git").exists():
        # The repository may belong to another user, and its own settings may name programs to run.
        command = [git, "-c", f"safe.directory={folder.resolve()}", "-c", "core.fsmonitor=false", "-C", str(folder)]
        command += ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 0:
            yield from sorted({Path(os.fsdecode(name)) for name in done.stdout.split(b"\0") if name})
            return
    for at, folders, names in os.walk(folder):  # follows no links, but lists those to folders among the folders
        names += [name for name in folders if os.path.islink(os.path.join(at, name))]
        folders[:] = sorted(name for name in folders if not any(fnmatch.fnmatch(name, one) for one in SCRUBBED))
        yield from (Path(at, name).relative_to(folder) for name in sorted(names))


def _download(name: str, folder: Path) -> Path:
    """Download the sdist of a package with pip, or its wheel if it has none; dependencies are left out."""
    errors = ""
    for kind in (["--no-binary", ":all:"], ["--only-binary", ":all:"]):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-input", *kind]
        try:
            done = subprocess.run(
                [*command, "--disable-pip-version-check", "--dest", str(folder), name],
                capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            continue
        if found := sorted(path for path in folder.iterdir() if path.is_file()):
            return found[0]
        errors = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else errors
    raise PackageRefused(
        "not_downloaded", f"pip cannot download {name} ({errors[:200]}). Check the name and the index."
    )


def _unpack(archive: Path, folder: Path, skipped: Counter[str]) -> None:
    """Write the regular files of an archive into a folder; links and paths that leave it are skipped."""
    folder.mkdir()
    total = 0
    try:
        for name, size, read in _members(archive, skipped):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts:
                skipped["path"] += 1
                continue
            total += size
            if total > 2 * MAX_BYTES:
                raise PackageRefused(
                    "too_large", f"{archive.name} holds over {2 * MAX_BYTES >> 20} MB. Name a smaller package."
                )
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(read())
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise PackageRefused(
            "broken_archive", f"{archive.name} cannot be read as an sdist or wheel ({str(error).partition(':')[0]})."
        ) from error


def _members(archive: Path, skipped: Counter[str]) -> Iterator[tuple[str, int, Callable[[], bytes]]]:
    """Yield name, size and content of the regular files of an archive."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, functools.partial(file.read, info)
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, member.size, content.read
            elif not member.isdir():
                skipped["link"] += 1
