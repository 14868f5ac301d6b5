"""One spelling for one file: a path as some tool wrote it -> the path relative to the trace's working directory.

Nothing is looked up on disk. Any directory may be a symbolic link, so `..` is folded only over directories of
the working directory itself, which the harness reports resolved; `src/../a.py` stays as it is. A trailing slash also
stays, because `cp a b/` and `cp a b` differ; `without_slash` drops it for tools and programs to which it means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def is_windows(path: str) -> bool:
    """Return whether a path has a Windows drive letter or share."""
    return bool(_DRIVE.match(path)) or path.startswith("\\\\")


def is_absolute(path: str, *, windows: bool = False) -> bool:
    """Return whether a path starts at a root; with `windows`, a drive letter or share is one."""
    return path.startswith("/") or (windows and is_windows(path))


def normal_path(path: str, *, base: str, cwd: str | None = None) -> str | None:
    """Return the path relative to `base` if it is inside, else absolute; None if its directory is unknown.

    `cwd` is where relative paths start (`base` if not given); an empty one is unknown.
    """
    windows = is_windows(base)
    start = base if cwd is None else cwd
    if windows:
        path, base, start = _slashes(path), _slashes(base), _slashes(start)
    if not path or path.startswith("//") or (windows and path.startswith("/")):
        return path or None
    if not is_absolute(path, windows=windows):
        if not start:
            return None
        path = f"{start.rstrip('/')}/{path}"
    real = _components(base)
    stack = _fold(_components(path), real)
    return _rendered(stack, real) + _tail(path, stack, real)


def enter(path: str, *, base: str, cwd: str) -> str:
    """Return the directory after `cd path`, "" if it is unknown; the shell folds `..` whatever links there are."""
    windows = is_windows(base)
    if windows:
        path, cwd = _slashes(path), _slashes(cwd)
    if not is_absolute(path, windows=windows):
        if not cwd:
            return ""
        path = f"{cwd.rstrip('/')}/{path}"
    stack: list[str] = []
    for part in _components(path):
        if part == "..":
            # The first part is the root or the drive.
            del stack[max(len(stack) - 1, 1) :]
        else:
            stack.append(part)
    return "/".join(stack) if len(stack) > 1 else stack[0] + "/"


def tidy(path: str) -> str:
    """Drop a leading `./`, doubled slashes and `/./`, which never matter, from a path of unknown place."""
    path = re.sub(r"(?<!^)/{2,}", "/", path)
    path = re.sub(r"/(\./)+", "/", path)
    while path.startswith("./") and len(path) > 2:
        path = path[2:].lstrip("/")
    return path


def without_slash(path: str) -> str:
    """Drop the slash that marks a folder, except the root's."""
    bare = path.rstrip("/")
    return path if not bare or bare.endswith(("/.", ":")) else bare


def _slashes(path: str) -> str:
    path = path.replace("\\", "/")
    return path[0].lower() + path[1:] if _DRIVE.match(path) else path


def _components(path: str) -> list[str]:
    """Split an absolute path: its root ("" or a drive) first, then its names, without empty ones and `.`."""
    root, *names = path.split("/")
    return [root, *(name for name in names if name not in ("", "."))]


def _fold(parts: Sequence[str], real: Sequence[str]) -> list[str]:
    stack: list[str] = []
    for part in parts:
        inside = 0 < len(stack) <= len(real) and stack == list(real[: len(stack)])
        if part == ".." and (inside or len(stack) == 1):
            del stack[max(len(stack) - 1, 1) :]
        else:
            stack.append(part)
    return stack


def _rendered(stack: Sequence[str], real: Sequence[str]) -> str:
    # Without a base, "" splits to one empty component: nothing is inside.
    if len(real) > 1 and list(stack[: len(real)]) == list(real):
        return "/".join(stack[len(real) :]) or "."
    return "/".join(stack) if len(stack) > 1 else f"{stack[0]}/"


def _tail(path: str, stack: Sequence[str], real: Sequence[str]) -> str:
    if len(stack) == 1 or list(stack) == list(real) or stack[-1] == "..":
        return ""
    return next((tail for tail in ("/.", "/") if path.endswith(tail)), "")
