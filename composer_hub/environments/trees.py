"""Source trees as mappings of paths to bytes, and the folders that an untrusted command has written.

A folder is never trusted: links, devices and names that leave it are not followed, and what is read is bounded.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import functools
import hashlib
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from composer_hub import exits
from composer_hub.records import SourceEdit

MAX_BYTES = 256 << 20
_PER_FILE = 4096
MAX_FILE = 2 << 20  # a source file that is read back

Files = Mapping[str, bytes]
"""A tree: relative POSIX paths and their content."""


class TreeError(exits.ComposerError, ValueError):
    """A bundle, a folder or a path that is not a plain source tree."""


class PathError(TreeError):
    """A path that is not inside of a tree, or a file that is too large."""


@functools.lru_cache(maxsize=16)
def bundle_files(bundle: Path) -> Files:
    """Return the files of a bundle, a tar archive of regular files."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(bundle) as archive:
            for member in archive:
                if member.isdir():
                    continue
                path = PurePosixPath(member.name)
                if not member.isreg() or path.is_absolute() or ".." in path.parts:
                    raise TreeError(f"{bundle} holds {member.name!r}, which is not a file below it. Make it again.")
                content = archive.extractfile(member)
                assert content is not None
                files[str(path)] = content.read()
                if sum(map(len, files.values())) > MAX_BYTES:
                    raise TreeError(f"{bundle} holds more than {MAX_BYTES >> 20} MB. Make tasks of a smaller package.")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise TreeError(f"{bundle} is not a bundle ({error}). Fetch or make it again.") from error
    return MappingProxyType(files)


def edited(files: Files, edits: Iterable[SourceEdit]) -> dict[str, bytes]:
    """Return a tree with some files replaced, added or deleted."""
    tree = dict(files)
    for edit in edits:
        if edit.text is None:
            tree.pop(edit.path, None)
        else:
            tree[edit.path] = edit.text.encode("utf-8", "surrogateescape")
    return tree


def edits_between(before: Files, after: Files) -> tuple[SourceEdit, ...]:
    """Return the edits that make one tree of another; files that are not text are left out."""
    edits = []
    for path in sorted({*before, *after}):
        if before.get(path) != (data := after.get(path)):
            try:
                edits.append(SourceEdit(path, None if data is None else data.decode()))
            except UnicodeDecodeError:
                continue
    return tuple(edits)


def digest(files: Files) -> str:
    """Return the sha256 of a tree."""
    lines = (f"{path}\0{hashlib.sha256(data).hexdigest()}\n" for path, data in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def matches(path: str, globs: Sequence[str]) -> bool:
    """Return True if a path is named by a pattern; `*` does not cross folders, `**` does."""
    return any(_matches(tuple(path.split("/")), tuple(glob.split("/"))) for glob in globs)


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[start:], pattern[1:]) for start in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


# -------------------------------------------------------------------------------------------------------------- folders


def write_files(folder: Path, files: Files) -> None:
    """Write a tree into a new folder."""
    folders = {folder / parent for path in files for parent in PurePosixPath(path).parents}
    for one in sorted({folder, *folders}):
        one.mkdir(exist_ok=True)
    for path, data in files.items():
        (folder / path).write_bytes(data)


Known = dict[str, tuple[tuple[int, ...], bytes]]
"""Files that were read, with what tells that they have not changed since; an agent cannot set the inode's time."""


def read_files(folder: Path, known: Known | None = None, *, most: int = MAX_BYTES) -> dict[str, bytes]:
    """Return the regular files of a folder; too large ones and links are left out."""
    files: dict[str, bytes] = {}
    known = {} if known is None else known
    total = 0
    for path in _names(folder):
        try:
            status = os.lstat(folder / path)
            state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if path in known and known[path][0] == state:
                data = known[path][1]
            else:
                data = read_file(folder, path)
                known[path] = (state, data)
        except (OSError, TreeError):
            continue
        total += len(data)
        if total > most:
            raise TreeError(f"The work tree holds more than {most >> 20} MB.")
        files[path] = data
    return files


def _names(folder: Path) -> Iterator[str]:
    for place, folders, names in _walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", ".git", ".pytest_cache"))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(place, name), folder).replace(os.sep, "/")
            # A name that is not UTF-8 cannot be published, and no source file has one.
            if not name.endswith((".pyc", ".pyo")) and path.isprintable():
                yield path


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder like `os.walk`, which fails on deep trees; links to folders count as files."""
    todo = [str(folder)]
    while todo:
        folders, names = list[str](), list[str]()
        try:
            with os.scandir(place := todo.pop()) as entries:
                for entry in entries:
                    (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise TreeError("The work tree has folders that are too deep to be read.") from error
            continue
        yield place, folders, names
        todo += [os.path.join(place, name) for name in folders]


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """Give a new folder, which untrusted code may fill, to the block; other users may pass through it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        folder.chmod(0o711)
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Remove a folder, whatever untrusted code has made in it."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # it has folders that are deep, or closed to their owner
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", folder], check=False, stderr=subprocess.DEVNULL)


def size_of(folder: Path) -> int:
    """Return the size of a folder's files in bytes, with a surcharge per file."""
    total = 0
    for place, _, names in _walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size + _PER_FILE
            except OSError:
                continue
    return total


def read_file(folder: Path, path: str, *, most: int = MAX_FILE) -> bytes:
    """Return a regular file below a folder, without following a link on the way."""
    number = _open(folder, path, os.O_RDONLY)
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            is_folder = stat.S_ISDIR(status.st_mode)
            raise IsADirectoryError(21, "Is a directory", path) if is_folder else OSError(22, "Not a file", path)
        if status.st_size > most:
            raise PathError(f"{path} has {status.st_size} bytes, more than {most}.")
        with os.fdopen(os.dup(number), "rb") as file:
            return file.read(most)
    finally:
        os.close(number)


def write_file(folder: Path, path: str, data: bytes) -> None:
    """Write a file below a folder, without following a link; it belongs to the folder's owner."""
    owner, parts = os.stat(folder), _parts(path)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            try:
                os.mkdir(part, dir_fd=place)
                _give(part, owner, place)
            except FileExistsError:
                pass
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        number = os.open(parts[-1], flags, 0o644, dir_fd=place)
        with os.fdopen(number, "wb") as file:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise PermissionError(1, "Not a plain file", path)
            file.truncate(0)
            file.write(data)
        _give(parts[-1], owner, place)
    finally:
        os.close(place)


def _give(name: str, owner: os.stat_result, place: int) -> None:
    if os.geteuid() == 0:
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=place, follow_symlinks=False)


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts or "\0" in path:
        raise PathError(f"{path!r} is not a path inside the work tree.")
    return parts


def _open(folder: Path, path: str, flags: int) -> int:
    parts = _parts(path)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
