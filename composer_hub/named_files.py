"""Open files that a user names, read text in the encodings that editors and shells write, and write files whole.

Unless the shell opened them, pipes and devices are refused: reading them may never end. Windows PowerShell's
`>` writes UTF-16.
"""

from __future__ import annotations

import codecs
import errno
import os
import secrets
import stat
from pathlib import Path

from composer_hub import exits

_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_OPEN_ALREADY = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def problem_of(path: Path) -> str:
    """Return why a path cannot be read like a file, "" for a file, a folder and a path that leads nowhere."""
    try:
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except OSError:
        return ""
    return f"is {kind}, not a file. Write its content to a file and name that." if kind else ""


def refuse_odd(path: Path) -> None:
    """Raise UsageError for a path that cannot be read like a file. What the shell opened (`<(command)`) may."""
    if not str(path).startswith((*_OPEN_ALREADY, os.devnull)) and (problem := problem_of(path)):
        raise exits.UsageError(f"{path} {problem}")


def encoding_of(head: bytes) -> str:
    """Return the encoding of a text, UTF-8 unless its first bytes have a mark or the zeros of UTF-16."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if head.startswith(mark):
            return encoding
    is_zero = [not byte for byte in head[:4]]
    if is_zero == [False, True, False, True]:
        return "utf-16-le"
    return "utf-16-be" if is_zero == [True, False, True, False] else "utf-8"


def text_of(path: Path, errors: str = "strict") -> str:
    """Return the text of a file that a user names; raise UsageError if it is not a text file."""
    refuse_odd(path)
    data = path.read_bytes()
    try:
        return data.decode(encoding_of(data), errors)
    except UnicodeDecodeError as error:
        raise exits.UsageError(f"{path} is not text ({error}). Save it as UTF-8.") from error


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file that other processes see complete or not at all, also after a crash; `private` is its owner's only.

    Of several writers at once, the last one's content stays. A file that cannot be written leaves the old one. The mode
    of an old file is kept; a link is replaced.
    """
    # A file beside it can take its name. The name is cut, so that the longest one still has room for the mark.
    draft = path.with_name(f".{path.name[:50]}.{secrets.token_hex(8)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666), "wb") as file:
            if not private and path.is_file():
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            sync(file.fileno())  # otherwise a power cut may leave the new name with an empty file
        draft.replace(path)
    except OSError as error:
        error.filename, error.filename2 = str(path), None  # the draft means nothing to a user
        raise
    finally:
        draft.unlink(missing_ok=True)


def sync(descriptor: int) -> None:
    """Wait until a file is on the disk; some filesystems cannot tell."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
