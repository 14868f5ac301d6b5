"""Open files that a user names, and read text in the encodings that editors and shells write.

Unless the shell opened them, pipes and devices are refused: reading them may never end. Windows PowerShell's
`>` writes UTF-16.
"""

from __future__ import annotations

import codecs
import os
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
