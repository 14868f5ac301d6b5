"""Number the placeholders of a dataset, the same way in every run.

In: traces whose placeholders carry digests (`[EMAIL_x3f9a…]`). Out: traces with numbers (`[EMAIL_3]`). The numbers
are kept in a local file of JSON lines that only its owner can read: the salt, then one line per placeholder. It holds
keyed digests, never values. Without it, the next version of the dataset would have other numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from composer_hub.records import Trace
from composer_hub.redact.redactor import RedactionError
from composer_hub.redact.trace import map_strings

_DIGESTED = re.compile(r"\[([A-Z]+)_x([0-9a-f]{16})\]")
FORMAT = "composer_hub redaction map 1"


class Numbering:
    """Numbers by digest; with a path, all processes that open it share them and the next run finds them."""

    def __init__(self, salt: bytes | None = None) -> None:
        self.salt = salt or secrets.token_bytes(32)
        self.path: Path | None = None
        self._numbers: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._read = 0

    @classmethod
    def open(cls, path: Path) -> Numbering:
        """Open the map of a dataset; the first use creates it with a fresh salt."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _create(path)
        numbering = cls(_salt(path))
        numbering.path = path
        with _locked(path):
            numbering._refresh()
        return numbering

    def number(self, trace: Trace) -> Trace:
        """Return the trace with numbered placeholders; unseen ones get the next number of their label."""
        unseen: dict[tuple[str, str], None] = {}

        def collect(text: str) -> str:
            if "_x" in text:
                unseen.update(
                    dict.fromkeys(key for key in _DIGESTED.findall(text) if "_".join(key) not in self._numbers)
                )
            return text

        map_strings(trace, collect)
        if unseen:
            self._assign(list(unseen))
        return map_strings(trace, self.text)

    def text(self, text: str) -> str:
        """Return one text with numbered placeholders."""
        if "_x" not in text:
            return text
        self._assign([key for key in _DIGESTED.findall(text) if "_".join(key) not in self._numbers])
        return _DIGESTED.sub(lambda match: f"[{match[1]}_{self._numbers[f'{match[1]}_{match[2]}']}]", text)

    def _assign(self, keys: list[tuple[str, str]]) -> None:
        if not keys:
            return
        if self.path is None:
            self._take(keys)
            return
        with _locked(self.path):
            self._refresh()
            lines = [json.dumps([key, number]) for key, number in self._take(keys)]
            if lines:
                _append(self.path, lines)
                self._read = self.path.stat().st_size

    def _take(self, keys: list[tuple[str, str]]) -> list[tuple[str, int]]:
        taken = []
        for label, digest in keys:
            key = f"{label}_{digest}"
            if key not in self._numbers:
                self._set(key, self._last.get(label, 0) + 1)
                taken.append((key, self._numbers[key]))
        return taken

    def _set(self, key: str, number: int) -> None:
        label = key.rpartition("_")[0]
        self._numbers[key] = number
        self._last[label] = max(self._last.get(label, 0), number)

    def _refresh(self) -> None:
        """Read the lines that other processes added, and remove a line that a crash cut off."""
        assert self.path is not None
        with self.path.open("r+b") as file:
            file.seek(self._read)
            added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            if len(whole) < len(added):
                file.truncate(self._read + len(whole))
        lines = whole.decode().splitlines()
        for number, line in enumerate(lines[1:] if self._read == 0 else lines, start=2):
            try:
                key, value = json.loads(line)
                self._set(str(key), int(value))
            except (ValueError, TypeError) as error:
                raise RedactionError(
                    f"{self.path}:{number} is damaged. Restore it, or move it away to start over with new numbers."
                ) from error
        self._read += len(whole)


def _create(path: Path) -> None:
    """Write a map with a fresh salt; the file appears complete or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(json.dumps({"format": FORMAT, "salt": secrets.token_hex(32)}) + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    finally:
        draft.unlink()


def _salt(path: Path) -> bytes:
    with path.open(encoding="utf-8") as file:
        head = file.readline()
    try:
        first = json.loads(head)
        if first["format"] != FORMAT:
            raise ValueError(first["format"])
        return bytes.fromhex(first["salt"])
    except (ValueError, KeyError, TypeError) as error:
        raise RedactionError(f"{path} is not a redaction map. Choose another path, or move the file away.") from error


def _append(path: Path, lines: list[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(line + "\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the map, so that two runs at once do not give one number to two values."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock, so only one run at a time is safe there.
        yield
        return
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
