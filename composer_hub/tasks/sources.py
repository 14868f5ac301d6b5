"""A package by path or name in; a clean copy of its tree with metadata, and a bundle of it, out.

A source is a folder (of git or not), an sdist, a wheel, or a name for pip. The clean tree has no links, no caches, no
version control and no builds: nothing in it holds a copy of the code that a task will remove.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from composer_hub import exits
from composer_hub.named_files import problem_of
from composer_hub.tasks.metadata import Metadata, is_copyleft, read_metadata, version_file

MAX_FILES, MAX_BYTES = 20_000, 100 << 20
DOWNLOAD_SECONDS = 600
SCRUBBED = (
    ".git .hg .svn .tox .nox .venv venv .eggs __pycache__ .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* "
    "*.pyc *.pyo *.egg-info *.dist-info node_modules *.orig *.rej *.bak *.swp *~ .env* *.pem *.key *.whl "
    "*.tar.gz *.egg .DS_Store"
).split()
_BUILDS = {"build", "dist", "site"}  # at the top of a tree only: packages have modules of these names
_TEST_FILES = ("test_*.py", "*_test.py", "tests.py", "test.py")
_NO_SOURCES = {
    "docs",
    "doc",
    "examples",
    "example",
    "benchmarks",
    "benchmark",
    "scripts",
    "tools",
    "tests",
    "test",
    "testing",
}
_VERSION = '__version__ = version = "{0}"\n__version_tuple__ = version_tuple = tuple("{0}".split("."))\n'
_NO_MODULES = {"setup", "conftest", "noxfile", "fabfile", "tasks", "versioneer"}


class PackageRefused(exits.ComposerError, ValueError):
    """A package that gives no tasks; `reason` is counted."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Package:
    """A clean tree on this machine, with what is known about the package."""

    folder: Path
    metadata: Metadata
    digest: str  # of its bundle
    python_path: tuple[str, ...]
    modules: tuple[str, ...]  # top-level import names
    sources: tuple[str, ...]  # files of the package
    tests: tuple[str, ...]  # test files
    skipped: Counter[str] = field(default_factory=Counter)  # files by reason

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def copyleft(self) -> bool:
        return is_copyleft(self.metadata.license)

    def text(self, path: str) -> str:
        """Return the text of a file as it is, with its line ends."""
        return (self.folder / path).read_bytes().decode("utf-8")


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
        metadata = read_metadata(path)
        if (name := version_file(path)) and not (place := tree / name).exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(_VERSION.format(metadata.version))
    else:
        _unpack(_download(source, raw) if is_name else path, raw / "files", skipped)
        inside = list((raw / "files").iterdir())
        nested = len(inside) == 1 and inside[0].is_dir() and not (inside[0] / "__init__.py").exists()
        top = inside[0] if nested else raw / "files"
        _copy(top, tree, skipped)
        metadata = read_metadata(top)
    shutil.rmtree(raw)
    return _describe(tree, metadata, source, skipped)


def _describe(tree: Path, metadata: Metadata, source: str, skipped: Counter[str]) -> Package:
    files = sorted(path.relative_to(tree).as_posix() for path in tree.rglob("*.py"))
    readable = [path for path in files if _parses(tree / path, skipped)]
    if not readable:
        newer = f" ({skipped['syntax']} files do not parse with Python {sys.version.split()[0]})" * bool(
            skipped["syntax"]
        )
        raise PackageRefused("syntax" if skipped["syntax"] else "no_python", f"{source} has no Python code{newer}.")
    tests = tuple(path for path in readable if any(fnmatch.fnmatch(Path(path).name, name) for name in _TEST_FILES))
    if not tests:
        raise PackageRefused(
            "no_tests", f"{source} has no test files (test_*.py). An sdist or a checkout may have them."
        )
    start = "src" if any(path.startswith("src/") and path.count("/") <= 2 for path in readable) else "."
    modules = _modules(tree / start)
    if clash := sorted(set(modules) & sys.stdlib_module_names):
        raise PackageRefused(
            "shadows_stdlib", f"{source} has a module named like one of Python's own: {', '.join(clash)}."
        )
    inside = tuple(path for path in readable if path not in tests and _is_source(path, start, modules))
    if not inside:
        links = " Links are not followed: put the files themselves there." if skipped["link"] else ""
        raise PackageRefused("no_sources", f"{source} has no importable module in {start}/.{links}")
    _write_dist_info(tree / start, metadata)
    return Package(tree, metadata, bundle_digest(pack(tree)), (start,), modules, inside, tests, skipped)


def _modules(folder: Path) -> tuple[str, ...]:
    """Return the names that can be imported from a folder."""
    found = [path.parent.name for path in folder.glob("*/__init__.py") if path.parent.name.lower() not in _NO_SOURCES]
    found += [path.stem for path in folder.glob("*.py") if path.stem not in _NO_MODULES and not is_test(path.name)]
    return tuple(sorted(name for name in set(found) if name.isidentifier()))


def is_test(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in _TEST_FILES)


def _is_source(path: str, start: str, modules: tuple[str, ...]) -> bool:
    parts = PurePosixPath(path).parts
    if start != ".":
        if parts[0] != start:
            return False
        parts = parts[1:]
    top = parts[0].removesuffix(".py")
    return top in modules and not set(parts[:-1]) & {"tests", "test", "testing"} and parts[-1] != "conftest.py"


def editable(package: Package) -> tuple[str, ...]:
    """Return the patterns of the package's own code."""
    found = []
    for start in package.python_path:
        prefix = "" if start == "." else f"{start}/"
        for name in package.modules:
            is_folder = (package.folder / start / name).is_dir()
            found.append(f"{prefix}{name}/**/*.py" if is_folder else f"{prefix}{name}.py")
    return tuple(found)


def _parses(path: Path, skipped: Counter[str]) -> bool:
    try:
        ast.parse(path.read_bytes().decode("utf-8"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        skipped["syntax"] += 1
        return False
    return True


def _write_dist_info(folder: Path, metadata: Metadata) -> None:
    """Describe the package where it is imported from, because many ask for their own version at import."""
    place = folder / f"{re.sub(r'[-_.]+', '_', metadata.name)}-{metadata.version}.dist-info"
    place.mkdir(exist_ok=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {metadata.name}\nVersion: {metadata.version}\n")


# --------------------------------------------------------------------------------------------------------------- files


def _copy(folder: Path, tree: Path, skipped: Counter[str]) -> None:
    """Copy the files that may be in a bundle; links inside the tree become files."""
    root, size, number = folder.resolve(), 0, 0
    for relative in listed(folder):
        source = folder / relative
        if is_scrubbed(relative):
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
    """Download the sdist of a package with pip, or its wheel if there is no sdist; dependencies are left out."""
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


# ------------------------------------------------------------------------------------------------------------- bundles


def pack(tree: Path) -> bytes:
    """Return a tar.gz of the files of a tree, the same bytes on every machine."""
    paths = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    return packed({path.relative_to(tree).as_posix(): path.read_bytes() for path in paths})


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return a tar.gz of some files, in their order."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def bundle_digest(data: bytes) -> str:
    """Return the digest of a bundle's content, whatever compressed it."""
    return hashlib.sha256(gzip.decompress(data)).hexdigest()
