"""A git repository in; its changes, newest first, and the trees before and after them, out.

Only plumbing commands run, without the user's settings: hooks, filters, pagers and signatures of a foreign
repository are ignored, and nothing is fetched, not even for a partial clone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from composer_hub.local_hub.characters import is_plain

MAX_MESSAGE = 2000
_FILES = ("100644", "100755")  # modes of plain files; links and submodules are left out
_SAFE = ("-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_ALONE = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0",
}  # fmt: skip
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_NOISE = re.compile(
    r"""
    ^Merge\ (pull\ request|branch|remote|commit|tag)\b.*   # Merge pull request #12 from ada/topic
    | ^[A-Z][\w-]*-(by|to|id):\s.*                         # Signed-off-by: Ada <a@b.c>
    | ^(git-svn-id:|\(cherry\ picked\ from).*
    | ^.*\S+@\S+\.\w+.*                                    # a line with an address of a person
    | \ ?\(\#\d+\)                                         # (#12), as squashed commits end
    | \b(close[sd]?|fix(e[sd])?|resolve[sd]?|refs?|see)?:?\ *([\w./-]*\#|gh-)\d+\b   # fixes #12
    | (\b(see|at|in|and|also)\b:?\ *)?https?://\S+
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


class HistoryError(ValueError):
    """A history that cannot be read, or that lacks what a change needs."""


@dataclass(frozen=True)
class ChangedFile:
    """A file that a change adds, edits or deletes; a renamed one is deleted and added."""

    path: str
    before: str  # id of its content; empty if it was not there
    after: str
    num_lines: int  # added and removed; -1 if it is binary


@dataclass(frozen=True)
class Change:
    """A commit against its first parent: of a merge, everything that the branch brought."""

    sha: str
    parent: str
    date: str  # YYYY-MM-DD
    message: str
    files: tuple[ChangedFile, ...]


def git(folder: Path, *words: str, data: bytes | None = None) -> bytes:
    """Run a plumbing command of git and return its output; `HistoryError` if it fails."""
    command = [shutil.which("git") or "git", *_SAFE, "-C", str(folder), *words]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _ALONE
    try:
        done = subprocess.run(command, input=data, capture_output=True, env=env, check=False)
    except OSError as error:
        raise HistoryError(f"git cannot be run ({error.strerror}). Install it.") from error
    if done.returncode:
        raise HistoryError(done.stderr.decode(errors="replace").strip()[-300:])
    return done.stdout


def commits(folder: Path, revisions: str, number: int) -> list[list[str]]:
    """Return the newest commits on the line of first parents, each with its parents."""
    listed = git(folder, "rev-list", "--first-parent", "--parents", f"--max-count={number}", "--end-of-options",
                 *revisions.split(), "--").decode()  # fmt: skip
    return [line.split() for line in listed.splitlines()]


def change_of(folder: Path, sha: str, parents: Sequence[str]) -> Change | None:
    """Return the change of a commit; None if it has no known parent or changes no file here."""
    if not parents:  # the first commit, or the first of a shallow clone
        return None
    parent, merged = parents[0], len(parents) > 1
    raw = git(
        folder, "diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-abbrev", "--relative", parent, sha
    )
    fields = [one.decode("utf-8", "surrogateescape") for one in raw.split(b"\0")]
    entries, lines, place = dict[str, tuple[str, str]](), dict[str, int](), 0
    while place < len(fields) - 1:
        if fields[place].startswith(":"):
            old_mode, new_mode, old, new, _ = fields[place][1:].split()
            found = (old if old_mode in _FILES else "", new if new_mode in _FILES else "")
            entries[fields[place + 1]] = found
            place += 2
        else:
            added, removed, path = fields[place].split("\t", 2)
            lines[path] = int(added) + int(removed) if added.isdigit() else -1
            place += 1
    files = [ChangedFile(path, *pair, lines.get(path, 0)) for path, pair in sorted(entries.items()) if any(pair)]
    if not files:
        return None
    header, _, body = git(folder, "cat-file", "commit", sha).partition(b"\n\n")
    seconds = re.search(rb"^committer .*> (-?\d+) ", header, re.MULTILINE)
    message = body.decode("utf-8", "replace")
    if merged and not described(message):
        subjects = git(
            folder, "rev-list", "--no-commit-header", "--format=%s", "--max-count=20", sha, f"^{parent}", "--"
        )
        message = "\n".join(f"- {one}" for one in subjects.decode("utf-8", "replace").splitlines()[1:][::-1])
    return Change(sha, parent, _date(int(seconds[1]) if seconds else 0), message, tuple(files))


def _date(seconds: int) -> str:
    import datetime

    day = min(max(seconds // 86_400, 0), 2_900_000)  # of year 9909: a commit may claim any time
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=day)).isoformat()


def contents(folder: Path, blobs: Sequence[str]) -> list[bytes]:
    """Return the contents of some blobs; `HistoryError` if one is not here."""
    output = git(folder, "cat-file", "--batch", data="".join(f"{one}\n" for one in blobs).encode())
    found, place = [], 0
    for _ in blobs:
        end = output.index(b"\n", place)
        words = output[place:end].split()
        if len(words) != 3:
            raise HistoryError("A file of the commit is not in this clone. Fetch the whole history.")
        size = int(words[2])
        found.append(output[end + 1 : end + 1 + size])
        place = end + 2 + size
    return found


def tree(folder: Path, sha: str, most: int) -> dict[str, bytes] | None:
    """Return the plain files of a commit's tree, below the folder; None if they hold over `most` bytes."""
    paths, blobs, total = [], [], 0
    for line in git(folder, "ls-tree", "-r", "-z", "-l", sha).split(b"\0")[:-1]:
        about, _, name = line.partition(b"\t")
        mode, _, blob, size = about.decode().split()
        path = name.decode("utf-8", "surrogateescape")
        parts = path.split("/")
        if mode not in _FILES or {"..", ".git", ""} & set(parts) or not is_plain(path):
            continue
        total += int(size) if size.isdigit() else 0
        paths.append(path)
        blobs.append(blob)
    return None if total > most else dict(zip(paths, contents(folder, blobs), strict=True))


def described(message: str, quotes: Iterable[str] = ()) -> str:
    """Return a commit message's words on the change: no names, references, hidden characters or `quotes`."""
    plain = "".join(one for one in _ANSI.sub("", message) if one in "\n\t" or is_plain(one))
    forbidden = set(quotes)
    unquoted = [line for line in plain.split("\n") if not any(one in "".join(line.split()) for one in forbidden)]
    lines = [
        re.sub(r"^\s*[:;,]\s*", "", line).rstrip(" :-,") for line in _NOISE.sub("", "\n".join(unquoted)).split("\n")
    ]
    kept = [line for line in lines if not line or re.search(r"\w", line)]
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    if len(text) <= MAX_MESSAGE:
        return text
    return text[:MAX_MESSAGE].rpartition("\n")[0] or text[:MAX_MESSAGE]
